//! rathole: no mux, a connection of its own for each visitor out of a warm pool. `nodelay`, which its
//! documentation recommends for latency, is its default; no heartbeat and no log line for a visitor.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;
use testkit::stage::run;

use super::ours;
use super::scene::{Scene, Way, free};
use crate::peers::program;

/// Protects a key that lives as long as a run of the bench.
const PASSWORD: &str = "bench";

pub(super) fn tcp(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, ["type = \"tcp\"\n".to_owned(), "type = \"tcp\"\n".to_owned()])
}

pub(super) fn tls(scene: &mut Scene<'_>) -> Result<()> {
    ours::certificates(scene)?;
    let mut pack = Command::new("openssl");
    pack.current_dir(scene.dir).args(["pkcs12", "-export", "-in", "server.crt"]);
    pack.args(["-inkey", "server.key", "-out", "server.pfx", "-passout"]);
    ours::said(&run(pack.arg(format!("pass:{PASSWORD}"))))?;
    let server = format!(
        "type = \"tls\"\n\
         [server.transport.tls]\n\
         pkcs12 = \"server.pfx\"\n\
         pkcs12_password = \"{PASSWORD}\"\n"
    );
    let client = "type = \"tls\"\n\
                  [client.transport.tls]\n\
                  trusted_root = \"ca.crt\"\n\
                  hostname = \"localhost\"\n";
    start(scene, [server, client.to_owned()])
}

/// `transport`: what follows the head of that table in the server's file and in the client's.
fn start(scene: &mut Scene<'_>, transport: [String; 2]) -> Result<()> {
    let program = program(scene.site, "rathole")?;
    let between = free();
    let [server, client] = transport;
    let services = |end: fn(&Way) -> String| scene.ways.iter().map(end).collect::<String>();
    let server = format!(
        "[server]\nbind_addr = \"{between}\"\ndefault_token = \"bench\"\n\
         [server.transport]\n{server}{}",
        services(|way| table("server", way.name, "bind_addr", way.entrance)),
    );
    let client = format!(
        "[client]\nremote_addr = \"{between}\"\ndefault_token = \"bench\"\n\
         [client.transport]\n{client}{}",
        services(|way| table("client", way.name, "local_addr", way.target)),
    );
    for (name, text) in [("server", server), ("client", client)] {
        let file = scene.write(&format!("{name}.toml"), &text)?;
        let mut command = Command::new(&program);
        command.arg(format!("--{name}")).arg(file).env("RUST_LOG", "warn");
        scene.spawn(name, &mut command)?;
        if name == "server" {
            scene.wait_listening(between)?;
        }
    }
    Ok(())
}

/// A service of one side.
fn table(role: &str, name: &str, key: &str, address: SocketAddr) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write!(text, "[{role}.services.{name}]\n{key} = \"{address}\"\n");
    text
}
