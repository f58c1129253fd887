//! Programs of Go: the compiler, and peers that are built from a folder of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::child::{capture, find, run};
use crate::packages;

/// The Go compiler. Debian's package is installed if there is none.
///
/// # Errors
///
/// The reason why there is none.
pub fn compiler() -> Result<PathBuf, String> {
    if let Some(go) = find("go") {
        return Ok(go);
    }
    let hindered = packages::add(&["golang-go"]).unwrap_or_else(|e| Some(format!("{e:#}")));
    find("go").ok_or_else(|| hindered.unwrap_or_else(|| "there is no Go compiler".to_owned()))
}

/// Builds the program in `folder`, which has a `go.mod` and a full `go.sum`, as the file `to`.
/// `Some`: the reason why the compiler or a module cannot be had.
pub fn build(folder: &Path, to: &Path) -> Result<Option<String>> {
    let go = match compiler() {
        Ok(go) => go,
        Err(reason) => return Ok(Some(reason)),
    };
    let command = |words: &[&str]| {
        let mut command = Command::new(&go);
        command.current_dir(folder).env("GOWORK", "off").args(words);
        command
    };
    // Fetched apart, so that a mistake in the program is told from a registry out of reach.
    let (good, said) = capture(&mut command(&["mod", "download"]))?;
    if !good {
        return Ok(Some(format!("go mod download: {}", said.trim())));
    }
    run(command(&["build", "-mod=readonly", "-buildvcs=false", "-o"]).arg(to).arg("."))?;
    Ok(None)
}
