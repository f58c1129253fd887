//! QMux: a QUIC stream for each visitor, mutual TLS, and a listener and a client process per
//! service. Its default limit of 100 streams is raised, because visitors beyond the limit wait. Set
//! up from its documentation; not run on the machine where this module was written.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;
use testkit::stage::run;

use super::certificates::said;
use super::scene::{Scene, free};
use super::way::Way;
use crate::peers::program;

/// More visitors than any load has at the same time.
const STREAMS: u32 = 100_000;

pub(super) fn start(scene: &mut Scene<'_>) -> Result<()> {
    let program = program(scene.site, "qmux")?;
    let mut certs = Command::new(&program);
    certs.args(["generate", "certs", "-s", "localhost", "-o"]).arg(scene.dir);
    said(&run(&mut certs))?;
    let ways: Vec<_> = scene.ways.iter().map(|way| (*way, free())).collect();
    let file = scene.write("server.yaml", &server(&ways))?;
    scene.spawn("server", Command::new(&program).args(["run", "server", "-c"]).arg(file))?;
    for (way, between) in ways {
        let name = format!("client-{}", way.name);
        let file = scene.write(&format!("{name}.yaml"), &client(&way, between))?;
        scene.spawn(&name, Command::new(&program).args(["run", "client", "-c"]).arg(file))?;
    }
    Ok(())
}

fn server(ways: &[(Way, SocketAddr)]) -> String {
    let listeners = ways.iter().map(|(way, between)| {
        format!(
            "  - quic_addr: \"{between}\"\n    traffic_addr: \"{}\"\n    protocol: tcp\n    \
             maxincomingstreams: {STREAMS}\n",
            way.entrance
        )
    });
    format!(
        "listeners:\n{}\
         auth: {{ method: mtls, ca_cert_file: ca.crt }}\n\
         tls: {{ server_cert_file: server.crt, server_key_file: server.key }}\n",
        listeners.collect::<String>()
    )
}

fn client(way: &Way, between: SocketAddr) -> String {
    format!(
        "server: {{ servers: [ {{ address: \"{between}\", server_name: localhost }} ] }}\n\
         local: {{ host: {}, port: {} }}\n\
         quic: {{ maxincomingstreams: {STREAMS} }}\n\
         tls: {{ ca_cert_file: ca.crt, client_cert_file: client.crt, client_key_file: client.key }}\n",
        way.target.ip(),
        way.target.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::way::tests::way;

    #[test]
    fn each_service_has_a_listener_and_a_client() {
        let between = ([127, 0, 0, 1], 9).into();
        let text = server(&[(way("web", 1, 2), between)]);
        assert!(text.contains("quic_addr: \"127.0.0.1:9\"\n    traffic_addr: \"127.0.0.1:1\""));
        let text = client(&way("web", 1, 2), between);
        assert!(text.contains("{ address: \"127.0.0.1:9\", server_name: localhost }"), "{text}");
        assert!(text.contains("local: { host: 127.0.0.1, port: 2 }"), "{text}");
    }
}
