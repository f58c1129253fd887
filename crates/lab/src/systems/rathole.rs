//! rathole: no mux; each visitor gets a connection from a warm pool. `nodelay`, which its
//! documentation recommends for latency, is its default. There is no heartbeat and no log line for
//! a visitor.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;
use testkit::stage::run;

use super::certificates::{certificates, said};
use super::scene::{Scene, free};
use super::way::Way;
use crate::peers::program;

/// The password of a key that lives as long as a run of the bench.
const PASSWORD: &str = "bench";

pub(super) fn tcp(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, ["type = \"tcp\"\n".to_owned(), "type = \"tcp\"\n".to_owned()])
}

pub(super) fn tls(scene: &mut Scene<'_>) -> Result<()> {
    certificates(scene)?;
    let mut pack = Command::new("openssl");
    pack.current_dir(scene.dir).args(["pkcs12", "-export", "-in", "server.crt"]);
    pack.args(["-inkey", "server.key", "-out", "server.pfx", "-passout"]);
    said(&run(pack.arg(format!("pass:{PASSWORD}"))))?;
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

/// `transport`: the lines after the head of that table in the server's file and in the client's
/// file.
fn start(scene: &mut Scene<'_>, transport: [String; 2]) -> Result<()> {
    let program = program(scene.site, "rathole")?;
    let between = free();
    let [server, client] = config(&scene.ways, between, &transport);
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

/// The server's file and the client's.
fn config(ways: &[Way], between: SocketAddr, transport: &[String; 2]) -> [String; 2] {
    let mut files = ["server", "client"].map(|role| {
        let key = if role == "server" { "bind_addr" } else { "remote_addr" };
        format!("[{role}]\n{key} = \"{between}\"\ndefault_token = \"bench\"\n")
    });
    let [server, client] = &mut files;
    // Writing into a string cannot fail.
    let _ = write!(server, "[server.transport]\n{}", transport[0]);
    let _ = write!(client, "[client.transport]\n{}", transport[1]);
    for Way { name, entrance, target } in ways {
        let _ = write!(server, "[server.services.{name}]\nbind_addr = \"{entrance}\"\n");
        let _ = write!(client, "[client.services.{name}]\nlocal_addr = \"{target}\"\n");
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::way::tests::way;

    #[test]
    fn a_service_is_bound_by_the_server_and_local_to_the_client() {
        let transport = ["type = \"tcp\"\n", "type = \"tcp\"\n"].map(str::to_owned);
        let between = ([127, 0, 0, 1], 9).into();
        let [server, client] = config(&[way("web", 1, 2)], between, &transport);
        assert_eq!(
            server,
            "[server]\nbind_addr = \"127.0.0.1:9\"\ndefault_token = \"bench\"\n\
             [server.transport]\ntype = \"tcp\"\n\
             [server.services.web]\nbind_addr = \"127.0.0.1:1\"\n"
        );
        assert!(client.starts_with("[client]\nremote_addr = \"127.0.0.1:9\"\n"), "{client}");
        assert!(
            client.ends_with("[client.services.web]\nlocal_addr = \"127.0.0.1:2\"\n"),
            "{client}"
        );
    }
}
