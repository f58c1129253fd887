//! `tunnel status`, `tunnel reload` and `tunnel stop`: finding the instance that is meant, and talking to it.

use std::path::PathBuf;

use anyhow::bail;

use crate::cli::Which;
use crate::commands;
use crate::control::{self, Instance};
use crate::state::Places;
use crate::status::render;
use crate::term;

/// Prints how the instance is.
pub(crate) fn status(which: &Which, json: bool) -> anyhow::Result<()> {
    let status = control::status(&find(which)?)?;
    if json {
        term::out(serde_json::to_string_pretty(&status)?);
    } else {
        term::out(render(&status).trim_end());
    }
    Ok(())
}

/// Lets the instance read its configuration again, and says what became of it.
pub(crate) fn reload(which: &Which) -> anyhow::Result<()> {
    let reloaded = control::reload(&find(which)?)?;
    if reloaded.applied.is_empty() {
        term::out("nothing to apply");
    }
    for line in &reloaded.applied {
        term::out(line);
    }
    if !reloaded.restart.is_empty() {
        let keys = reloaded.restart.join(", ");
        term::err(format_args!("warning: changed, and waiting for a restart: {keys}"));
    }
    Ok(())
}

/// Stops the instance and waits for its end.
pub(crate) fn stop(which: &Which) -> anyhow::Result<()> {
    let instance = find(which)?;
    term::err("stopping: waiting until its streams have ended…");
    let pid = control::stop(&instance)?;
    term::out(format_args!("process {pid} has ended"));
    Ok(())
}

pub(crate) fn find(which: &Which) -> anyhow::Result<Instance> {
    if let Some(path) = &which.control {
        return Instance::connect(path);
    }
    if let Some(file) = &which.config {
        return Instance::connect(&commands::control_of(file)?.path);
    }
    let places = Places::of_process();
    one_of(&control::running(&places), &places.known())
}

fn one_of(running: &[PathBuf], searched: &[PathBuf]) -> anyhow::Result<Instance> {
    match running {
        [only] => Instance::connect(only),
        [] => {
            let searched: Vec<_> = searched.iter().map(|p| p.display().to_string()).collect();
            bail!(
                "no running tunnel found (looked in {}); name its file with --config, or its \
                 control socket with --control: one that was given a state directory has it there",
                searched.join(", ")
            )
        }
        several => {
            let mut text = "several tunnels are running; choose one:".to_owned();
            for path in several {
                let who = Instance::connect(path).and_then(|instance| control::status(&instance));
                let who = who.map_or_else(
                    |e| format!("{e:#}"),
                    |s| {
                        // A server has no name.
                        let who = format!("{} {}", s.role, s.name);
                        format!("{}, process {}", who.trim_end(), s.pid)
                    },
                );
                text.push_str(&format!("\n  --control {}   {who}", path.display()));
            }
            bail!(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn one_running_instance_is_taken_none_and_several_are_explained() {
        let dir = tempfile::tempdir().unwrap();
        let bind = |name: &str| {
            let path = dir.path().join(name);
            (UnixListener::bind(&path).unwrap(), path)
        };
        let (_first, one) = bind("a.sock");
        assert!(one_of(std::slice::from_ref(&one), &[]).is_ok());
        let text = one_of(&[], &["/run/x".into()]).unwrap_err().to_string();
        assert!(text.contains("/run/x") && text.contains("--control"), "{text}");
        let gone = dir.path().join("gone.sock");
        let text = one_of(&[gone.clone(), gone], &[]).unwrap_err().to_string();
        assert_eq!(text.matches("--control").count(), 2, "{text}");
    }
}
