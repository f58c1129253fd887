//! bore: a connection of its own for each visitor, made when the visitor comes; one client process
//! per service. It has no options that concern speed. Its server's port cannot be chosen.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use super::scene::Scene;
use crate::peers::program;

/// Where clients connect: a constant of bore.
const CONTROL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7835);

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "bore")?;
    let mut server = Command::new(&program);
    server.args(["server", "--bind-addr", "127.0.0.1"]);
    scene.spawn("server", quiet(&mut server))?;
    scene.wait_listening(CONTROL)?;
    for way in scene.ways.clone() {
        let mut client = Command::new(&program);
        client.args(["local", "--local-host", "127.0.0.1", "--to", "127.0.0.1", "--port"]);
        client.arg(way.entrance.port().to_string()).arg(way.target.port().to_string());
        scene.spawn(&format!("client-{}", way.name), quiet(&mut client))?;
    }
    Ok(())
}

/// No line for each visitor, and why it ended without a backtrace behind it.
fn quiet(command: &mut Command) -> &mut Command {
    command.env("RUST_LOG", "warn").env("RUST_BACKTRACE", "0")
}
