//! `tunnel install` and `tunnel uninstall`: an instance as a unit of systemd.
//!
//! `secrets` takes the secrets out of a configuration, `gather` collects what belongs to an
//! instance, `plan` writes it, and `remove` takes it away.

mod gather;
mod plan;
mod remove;
mod secrets;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use ops::{WrongConfig, term};
use rustix::process::geteuid;

use crate::cli::{InstallArgs, PlaceArgs, Side};

pub(crate) use remove::uninstall;

/// Installs an instance.
pub(crate) fn install(args: &InstallArgs) -> anyhow::Result<()> {
    may_write(&args.place)?;
    let (plan, unit) = gather::plan(args)?;
    for note in &plan.notes {
        term::err(format_args!("note: {note}"));
    }
    if args.place.dry_run {
        term::out(plan.text().trim_end());
        return Ok(());
    }
    let changed = plan.write(&root(&args.place), args.force)?;
    term::out(if changed {
        format!("{unit} is installed")
    } else {
        format!("{unit}: already installed")
    });
    run(&plan.commands, &args.place)
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

/// Runs commands of systemd where systemd runs, and prints them otherwise.
fn run(commands: &[Vec<String>], place: &PlaceArgs) -> anyhow::Result<()> {
    if place.root.is_some() || !Path::new("/run/systemd/system").exists() {
        for command in commands {
            term::out(format_args!("to do: {}", command.join(" ")));
        }
        return Ok(());
    }
    for command in commands {
        let Some((program, args)) = command.split_first() else { continue };
        let shown = command.join(" ");
        let status = Command::new(program).args(args).status().with_context(|| shown.clone())?;
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
    format!("/etc/systemd/system/{}.d/credentials.conf", unit(side, name)).into()
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

/// What every instance shares: completions and manual pages, each with its place.
fn shared() -> anyhow::Result<Vec<(String, String)>> {
    use crate::cli::Shell;
    use crate::generate::{all_pages, completions};
    let unit = |side| format!("/etc/systemd/system/tunnel-{}@.service", role(side));
    let mut all = vec![
        (unit(Side::Server), include_str!("../../../../systemd/tunnel-server@.service").to_owned()),
        (unit(Side::Client), include_str!("../../../../systemd/tunnel-client@.service").to_owned()),
        ("/usr/share/bash-completion/completions/tunnel".to_owned(), completions(Shell::Bash)?),
        ("/usr/share/zsh/site-functions/_tunnel".to_owned(), completions(Shell::Zsh)?),
        ("/usr/share/fish/vendor_completions.d/tunnel.fish".to_owned(), completions(Shell::Fish)?),
    ];
    let pages = all_pages()?.into_iter();
    all.extend(pages.map(|(name, text)| (format!("/usr/share/man/man1/{name}"), text)));
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
