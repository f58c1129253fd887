//! The commands about the targets of services: their arguments, the question to the running daemon,
//! and the output, as text and as JSON.

use anyhow::bail;
use clap::{Args, Subcommand};
use ops::command::{Command as _, TestService};
use ops::term::{self, Column, Drawn, Screen, Sheet, Table};
use ops::tested::Tested;

use crate::cli::Which;
use crate::complete::{clients, services};
use crate::instances;

#[derive(Debug, Subcommand)]
pub(crate) enum TargetsCommand {
    #[command(about = TestService::ABOUT.help)]
    Test(TestArgs),
}

/// `tunnel test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The name of the service
    #[arg(value_name = "SERVICE", add = services())]
    pub(crate) service: String,
    /// On a server: the client whose service it is, where several have one of this name
    #[arg(long, value_name = "NAME", add = clients())]
    pub(crate) client: Option<String>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(command: &TargetsCommand) -> anyhow::Result<()> {
    match command {
        TargetsCommand::Test(args) => test(args),
    }
}

/// Tests a service. An unhealthy target is an error, so that a script notices it.
fn test(args: &TestArgs) -> anyhow::Result<()> {
    let test = TestService { service: args.service.clone(), client: args.client.clone() };
    let what = "dialling the targets of the service";
    let tested = instances::ask_waiting(&args.which, what, test)?;
    term::show(&tested, args.json, |tested| text(tested, Screen::of_stdout(false)))?;
    if !tested.ok {
        bail!("service {} does not serve", tested.service);
    }
    Ok(())
}

fn text(tested: &Tested, screen: Screen) -> Drawn {
    let mut sheet = Sheet::new(screen);
    if let (Some(client), Some(micros)) = (&tested.client, tested.link_micros) {
        sheet.line(format_args!("round trip to client {client}: {}", millis(micros)));
        sheet.gap();
    }
    let mut steps = Table::new(vec![
        Column::new("TARGET").address(),
        Column::new("STEP").text(),
        Column::new("TIME"),
        Column::new("FOUND").text(),
    ]);
    for target in &tested.targets {
        let mut name = target.target.clone();
        for step in &target.steps {
            let found = step.found.clone().unwrap_or_default();
            let word = step.step.replace('_', " ");
            steps.row([std::mem::take(&mut name), word, millis(step.micros), found]);
        }
        if let Some(why) = &target.error {
            steps.row([name, "fails".to_owned(), String::new(), why.clone()]);
        }
    }
    sheet.table(&steps);
    sheet.finish()
}

fn millis(micros: u64) -> String {
    format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use ops::tested::{Step, TestedTarget};

    use super::*;

    #[test]
    fn each_step_stands_in_a_line_and_so_does_a_failure() {
        let step = |step: &str, found: &str| Step {
            step: step.to_owned(),
            micros: 1234,
            found: Some(found.to_owned()),
        };
        let tested = Tested {
            service: "web".to_owned(),
            client: Some("home".to_owned()),
            link_micros: Some(5678),
            targets: vec![TestedTarget {
                target: "https://a.example:443".to_owned(),
                steps: vec![step("resolve", "192.0.2.1"), step("connect", "192.0.2.1:443")],
                error: Some("the certificate has expired".to_owned()),
                ok: false,
            }],
            ok: false,
        };
        let drawn = text(&tested, Screen::PLAIN);
        for line in [
            "round trip to client home: 5.67 ms",
            "https://a.example:443  resolve  1.23 ms  192.0.2.1",
            "connect  1.23 ms  192.0.2.1:443",
            "fails             the certificate has expired",
        ] {
            assert!(drawn.as_str().contains(line), "{}", drawn.as_str());
        }
    }
}
