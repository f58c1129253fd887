//! hysteria 2: a QUIC stream for each visitor, and a DATAGRAM for each datagram, with BBR, because
//! no rate is given. The client forwards, so the visitors' side is the client. The windows are
//! those of its documentation on performance.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use super::certificates::certificates;
use super::scene::{Scene, free};
use super::way::Way;
use crate::peers::program;

/// Windows in bytes; stream to connection is 2:5.
const WINDOWS: &str = "initStreamReceiveWindow: 26843545, maxStreamReceiveWindow: 26843545, \
                       initConnReceiveWindow: 67108864, maxConnReceiveWindow: 67108864";

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "hysteria")?;
    certificates(scene)?;
    let between = free();
    let texts = [("client", client(&scene.ways, between)), ("server", server(between))];
    for (role, text) in texts {
        let file = scene.write(&format!("{role}.yaml"), &text)?;
        let mut command = Command::new(&program);
        command.arg(role).arg("--config").arg(file).env("HYSTERIA_LOG_LEVEL", "warn");
        scene.spawn(role, command.env("HYSTERIA_DISABLE_UPDATE_CHECK", "1"))?;
    }
    Ok(())
}

/// More streams than the default of 1,024, because each visitor needs a stream.
fn server(between: SocketAddr) -> String {
    format!(
        "listen: {between}\n\
         tls: {{ cert: server.crt, key: server.key }}\n\
         auth: {{ type: password, password: bench }}\n\
         quic: {{ {WINDOWS}, maxIncomingStreams: 100000 }}\n"
    )
}

fn client(ways: &[Way], between: SocketAddr) -> String {
    // An empty list is no list to it.
    let forwards = |key: &str, udp: bool| {
        let ways = ways.iter().filter(|way| way.is_udp() == udp);
        let lines: String = ways
            .map(|Way { entrance, target, .. }| {
                format!("  - {{ listen: \"{entrance}\", remote: \"{target}\" }}\n")
            })
            .collect();
        if lines.is_empty() { lines } else { format!("{key}:\n{lines}") }
    };
    format!(
        "server: \"{between}\"\n\
         auth: bench\n\
         tls: {{ sni: localhost, ca: ca.crt }}\n\
         quic: {{ {WINDOWS} }}\n\
         {}{}",
        forwards("tcpForwarding", false),
        forwards("udpForwarding", true)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::way::tests::way;

    #[test]
    fn each_origin_is_a_forward_of_the_client() {
        let between = ([127, 0, 0, 1], 9).into();
        assert!(server(between).starts_with("listen: 127.0.0.1:9\n"));
        let text = client(&[way("web", 1, 2)], between);
        assert!(text.starts_with("server: \"127.0.0.1:9\"\n"), "{text}");
        let forward = "  - { listen: \"127.0.0.1:1\", remote: \"127.0.0.1:2\" }\n";
        assert!(text.ends_with(&format!("\ntcpForwarding:\n{forward}")), "{text}");
        let text = client(&[way("udp", 1, 2)], between);
        assert!(text.ends_with(&format!("\nudpForwarding:\n{forward}")), "{text}");
        assert!(!text.contains("tcpForwarding"), "{text}");
    }
}
