//! The commands about the targets of services: their arguments, the question to the running daemon,
//! and the output, as text and as JSON.

use anyhow::bail;
use clap::{Args, Subcommand};
use ops::Role;
use ops::command::{Command as _, TestService};
use ops::status::Status;
use ops::targets::{DrainOrder, Drained};
use ops::term::{self, Column, Drawn, Screen, Sheet, Table};
use ops::tested::Tested;

use crate::cli::Which;
use crate::complete::{clients, of_status, services};
use crate::instances;

#[derive(Debug, Subcommand)]
pub(crate) enum TargetsCommand {
    #[command(about = TestService::ABOUT.help)]
    Test(TestArgs),
    #[command(about = DrainOrder::ABOUT.help, after_help = DRAIN_NOTE)]
    Drain(DrainArgs),
    /// Send new visitors to drained targets again
    Undrain(DrainArgs),
}

const DRAIN_NOTE: &str = "\
Examples:
  tunnel drain 10.0.0.4:8080    a target: new visitors get the others
  tunnel drain web              a service: new visitors are refused
  tunnel undrain web

The state is kept in the memory of the client or proxy, over each reload, until `tunnel undrain` or
a restart. `tunnel status` shows `draining`.";

/// `tunnel drain` and `tunnel undrain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// A target as `tunnel status` shows it, or the name of a service for all of its targets
    #[arg(value_name = "TARGET|SERVICE")]
    #[arg(add = of_status(&[Role::Client, Role::Proxy], names_to_drain))]
    name: String,
    #[command(flatten)]
    which: Which,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
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
        TargetsCommand::Drain(args) => drain(args, false),
        TargetsCommand::Undrain(args) => drain(args, true),
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

/// The services of a client and the entries of a proxy, and their targets.
fn names_to_drain(status: Status) -> Vec<String> {
    let services = status.sessions.into_iter().flat_map(|session| session.services);
    let services = services.chain(status.proxies);
    let names = services.flat_map(|service| {
        let targets = service.targets.into_iter().map(|target| target.target);
        targets.chain([service.name])
    });
    names.collect()
}

/// Drains targets, or ends their drain.
fn drain(args: &DrainArgs, off: bool) -> anyhow::Result<()> {
    let order = DrainOrder { name: args.name.clone(), off };
    let drained = instances::ask(&args.which, order)?;
    let draw = |drained: &Drained| outcome(drained, Screen::of_stdout(false));
    term::show(&drained, args.json, draw)
}

fn outcome(drained: &Drained, screen: Screen) -> Drawn {
    let mut sheet = Sheet::new(screen);
    for one in &drained.targets {
        let what = if one.draining {
            "gets no new visitors; open streams go on"
        } else {
            "gets new visitors again"
        };
        sheet.line(format_args!("{} of {} {what}", one.target, one.service));
    }
    for service in &drained.services {
        sheet.line(format_args!("service {service} refuses new visitors: it has no other target"));
    }
    sheet.finish()
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
    use ops::targets::DrainedTarget;
    use ops::tested::{Step, TestedTarget};

    use super::*;

    #[test]
    fn the_outcome_of_a_drain_names_each_target_and_each_service_that_refuses() {
        let target = |draining| DrainedTarget {
            service: "web".to_owned(),
            target: "tcp://a:1".to_owned(),
            draining,
        };
        let drawn = |draining, services: &[&str]| {
            let services = services.iter().map(ToString::to_string).collect();
            outcome(&Drained { targets: vec![target(draining)], services }, Screen::PLAIN)
        };
        assert_eq!(
            drawn(true, &["web"]).as_str().trim_end(),
            "tcp://a:1 of web gets no new visitors; open streams go on\n\
             service web refuses new visitors: it has no other target"
        );
        assert_eq!(
            drawn(false, &[]).as_str().trim_end(),
            "tcp://a:1 of web gets new visitors again"
        );
    }

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
