//! The steps for the user after an import.

use proto::text::escaped;

use crate::Program;
use crate::address::url;
use crate::plan::{Plan, Rights};
use crate::write::{self, client_file};

/// The step that asks for decisions about the findings.
fn decide(findings: usize) -> Option<String> {
    (findings > 0).then(|| {
        format!(
            "Decide about what has no counterpart or needs a look ({findings}): the lines above, \
             which are at the top of each file as well."
        )
    })
}

/// The steps for a file of `tunnel proxy`.
pub(crate) fn steps_of_proxy(program: Program, findings: usize) -> Vec<String> {
    let file = write::PROXY;
    let run = format!(
        "Bring {file} to its machine, and stop {program} there. Then: tunnel check {file} && tunnel \
         proxy --config {file}"
    );
    let unit = "As a unit of systemd: sudo tunnel install proxy".to_owned();
    decide(findings).into_iter().chain([run, unit]).collect()
}

pub(crate) fn steps(program: Program, plan: &Plan, findings: usize) -> Vec<String> {
    let mut steps: Vec<_> = decide(findings).into_iter().collect();
    let mut files = vec!["server.yaml".to_owned()];
    if plan.certificate.is_some() {
        files.extend(["server.crt".to_owned(), "server.key".to_owned()]);
    }
    if plan.server.admin.is_some() {
        files.push("admin.token".to_owned());
    }
    let ports: Vec<String> = plan
        .server
        .listen
        .iter()
        .filter_map(|listen| {
            let parts = url(listen)?;
            let over = if matches!(parts.scheme, "quic" | "kcp") { "UDP" } else { "TCP" };
            Some(format!("{over} {}", parts.port?))
        })
        .collect();
    let stop = match plan.server.sources.as_slice() {
        [] => String::new(),
        _ => format!(" Stop {program} there."),
    };
    steps.push(format!(
        "Server: bring {} to its machine, into a folder that only its user can read.{stop} It \
         listens on {}. Then: tunnel check server.yaml && tunnel server --config server.yaml",
        files.join(", "),
        ports.join(", ")
    ));
    for client in &plan.clients {
        let file = client_file(plan, client);
        let token = client.admin.as_ref().map(|_| format!(" and {}-admin.token", client.name));
        steps.push(format!(
            "Client `{}`: bring {file}{} to its machine, and stop {program} there. Then: tunnel check \
             {file} && tunnel client \
             --config {file}",
            client.name,
            token.unwrap_or_default()
        ));
    }
    if plan.clients.is_empty() {
        let mut words =
            plan.server.known.iter().map(|(name, rights)| enroll(name, rights)).collect::<Vec<_>>();
        if words.is_empty() {
            words.push(enroll("home", &plan.server.to_come));
        }
        steps.push(format!(
            "Clients: import their files together with this one, or enrol each of them at the \
             running server: {}",
            words.join("; ")
        ));
    }
    steps
        .push("As units of systemd: sudo tunnel install server, sudo tunnel install client".into());
    // A right may contain any text of a source.
    steps.into_iter().map(|step: String| escaped(&step).into_owned()).collect()
}

/// The command that admits a client with these rights.
fn enroll(name: &str, rights: &Rights) -> String {
    let mut line = format!("tunnel enroll {name}");
    for (kind, list) in rights.kinds() {
        for entry in list {
            let plain = entry.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:/".contains(&b));
            let quoted = format!("'{}'", entry.replace('\'', ""));
            line.push_str(&format!(" --allow-{kind} {}", if plain { entry } else { &quoted }));
        }
    }
    line
}
