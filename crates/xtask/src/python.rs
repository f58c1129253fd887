//! Packages of Python in an environment of their own: judges and peers that nobody here wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::child::capture;

/// The folder with the programs of an environment in `venv` that has these packages, each with its
/// version. `None`: they cannot be had, and why was printed.
pub fn with(venv: &Path, packages: &[&str]) -> Result<Option<PathBuf>> {
    let bin = venv.join("bin");
    let marker = venv.join(packages.join(","));
    if marker.exists() {
        return Ok(Some(bin));
    }
    let (good, said) = capture(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    if !good {
        println!("{}", said.trim());
        return Ok(None);
    }
    let mut pip = Command::new(bin.join("pip"));
    let (good, said) = capture(pip.args(["install", "--quiet"]).args(packages))?;
    if !good {
        println!("{}", said.trim());
        return Ok(None);
    }
    fs::write(marker, "")?;
    Ok(Some(bin))
}
