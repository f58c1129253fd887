//! The machine and the versions with which figures were measured.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::network;
use xtask::child::capture;
use xtask::site::Site;

/// The machine and the checkout, for the record.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) kernel: String,
    pub(super) memory_mib: u64,
    /// TCP's congestion control for sockets that do not choose another.
    pub(super) congestion: String,
    /// UTC, ISO 8601.
    pub(super) date: String,
    /// The commit, with `+` if files differ from it.
    pub(super) commit: String,
}

impl Machine {
    pub(super) fn here(site: &Site) -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: memory_kib >> 10,
            congestion: network::congestion(),
            date: said(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
            commit: commit(site),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "cpu": self.cpu, "cores": self.cores, "kernel": self.kernel,
            "memory_mib": self.memory_mib, "congestion_control": self.congestion,
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cpu, cores, kernel, memory_mib, congestion, date, commit } = self;
        write!(f, "{cpu}, {cores} cores, {memory_mib} MiB, Linux {kernel}, TCP {congestion}; ")?;
        write!(f, "{date}, commit {commit}")
    }
}

fn commit(site: &Site) -> String {
    let git = |args: &[&str]| said(Command::new("git").arg("-C").arg(&site.root).args(args));
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    if commit.is_empty() {
        return "unknown".to_owned();
    }
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if changed { commit + "+" } else { commit }
}

/// The output of a program; empty if the program is missing or fails.
fn said(command: &mut Command) -> String {
    match capture(command) {
        Ok((true, text)) => text.trim().to_owned(),
        Ok((false, _)) | Err(_) => String::new(),
    }
}

/// The value after the first `name :` of a file in `/proc`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_of_a_name_is_read() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n";
        assert_eq!(field(text, "model name").as_deref(), Some("AMD EPYC"));
        assert_eq!(field(text, "model"), None);
    }
}
