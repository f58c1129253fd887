//! kcptun: smux streams in one KCP session, from a client that listens to a server that dials, so
//! the visitors' side is the client. A pair of processes per target. The settings are the fast
//! set-up of its README: `fast3`, no compression, 16 MiB of socket buffer, wide windows; encrypted,
//! with its default FEC 10/3.

use std::process::Command;

use anyhow::Result;

use super::scene::{Scene, free};
use crate::peers::program;

/// Options on which both ends must agree. Windows are in packets: the rate is bound by window × MTU
/// / RTT.
pub(crate) const OPTIONS: &[&str] = &[
    "--mode",
    "fast3",
    "--nocomp",
    "--crypt",
    "aes-128",
    "--sndwnd",
    "2048",
    "--rcvwnd",
    "2048",
    "--sockbuf",
    "16777217",
    "--smuxver",
    "2",
    "--quiet",
];

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let programs = ["kcptun-client", "kcptun-server"];
    let [client, server] = programs.map(|name| program(scene.site, name));
    let (client, server) = (client?, server?);
    for way in scene.ways.clone() {
        let between = free();
        let ends = [
            ("client", &client, between, "--remoteaddr", way.entrance, "--localaddr"),
            ("server", &server, way.target, "--target", between, "--listen"),
        ];
        for (role, program, to, to_name, from, from_name) in ends {
            let mut command = Command::new(program);
            command.arg(from_name).arg(from.to_string()).arg(to_name).arg(to.to_string());
            scene.spawn(&format!("{role}-{}", way.name), command.args(OPTIONS))?;
        }
    }
    Ok(())
}
