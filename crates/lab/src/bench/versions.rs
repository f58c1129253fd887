//! The versions of the programs of a run, for the record.

use std::process::Command;

use crate::systems::System;
use xtask::child::{capture, find};
use xtask::site::Site;

/// The versions of the load programs and of the systems.
pub(super) fn versions(site: &Site, systems: &[&'static System]) -> Vec<(&'static str, String)> {
    let mut versions = Vec::new();
    let first_line = |command: &mut Command| {
        let (_, text) = capture(command).ok()?;
        text.lines().next().map(|line| line.trim().to_owned())
    };
    let programs =
        [("wrk", "-v"), ("h2load", "--version"), ("nginx", "-v"), ("iperf3", "--version")];
    for (program, flag) in programs {
        if let Some(path) = find(program) {
            versions.extend(first_line(Command::new(path).arg(flag)).map(|said| (program, said)));
        }
    }
    let tunnel = first_line(Command::new(&site.tunnel).arg("--version"));
    versions.extend(tunnel.map(|said| ("tunnel", said)));
    let named = |system: &&System| Some((system.name, system.version(site)?));
    versions.extend(systems.iter().filter_map(named));
    versions
}
