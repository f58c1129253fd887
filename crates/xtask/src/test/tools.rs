//! Programs and files that several steps use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use xtask::child::{announce, cargo, run};
use xtask::site::Site;
use xtask::verdict::{SKIPPED, Verdict};

/// Runs a command of `lab`. A status of [`SKIPPED`] means that this machine cannot run it.
pub(super) fn lab(site: &Site, words: &[&str]) -> Result<Verdict> {
    let mut lab = cargo(&site.root, &["run", "--quiet", "--package", "lab", "--"]);
    let line = announce(lab.args(words));
    let status = lab.stdin(Stdio::null()).status().with_context(|| format!("starting {line}"))?;
    if status.code() == Some(SKIPPED.into()) {
        return Ok(Verdict::Skipped("see above".to_owned()));
    }
    ensure!(status.success(), "{line} ended with {status}");
    Ok(Verdict::PASSED)
}

/// A subcommand of cargo, installed into the build folder when it is nowhere else.
pub(super) fn tool(site: &Site, name: &str) -> Result<Option<PathBuf>> {
    if let Some(found) = xtask::child::find(name) {
        return Ok(Some(found));
    }
    let folder = site.target.join("tools").join(name);
    let there = folder.join("bin").join(name);
    if !there.exists() {
        let mut install = cargo(&site.root, &["install", "--locked", name, "--root"]);
        if let Err(error) = run(install.arg(&folder)) {
            println!("{error:#}");
            return Ok(None);
        }
    }
    Ok(Some(there))
}

/// The files of a folder with this extension, by name.
pub(super) fn files_with_extension(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
