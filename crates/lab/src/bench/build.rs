//! Builds the programs of a run.

use std::path::PathBuf;

use anyhow::Result;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::stop;
use xtask::child::{cargo, run};
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
