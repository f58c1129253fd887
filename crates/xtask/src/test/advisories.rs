//! The long step `advisories`: the crates of each `Cargo.lock` against the RustSec database, by
//! cargo-deny and the section `advisories` of `.deny.toml`.

use std::process::Command;

use anyhow::Result;

use super::tools::tool;
use xtask::child::{capture, run};
use xtask::site::{KCP_GO, Site};
use xtask::verdict::Verdict;

/// The database, as cargo-deny fetches it.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// Longest wait for the first answer of the database's host, in seconds.
const PATIENCE: &str = "60";

pub(super) fn check(site: &Site) -> Result<Verdict> {
    // The database is asked first: building cargo-deny takes minutes, and would be in vain.
    if let Some(reason) = absence(DATABASE)? {
        return Ok(Verdict::OutOfReach(reason));
    }
    let Some(cargo_deny) = tool(site, "cargo-deny")? else {
        return Ok(Verdict::Skipped("cargo-deny cannot be installed".to_owned()));
    };
    // Each workspace has a `Cargo.lock`.
    for workspace in [site.root.clone(), site.root.join(KCP_GO)] {
        run(Command::new(&cargo_deny).current_dir(workspace).args(["check", "advisories"]))?;
    }
    Ok(Verdict::PASSED)
}

/// The reason why the database cannot be had; `None` if its host answers.
fn absence(url: &str) -> Result<Option<String>> {
    let mut ask = Command::new("timeout");
    ask.args([PATIENCE, "git", "ls-remote", url, "HEAD"]).env("GIT_TERMINAL_PROMPT", "0");
    let (good, said) = capture(&mut ask)?;
    if good {
        return Ok(None);
    }
    let why = said.lines().find(|line| line.starts_with("fatal: ")).unwrap_or("no answer");
    Ok(Some(format!("the RustSec database cannot be had: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_out_of_reach_is_a_reason_and_one_within_reach_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().display());
        let reason = absence(&url).unwrap().unwrap();
        assert!(reason.starts_with("the RustSec database cannot be had: fatal: "), "{reason}");
        let init = Command::new("git").arg("init").arg(folder.path()).output().unwrap();
        assert!(init.status.success());
        assert_eq!(absence(&url).unwrap(), None);
    }
}
