//! Builds the programs of a run, and lists their versions for the record.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::stop;
use crate::systems::System;
use xtask::child::{capture, cargo, find, run};
use xtask::site::Site;

/// Builds the load programs without the workspace's long link; their load is the same.
pub(crate) fn build_load(site: &Site) -> Result<PathBuf> {
    let args = ["build", "--profile", "e2e", "--package", "benches", "--bin", "load"];
    run(&mut cargo(&site.root, &args))?;
    Ok(load_program(site))
}

/// The path of the load program that [`build_load`] builds.
pub(crate) fn load_program(site: &Site) -> PathBuf {
    site.target.join("e2e/load")
}

/// Prepares this process and all its children: Ctrl-C ends them in order, and 10,000 connections
/// may be open at the same time even if the soft limit is lower.
pub(crate) fn prepare() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // If raising the limit is not allowed, programs that need more descriptors report it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    stop::listen()
}

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
