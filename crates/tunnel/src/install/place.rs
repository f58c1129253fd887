//! Where an instance is installed, and what all instances share there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use ops::term::{self, Waiting};
use rustix::process::geteuid;

use super::instance::template;
use crate::cli::{PlaceArgs, Side};

pub(super) const PROGRAM: &str = "/usr/bin/tunnel";

/// The binary of this program.
pub(super) fn program() -> anyhow::Result<Vec<u8>> {
    let path = std::env::current_exe().context("the path of this program")?;
    fs::read(&path).with_context(|| path.display().to_string())
}

/// The folder that is used as `/`.
pub(super) fn root(place: &PlaceArgs) -> PathBuf {
    place.root.clone().unwrap_or_else(|| "/".into())
}

pub(super) fn may_write(place: &PlaceArgs) -> anyhow::Result<()> {
    ensure!(
        geteuid().is_root() || place.root.is_some() || place.dry_run,
        "only root may install a unit (hint: sudo tunnel …; --dry-run shows what would be done; \
         --root DIR works below another directory)"
    );
    Ok(())
}

/// Whether systemd runs the units of this root directory.
pub(super) fn has_systemd(place: &PlaceArgs) -> bool {
    place.root.is_none() && Path::new("/run/systemd/system").exists()
}

/// Runs commands of systemd if systemd runs, and prints them otherwise.
pub(super) fn run(commands: &[Vec<String>], place: &PlaceArgs) -> anyhow::Result<()> {
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

pub(super) fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// The files that all instances share: units, completions and manual pages, each with its path.
pub(super) fn shared() -> anyhow::Result<Vec<(PathBuf, String)>> {
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
