//! bore: a connection for each visitor, made when the visitor comes, and one client process per
//! service. It has no options that concern speed. Its server's port cannot be chosen, so each
//! server has a loopback address of its own.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::scene::Scene;
use crate::peers::program;

/// The port where clients connect: a constant of bore.
const CONTROL: u16 = 7835;

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "bore")?;
    let home = home()?;
    let mut server = Command::new(&program);
    server.args(["server", "--bind-addr", &home.to_string(), "--bind-tunnels", "127.0.0.1"]);
    scene.spawn("server", quiet(&mut server))?;
    scene.wait_accepting((home, CONTROL).into())?;
    for way in scene.ways.clone() {
        let mut client = Command::new(&program);
        client.args(["local", "--local-host", "127.0.0.1", "--to", &home.to_string(), "--port"]);
        client.arg(way.entrance.port().to_string()).arg(way.target.port().to_string());
        scene.spawn(&format!("client-{}", way.name), quiet(&mut client))?;
    }
    Ok(())
}

/// A loopback address where bore's port is free.
fn home() -> Result<Ipv4Addr> {
    (1..=u8::MAX)
        .map(|n| Ipv4Addr::new(127, 0, 7, n))
        .find(|home| TcpListener::bind((*home, CONTROL)).is_ok())
        .with_context(|| format!("port {CONTROL} is taken on every address that was tried"))
}

/// Suppresses the log line for each visitor, and backtraces after an error.
fn quiet(command: &mut Command) -> &mut Command {
    command.env("RUST_LOG", "warn").env("RUST_BACKTRACE", "0")
}
