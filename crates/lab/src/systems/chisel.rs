//! chisel: SSH channels in a WebSocket, with all visitors on one connection. Its own encryption
//! cannot be turned off, so there is no TLS around it. There are no other choices.

use std::process::Command;

use anyhow::Result;

use super::scene::{Scene, free};
use crate::peers::program;

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "chisel")?;
    let between = free();
    let mut server = Command::new(&program);
    server.args(["server", "--reverse", "--host", "127.0.0.1", "--port"]);
    scene.spawn("server", server.arg(between.port().to_string()))?;
    scene.wait_listening(between)?;
    let mut client = Command::new(&program);
    client.arg("client").arg(format!("http://{between}"));
    client.args(scene.ways.iter().map(|way| format!("R:{}:{}", way.entrance, way.target)));
    scene.spawn("client", &mut client)
}
