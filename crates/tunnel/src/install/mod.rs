//! `tunnel install` and `tunnel uninstall`: an instance as a unit of systemd.
//!
//! `secrets` takes the secrets out of a configuration. `state` finds the
//! state so far. `gather` collects all that belongs to an instance, `plan` writes it, `verify`
//! checks the result, and `remove` takes it away. `version` compares the installed program with
//! this one.

mod gather;
mod plan;
mod remove;
mod secrets;
mod state;
mod verify;
mod version;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use ops::term::Waiting;
use ops::{WrongConfig, term};
use rustix::process::geteuid;

use crate::cli::{InstallArgs, PlaceArgs, Side};

pub(crate) use remove::{names, uninstall};

const UNITS: &str = "/etc/systemd/system";

const DROP_IN: &str = "credentials.conf";

const PROGRAM: &str = "/usr/bin/tunnel";

/// An installed instance.
struct Instance {
    side: Side,
    name: String,
    /// The name of the unit.
    unit: String,
    /// The names of the credentials, and their files.
    credentials: Vec<(String, PathBuf)>,
}

impl Instance {
    /// Whether a person has made settings of the unit (`systemctl edit`).
    fn has_settings(&self, root: &Path) -> bool {
        let own = plan::below(root, &drop_in(self.side, &self.name));
        let entries = own.parent().and_then(|folder| fs::read_dir(folder).ok());
        entries.into_iter().flatten().flatten().any(|entry| entry.path() != own)
    }
}

/// Installs an instance.
pub(crate) fn install(args: &InstallArgs) -> anyhow::Result<()> {
    may_write(&args.place)?;
    let (plan, instance) = gather::plan(args)?;
    let (root, unit) = (root(&args.place), instance.unit.as_str());
    for note in &plan.notes {
        term::err(format_args!("note: {note}"));
    }
    for warning in &plan.warnings {
        term::err(format_args!("warning: {warning}"));
    }
    // systemd knows the unit only if its file is there.
    let stop = args.force
        && has_systemd(&args.place)
        && plan::below(&root, &template(instance.side)).exists();
    let stop = stop.then(|| command(&["systemctl", "stop", unit]));
    if args.place.dry_run {
        if let Some(stop) = stop {
            term::out(format_args!("$ {}", stop.join(" ")))?;
        }
        term::out(plan.text().trim_end())?;
        return Ok(());
    }
    let is_stopped = Cell::new(false);
    let before = || {
        if args.force {
            run(stop.as_slice(), &args.place)?;
            is_stopped.set(stop.is_some());
            state::refuse_running(&root, &instance.name, unit)?;
        }
        Ok(())
    };
    let written = plan.write(&root, args.force, before);
    let written = written.and_then(|changed| verify::verify(&root, &instance).map(|()| changed));
    let changed = written.inspect_err(|_| {
        if is_stopped.get() {
            term::err(format_args!("note: the unit was stopped: systemctl start {unit}"));
        }
    })?;
    let told = term::out(if changed {
        format!("{unit} is installed")
    } else {
        format!("{unit}: already installed")
    });
    // The unit is started even if nobody reads of it.
    run(&plan.commands, &args.place)?;
    Ok(told?)
}

/// The content of this program.
fn program() -> anyhow::Result<Vec<u8>> {
    let path = std::env::current_exe().context("the path of this program")?;
    fs::read(&path).with_context(|| path.display().to_string())
}

/// The folder that stands for `/`.
fn root(place: &PlaceArgs) -> PathBuf {
    place.root.clone().unwrap_or_else(|| "/".into())
}

fn may_write(place: &PlaceArgs) -> anyhow::Result<()> {
    ensure!(
        geteuid().is_root() || place.root.is_some() || place.dry_run,
        "only root may install a unit (hint: sudo tunnel …; --dry-run shows what would be done; \
         --root DIR works below another directory)"
    );
    Ok(())
}

/// Whether systemd runs the units of the place.
fn has_systemd(place: &PlaceArgs) -> bool {
    place.root.is_none() && Path::new("/run/systemd/system").exists()
}

/// Runs commands of systemd where systemd runs, and prints them otherwise.
fn run(commands: &[Vec<String>], place: &PlaceArgs) -> anyhow::Result<()> {
    if !has_systemd(place) {
        for command in commands {
            term::out(format_args!("to do: {}", command.join(" ")))?;
        }
        return Ok(());
    }
    for command in commands {
        let Some((program, args)) = command.split_first() else { continue };
        let shown = command.join(" ");
        let status = Waiting::during(&shown, || Command::new(program).args(args).status());
        let status = status.with_context(|| shown.clone())?;
        if !status.success() {
            bail!("{shown}: {status}");
        }
    }
    Ok(())
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

const fn role(side: Side) -> &'static str {
    match side {
        Side::Server => "server",
        Side::Client => "client",
    }
}

/// The unit of an instance.
fn unit(side: Side, name: &str) -> String {
    format!("tunnel-{}@{name}.service", role(side))
}

/// The file that hands the credentials over.
fn drop_in(side: Side, name: &str) -> PathBuf {
    Path::new(UNITS).join(format!("{}.d/{DROP_IN}", unit(side, name)))
}

/// Checks the name of an instance, which is a part of paths and of the unit's name.
fn check_name(name: &str) -> Result<(), WrongConfig> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= 64
        && name.chars().all(fine)
    {
        return Ok(());
    }
    Err(WrongConfig::one(format!(
        "--name: `{name}` names no instance (hint: 1 to 64 letters, digits, `-`, `_`, `.`, the \
         first of them a letter or a digit)"
    )))
}

/// The unit of all instances of a role.
fn template(side: Side) -> PathBuf {
    Path::new(UNITS).join(format!("tunnel-{}@.service", role(side)))
}

/// What every instance shares: units, completions and manual pages, each with its place.
fn shared() -> anyhow::Result<Vec<(PathBuf, String)>> {
    use crate::cli::Shell;
    use crate::generate::{all_pages, completions};
    let mut all = vec![
        (template(Side::Server), include_str!("../../../../systemd/tunnel-server@.service").into()),
        (template(Side::Client), include_str!("../../../../systemd/tunnel-client@.service").into()),
        ("/usr/share/bash-completion/completions/tunnel".into(), completions(Shell::Bash)?),
        ("/usr/share/zsh/site-functions/_tunnel".into(), completions(Shell::Zsh)?),
        ("/usr/share/fish/vendor_completions.d/tunnel.fish".into(), completions(Shell::Fish)?),
    ];
    let pages = all_pages()?.into_iter();
    all.extend(pages.map(|(name, text)| (Path::new("/usr/share/man/man1").join(name), text)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_a_file_and_of_an_instance() {
        for name in ["home", "a.b", "0-x_y"] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", "-x", "a/b", "a b", "a@b", &"x".repeat(65)] {
            assert!(check_name(name).unwrap_err().to_string().contains("--name"), "{name}");
        }
    }
}
