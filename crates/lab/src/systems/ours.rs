//! `tunnel` itself, with one worker and one link per side. The load, the origins and both daemons
//! share a few cores, so more threads would only compete, and figures per worker show the capacity
//! of one core.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use testkit::stage::{Scheme, run, tunnel};

use super::certificates::{certificates, said};
use super::nginx;
use super::running::Login;
use super::scene::{Scene, free};
use super::visitors::HOST;
use super::way::Way;

pub(super) fn tcp(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, "tcp")
}

pub(super) fn tls(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, "tls")
}

pub(super) fn ws(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, "ws")
}

pub(super) fn wss(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, "wss")
}

pub(super) fn quic(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, "quic")
}

pub(super) fn kcp(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, "kcp")
}

/// `kcp://` without forward error correction.
pub(super) fn kcp_plain(scene: &mut Scene<'_>) -> Result<()> {
    of_kcp(scene, "kcp: { fec: off }\n")
}

/// `kcp://` with the ratio of kcptun.
pub(super) fn kcp_fixed(scene: &mut Scene<'_>) -> Result<()> {
    of_kcp(scene, "kcp: { fec: 10/3 }\n")
}

fn of_kcp(scene: &mut Scene<'_>, settings: &str) -> Result<()> {
    let address = free();
    let url = format!("kcp://{address}");
    certificates(scene)?;
    let binary = scene.site.tunnel.clone();
    launch_with(scene, &binary, address, (&url, &url), Public::Port, settings)
}

/// A visitor of an `http://` name. The server follows the boundaries of requests and responses.
pub(super) fn http_name(scene: &mut Scene<'_>) -> Result<()> {
    by_name(scene, Public::Http { pass_through: false })
}

/// As [`http_name`], without a look at later requests.
pub(super) fn http_pass(scene: &mut Scene<'_>) -> Result<()> {
    by_name(scene, Public::Http { pass_through: true })
}

/// A visitor of an `https://` name. TLS 1.3 ends at the server.
pub(super) fn https_name(scene: &mut Scene<'_>) -> Result<()> {
    certificates(scene)?;
    by_name(scene, Public::Https)
}

/// As [`tcp`], with listeners of the client whose targets the server dials.
pub(super) fn forward(scene: &mut Scene<'_>) -> Result<()> {
    of_client(scene, Public::Forward)
}

/// As [`forward`], with visitors that name the target in the greeting of SOCKS5.
pub(super) fn socks5(scene: &mut Scene<'_>) -> Result<()> {
    of_client(scene, Public::Socks)
}

fn of_client(scene: &mut Scene<'_>, public: Public) -> Result<()> {
    let address = free();
    let url = format!("tcp://{address}");
    launch(scene, &scene.site.tunnel.clone(), address, (&url, &url), public)
}

fn by_name(scene: &mut Scene<'_>, public: Public) -> Result<()> {
    let address = free();
    let url = format!("tcp://{address}");
    launch(scene, &scene.site.tunnel.clone(), address, (&url, &url), public)
}

/// nginx ends TLS 1.3 in front of the service of [`tcp`], the way to HTTPS without `https://`
/// names. nginx is one process, as the server of [`https_name`] has one worker, and has the same
/// certificate.
pub(super) fn nginx_tls(scene: &mut Scene<'_>) -> Result<()> {
    certificates(scene)?;
    let fronts = scene.ways.clone();
    for way in &mut scene.ways {
        way.entrance = free();
    }
    tcp(scene)?;
    let services = scene.ways.clone();
    scene.ways = fronts;
    for (front, service) in scene.ways.clone().iter().zip(services) {
        nginx::start_tls(scene, front.entrance, service.entrance)?;
    }
    Ok(())
}

/// As [`tcp`], with the build for glibc.
pub(super) fn glibc_tcp(scene: &mut Scene<'_>) -> Result<()> {
    of_glibc(scene, "tcp")
}

pub(super) fn glibc_tls(scene: &mut Scene<'_>) -> Result<()> {
    of_glibc(scene, "tls")
}

pub(super) fn glibc_wss(scene: &mut Scene<'_>) -> Result<()> {
    of_glibc(scene, "wss")
}

pub(super) fn glibc_quic(scene: &mut Scene<'_>) -> Result<()> {
    of_glibc(scene, "quic")
}

pub(super) fn glibc_kcp(scene: &mut Scene<'_>) -> Result<()> {
    of_glibc(scene, "kcp")
}

fn of_glibc(scene: &mut Scene<'_>, scheme: &str) -> Result<()> {
    start_with(scene, &scene.site.glibc.clone(), scheme)
}

/// As [`tcp`], with the binary that `TUNNEL_FORMER` names.
pub(super) fn former_tcp(scene: &mut Scene<'_>) -> Result<()> {
    former(scene, "tcp")
}

pub(super) fn former_tls(scene: &mut Scene<'_>) -> Result<()> {
    former(scene, "tls")
}

pub(super) fn former_ws(scene: &mut Scene<'_>) -> Result<()> {
    former(scene, "ws")
}

pub(super) fn former_quic(scene: &mut Scene<'_>) -> Result<()> {
    former(scene, "quic")
}

fn former(scene: &mut Scene<'_>, scheme: &str) -> Result<()> {
    let binary = scene.site.former.clone().context("TUNNEL_FORMER is not set")?;
    start_with(scene, &binary, scheme)
}

/// A `ws://` server behind nginx, and a client that connects to nginx by `wss://`.
pub(super) fn behind_nginx(scene: &mut Scene<'_>) -> Result<()> {
    let address = free();
    certificates(scene)?;
    let front = nginx::start(scene, &[("tunnel", address)])?;
    let (listen, dial) = (format!("ws://{address}/tunnel"), format!("wss://{front}/tunnel"));
    launch(scene, &scene.site.tunnel.clone(), address, (&listen, &dial), Public::Port)
}

fn start(scene: &mut Scene<'_>, scheme: &str) -> Result<()> {
    start_with(scene, &scene.site.tunnel.clone(), scheme)
}

fn start_with(scene: &mut Scene<'_>, binary: &Path, scheme: &str) -> Result<()> {
    let address = free();
    let url = format!("{scheme}://{address}");
    if has_tls(&url) {
        certificates(scene)?;
    }
    launch(scene, binary, address, (&url, &url), Public::Port)
}

/// Starts a server that listens at `address` with the URL `listen`, and a client that dials the URL
/// `dial`.
fn launch(
    scene: &mut Scene<'_>,
    binary: &Path,
    address: SocketAddr,
    urls: (&str, &str),
    public: Public,
) -> Result<()> {
    launch_with(scene, binary, address, urls, public, "")
}

/// As [`launch`]. `settings`: lines for both files.
fn launch_with(
    scene: &mut Scene<'_>,
    binary: &Path,
    address: SocketAddr,
    (listen, dial): (&str, &str),
    public: Public,
    settings: &str,
) -> Result<()> {
    let token = said(&run(&mut tunnel(binary, &["generate", "token"])))?;
    scene.login = Some(Login {
        server: dial.to_owned(),
        token_file: scene.write("token", &token)?,
        authority: has_tls(dial).then(|| scene.dir.join("ca.crt")),
    });
    let end = End { listen, dial, token: &token, dir: scene.dir, public };
    let server = end.server(&scene.ways) + &end.others(scene.clients) + settings;
    let server = scene.write("server.yaml", &server)?;
    let client = scene.write("client.yaml", &(end.client(&scene.ways) + settings))?;
    for (role, file) in [("server", server), ("client", client)] {
        let mut command = tunnel(binary, &[role, "--config"]);
        scene.spawn(role, command.arg(file).env("HOME", scene.dir))?;
        if role == "server" {
            // A client that starts too early waits before its second attempt.
            scene.wait_listening(address)?;
        }
    }
    Ok(())
}

fn has_tls(url: &str) -> bool {
    let scheme = url.split_once("://").and_then(|(name, _)| Scheme::named(name));
    scheme.is_some_and(|scheme| scheme.tls)
}

/// Where the services are published.
#[derive(Clone, Copy, Debug)]
enum Public {
    /// At a port each.
    Port,
    /// At the host [`HOST`], behind the door of HTTP.
    Http { pass_through: bool },
    /// At the host [`HOST`], behind the door of TLS.
    Https,
    /// At a listener of the client each.
    Forward,
    /// At a listener for SOCKS5 of the client each.
    Socks,
}

/// The ports of the ways of one kind, as a list of rights.
fn ports(ways: &[Way], udp: bool) -> String {
    let ways = ways.iter().filter(|way| way.is_udp() == udp);
    let ports = ways.map(|way| format!("\"{}\"", way.entrance.port()));
    format!("[{}]", ports.collect::<Vec<_>>().join(", "))
}

/// The values that both files share.
#[derive(Debug)]
struct End<'a> {
    /// The server's listener.
    listen: &'a str,
    /// The URL where the client finds the server.
    dial: &'a str,
    token: &'a str,
    dir: &'a Path,
    public: Public,
}

impl End<'_> {
    fn server(&self, ways: &[Way]) -> String {
        let Self { listen, token, dir, public, .. } = self;
        let tls = if has_tls(listen) { "tls: { cert: server.crt, key: server.key }\n" } else { "" };
        let doors: Vec<_> = ways.iter().map(|way| format!("\"{}\"", way.entrance)).collect();
        let doors = doors.join(", ");
        let (doors, allow) = match public {
            Public::Port => {
                let mut allow = format!("tcp: {}", ports(ways, false));
                if ways.iter().any(Way::is_udp) {
                    // Writing into a string cannot fail.
                    let _ = write!(allow, ", udp: {}", ports(ways, true));
                }
                (String::new(), allow)
            }
            Public::Forward | Public::Socks => {
                let targets = ways.iter().map(|way| format!("\"{}\"", way.target));
                let targets = targets.collect::<Vec<_>>().join(", ");
                (String::new(), format!("forward: [{targets}]"))
            }
            Public::Http { pass_through } => (
                format!("http: {{ listen: [{doors}] }}\n"),
                format!("http: {HOST}, pass_through: {pass_through}"),
            ),
            Public::Https => (
                format!(
                    "tls_routes:\n  listen: [{doors}]\n  min_version: \"1.3\"\n  \
                     certificates: [{{ cert: server.crt, key: server.key }}]\n"
                ),
                format!("http: {HOST}"),
            ),
        };
        format!(
            "listen: [\"{listen}\"]\n\
             {tls}\
             {doors}\
             public_bind: 127.0.0.1\n\
             state_dir: \"{dir}/state\"\n\
             control: \"{dir}/server.sock\"\n\
             workers: 1\n\
             log: {{ level: warn }}\n\
             clients:\n  - {{ name: bench, token: \"{token}\", allow: {{ {allow} }} }}\n",
            dir = dir.display(),
        )
    }

    /// Configuration of `count` additional clients of the server.
    fn others(&self, count: u32) -> String {
        let token = self.token;
        (0..count).map(|n| format!("  - {{ name: c{n}, token: \"{token}\" }}\n")).collect()
    }

    fn client(&self, ways: &[Way]) -> String {
        let Self { dial, token, dir, .. } = self;
        let tls = if has_tls(dial) { "tls: { ca: ca.crt }\n" } else { "" };
        let mut text = format!(
            "servers: [\"{dial}\"]\n\
             {tls}\
             name: bench\n\
             token: \"{token}\"\n\
             state_dir: \"{dir}/state-client\"\n\
             control: \"{dir}/client.sock\"\n\
             workers: 1\n\
             connections: 1\n\
             log: {{ level: warn }}\n",
            dir = dir.display(),
        );
        text.push_str(match self.public {
            Public::Forward | Public::Socks => "forwards:\n",
            Public::Port | Public::Http { .. } | Public::Https => "services:\n",
        });
        for way @ Way { name, entrance, target } in ways {
            let scheme = way.scheme();
            // Writing into a string cannot fail.
            let public = match self.public {
                Public::Forward => {
                    let _ = writeln!(
                        text,
                        "  - {{ listen: \"tcp://{entrance}\", target: \"tcp://{target}\" }}"
                    );
                    continue;
                }
                Public::Socks => {
                    let _ = writeln!(text, "  - {{ listen: \"socks5://{entrance}\" }}");
                    continue;
                }
                Public::Port => format!("\"{scheme}://:{}\"", entrance.port()),
                Public::Http { pass_through: false } => format!("\"http://{HOST}\""),
                Public::Http { pass_through: true } => {
                    format!("\"http://{HOST}\", pass_through: true")
                }
                // The bytes inside the TLS are carried as they are. The default makes the server
                // write each request anew, and has no figure here.
                Public::Https => format!("\"https://{HOST}\", forwarded: false"),
            };
            let _ = writeln!(
                text,
                "  - {{ name: {name}, target: \"{scheme}://{target}\", public: {public} }}"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::way::tests::way;

    #[test]
    fn the_files_of_both_ends_fit_together() {
        let end = End {
            listen: "ws://127.0.0.1:7000/t",
            dial: "wss://127.0.0.1:7443/t",
            token: "secret",
            dir: Path::new("/d"),
            public: Public::Port,
        };
        let ways = [way("web", 1, 2), way("bulk", 3, 4)];
        let (server, client) = (end.server(&ways) + &end.others(2), end.client(&ways));
        assert!(server.ends_with("- { name: c1, token: \"secret\" }\n"), "{server}");
        for text in [&server, &client] {
            assert!(text.contains("\nworkers: 1\n") && text.contains("\"secret\""), "{text}");
        }
        assert!(server.starts_with("listen: [\"ws://127.0.0.1:7000/t\"]\npublic"), "{server}");
        assert!(client.contains("7443/t\"]\ntls: { ca: ca.crt }\n"), "{client}");
        assert!(server.contains("allow: { tcp: [\"1\", \"3\"] }"), "{server}");
        assert!(client.contains("\nconnections: 1\n"), "{client}");
        assert!(
            client.ends_with(
                "  - { name: bulk, target: \"tcp://127.0.0.1:4\", public: \"tcp://:3\" }\n"
            ),
            "{client}"
        );
    }

    #[test]
    fn datagrams_have_rights_and_a_scheme_of_their_own() {
        let url = "tcp://127.0.0.1:7000";
        let end = |public| End { listen: url, dial: url, token: "t", dir: Path::new("/d"), public };
        let (port, ways) = (end(Public::Port), [way("web", 1, 2), way("udp", 3, 4)]);
        let (server, client) = (port.server(&ways), port.client(&ways));
        assert!(server.contains("allow: { tcp: [\"1\"], udp: [\"3\"] }"), "{server}");
        let service = "{ name: udp, target: \"udp://127.0.0.1:4\", public: \"udp://:3\" }\n";
        assert!(client.ends_with(service), "{client}");
    }

    #[test]
    fn forwards_stand_at_the_client() {
        let url = "tcp://127.0.0.1:7000";
        let end = |public| End { listen: url, dial: url, token: "t", dir: Path::new("/d"), public };
        let ways = [way("sink", 1, 2)];
        for (public, forward) in [
            (Public::Forward, "{ listen: \"tcp://127.0.0.1:1\", target: \"tcp://127.0.0.1:2\" }"),
            (Public::Socks, "{ listen: \"socks5://127.0.0.1:1\" }"),
        ] {
            let (server, client) = (end(public).server(&ways), end(public).client(&ways));
            assert!(server.contains("allow: { forward: [\"127.0.0.1:2\"] }"), "{server}");
            assert!(client.ends_with(&format!("\nforwards:\n  - {forward}\n")), "{client}");
        }
    }

    #[test]
    fn a_name_has_a_door_a_right_and_a_service() {
        let files = |public| {
            let url = "tcp://127.0.0.1:7000";
            let end = End { listen: url, dial: url, token: "t", dir: Path::new("/d"), public };
            let ways = [way("web", 1, 2)];
            (end.server(&ways), end.client(&ways))
        };
        let (server, client) = files(Public::Http { pass_through: true });
        assert!(server.contains("\nhttp: { listen: [\"127.0.0.1:1\"] }\n"), "{server}");
        assert!(
            server.contains("allow: { http: bench.example.com, pass_through: true }"),
            "{server}"
        );
        assert!(
            client.ends_with("\"http://bench.example.com\", pass_through: true }\n"),
            "{client}"
        );
        let (server, client) = files(Public::Http { pass_through: false });
        assert!(server.contains("pass_through: false }"), "{server}");
        assert!(client.ends_with("public: \"http://bench.example.com\" }\n"), "{client}");
        let (server, client) = files(Public::Https);
        assert!(server.contains("\ntls_routes:\n  listen: [\"127.0.0.1:1\"]\n"), "{server}");
        assert!(server.contains("cert: server.crt") && !server.contains("\ntls:"), "{server}");
        assert!(
            client.ends_with("\"https://bench.example.com\", forwarded: false }\n"),
            "{client}"
        );
    }
}
