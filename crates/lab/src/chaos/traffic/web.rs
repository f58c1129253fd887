//! curl and nginx: downloads at several rates, and small pages over one connection.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use testkit::stage::bytes::Complaint;
use testkit::stage::program;

use super::{Job, files, job, succeed};

/// Bytes per second: slow downloads live through several faults, fast downloads fill every window.
const RATES: [&str; 3] = ["3M", "10M", "1000M"];

/// Pages over one connection.
const PAGES: usize = 20;

fn curl() -> Command {
    let mut command = Command::new(program("curl"));
    // Without `--fail-early`, curl's status is about the last of several pages only.
    command.args(["--silent", "--show-error", "--fail", "--fail-early"]);
    command
}

/// Downloads the known file as a whole.
pub(super) fn downloads(port: u16, dir: &Path) -> Result<Job> {
    // nginx gives up root's rights, so the served file lies where its worker can read it.
    let (served, copy) = (dir.join("www/known"), dir.join("downloaded"));
    std::fs::copy(dir.join("known"), served).context("giving nginx a file")?;
    let url = format!("http://127.0.0.1:{port}/known");
    Ok(job("curl, 24 MB", move |turn| {
        let rate = RATES[turn as usize % RATES.len()];
        succeed(curl().args(["--limit-rate", rate, "--output"]).arg(&copy).arg(&url))?;
        files::check(&copy)
    }))
}

/// Small pages over one connection.
pub(super) fn pages(port: u16) -> Job {
    let urls: Vec<_> = (0..PAGES).map(|n| format!("http://127.0.0.1:{port}/small?{n}")).collect();
    job("curl, 20 pages", move |_| {
        let output = succeed(curl().args(&urls))?;
        let wanted = "hello from nginx\n".repeat(PAGES);
        if output.stdout != wanted.as_bytes() {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            return Err(Complaint::Wrong(format!("curl printed {said:?}")));
        }
        Ok(wanted.len() as u64)
    })
}
