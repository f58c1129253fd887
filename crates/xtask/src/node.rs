//! Packages of npm in a folder of their own: programs and libraries of tests that run in Node.js.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::child::capture;
use crate::packages;

/// The folder `node_modules` below `folder` with these packages, each as `name@version`.
///
/// # Errors
///
/// `Err` of the inner result is the reason why the packages cannot be had.
pub fn with(folder: &Path, names: &[&str]) -> Result<Result<PathBuf, String>> {
    let modules = folder.join("node_modules");
    // One file for each list of packages: a longer list is installed anew.
    let marker = folder.join(names.join(",").replace('/', "-"));
    if marker.exists() {
        return Ok(Ok(modules));
    }
    if let Some(reason) = packages::provide(&["node", "npm"])? {
        return Ok(Err(reason));
    }
    fs::create_dir_all(folder)?;
    // Without this file npm looks for a package in the folders above.
    fs::write(folder.join("package.json"), "{ \"private\": true }\n")?;
    let mut npm = Command::new("npm");
    npm.current_dir(folder).args(["install", "--no-save", "--no-audit", "--no-fund"]);
    // No package runs a program of its own when it is installed.
    let (good, said) = capture(npm.arg("--ignore-scripts").args(names))?;
    if !good {
        return Ok(Err(format!("npm install: {}", said.trim())));
    }
    fs::write(marker, "")?;
    Ok(Ok(modules))
}
