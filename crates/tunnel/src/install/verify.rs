//! The check of an installed configuration, by `tunnel check` on the file on disk.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, bail};
use ops::state::create_private;
use ops::term;

use super::instance::Instance;
use super::plan::below;

/// Checks the installed file with its credentials, as the unit will see both.
pub(super) fn verify(root: &Path, instance: &Instance) -> anyhow::Result<()> {
    let root = std::path::absolute(root).context("the root directory")?;
    let etc = below(&root, Path::new("/etc/tunnel"));
    // systemd gives the credentials other names than their files have.
    let folder = etc.join(format!(".{}.check", instance.name));
    let said = linked(&folder, &root, instance)
        .with_context(|| folder.display().to_string())
        .and_then(|()| check(&folder, &etc.join(format!("{}.yaml", instance.name))));
    // Leftovers of a check are an empty folder or a folder of links.
    drop(fs::remove_dir_all(&folder));
    said
}

fn linked(folder: &Path, root: &Path, instance: &Instance) -> anyhow::Result<()> {
    // Leftovers of an interrupted check.
    drop(fs::remove_dir_all(folder));
    create_private(folder)?;
    for (name, path) in &instance.credentials {
        symlink(below(root, path), folder.join(name))?;
    }
    Ok(())
}

fn check(folder: &Path, file: &Path) -> anyhow::Result<()> {
    let mut check = Command::new(env::current_exe().context("the path of this program")?);
    check.args(["check", "--config"]).arg(file);
    // The directory without state: the lists of a client have been checked, and belong to the user
    // of the unit after its first start.
    check.env("CREDENTIALS_DIRECTORY", folder).env("STATE_DIRECTORY", folder);
    let output = check.output().context("tunnel check")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("the installed file does not pass `tunnel check`: {}", said.trim());
    }
    said.lines().for_each(term::err);
    Ok(())
}
