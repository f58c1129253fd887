//! Python packages in an environment of their own: third-party test tools and peers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::child::capture;

/// The folder of programs of an environment in `venv` with these packages, each with its version.
/// `None`: the packages cannot be installed, and the reason was printed.
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
