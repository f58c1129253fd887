//! `target/long.json`: which commit the long steps were run on, and how each of them ended. An
//! issue that touches the subject of a long step quotes it.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use xtask::child::capture;
use xtask::site::Site;

use super::wish::Wish;

/// Rewritten after each long step, so that a run that is cut off leaves what it found.
#[derive(Debug)]
pub(super) struct Record {
    file: std::path::PathBuf,
    head: Value,
    steps: Vec<Value>,
}

impl Record {
    pub(super) fn new(site: &Site, wish: &Wish) -> Self {
        let git = |args: &[&str]| {
            let (good, text) =
                capture(Command::new("git").current_dir(&site.root).args(args)).ok()?;
            good.then(|| text.trim().to_owned())
        };
        let head = json!({
            "commit": git(&["rev-parse", "HEAD"]),
            "changed_files": git(&["status", "--porcelain"]).map(|text| text.lines().count()),
            "since": wish.since,
        });
        Self { file: site.target.join("long.json"), head, steps: Vec::new() }
    }

    pub(super) fn add(&mut self, step: &str, seconds: f64, outcome: &str) {
        // A tenth of a second is enough.
        let seconds = (seconds * 10.0).round() / 10.0;
        self.steps.push(json!({ "step": step, "seconds": seconds, "outcome": outcome }));
        let mut all = self.head.clone();
        all["steps"] = self.steps.clone().into();
        if let Err(error) = fs::write(&self.file, format!("{all:#}\n")) {
            println!("writing {}: {error}", self.file.display());
        }
    }
}
