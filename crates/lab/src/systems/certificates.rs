//! Certificates for the daemons of a system, which `tunnel generate` makes.

use std::process::Output;

use anyhow::{Result, ensure};
use testkit::stage::{run, tunnel};

use super::scene::Scene;
use super::visitors::HOST;

/// Makes an authority and a certificate for a server on this machine: `ca.crt`, `server.crt`,
/// `server.key`.
pub(super) fn certificates(scene: &Scene<'_>) -> Result<()> {
    let args = ["generate", "certs", "--server", "localhost", "127.0.0.1", HOST, "--output"];
    said(&run(tunnel(&scene.site.tunnel, &args).arg(scene.dir))).map(drop)
}

/// The output of a command that must succeed.
pub(super) fn said(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
