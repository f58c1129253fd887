//! `tunnel` with private services: the client of the origins, and a visitor client whose forwards
//! are the entrances. Both log in at one server, with one worker and one link each.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use testkit::stage::{run, tunnel};

use super::certificates::{certificates, said};
use super::scene::{Scene, free};
use super::way::Way;

/// From client to client, by QUIC. The relayed carrier stands by.
pub(super) fn direct(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, &scene.site.tunnel.clone(), "direct")
}

/// From client to client, by data channels of WebRTC, which the static binary does not have.
pub(super) fn webrtc(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, &scene.site.glibc.clone(), "webrtc")
}

/// Through the server, which carries TLS of the two clients inside TLS of each link.
pub(super) fn relayed(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, &scene.site.tunnel.clone(), "relay")
}

fn start(scene: &mut Scene<'_>, binary: &Path, way: &str) -> Result<()> {
    certificates(scene)?;
    let token = said(&run(&mut tunnel(binary, &["generate", "token"])))?;
    let files = Files { server: free(), token: &token, way, dir: scene.dir };
    let all = [
        ("server", "server", files.server()),
        ("client", "client", files.publisher(&scene.ways)),
        ("visitor", "client", files.visitor(&scene.ways)),
    ];
    for (name, role, text) in all {
        let file = scene.write(&format!("{name}.yaml"), &text)?;
        let mut command = tunnel(binary, &[role, "--config"]);
        scene.spawn(name, command.arg(file).env("HOME", scene.dir))?;
        if role == "server" {
            // A client that starts too early waits before its second attempt.
            scene.wait_listening(files.server)?;
        }
    }
    Ok(())
}

/// The configuration of the three daemons.
#[derive(Debug)]
struct Files<'a> {
    server: SocketAddr,
    token: &'a str,
    /// `p2p` of the forwards.
    way: &'a str,
    dir: &'a Path,
}

impl Files<'_> {
    fn own(&self, name: &str) -> String {
        let dir = self.dir.display();
        format!(
            "state_dir: \"{dir}/state-{name}\"\ncontrol: \"{dir}/{name}.sock\"\nworkers: 1\n\
             log: {{ level: warn }}\n"
        )
    }

    fn server(&self) -> String {
        let Self { server, token, .. } = self;
        format!(
            "listen: [\"tls://{server}\"]\ntls: {{ cert: server.crt, key: server.key }}\n{}clients:\n  \
             - {{ name: bench, token: \"{token}\" }}\n  \
             - {{ name: visitor, token: \"{token}\", allow: {{ visit: \"bench/*\" }} }}\n",
            self.own("server")
        )
    }

    fn client(&self, name: &str) -> String {
        let Self { server, token, .. } = self;
        format!(
            "servers: [\"tls://{server}\"]\ntls: {{ ca: ca.crt }}\nname: {name}\ntoken: \"{token}\"\n\
             connections: 1\n{}",
            self.own(name)
        )
    }

    fn publisher(&self, ways: &[Way]) -> String {
        let token = self.token;
        let mut text = self.client("bench") + "services:\n";
        for Way { name, target, .. } in ways {
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "  - {{ name: {name}, target: \"tcp://{target}\", public: private, \
                 visitors: [{{ name: visitor, token: \"{token}\" }}] }}"
            );
        }
        text
    }

    fn visitor(&self, ways: &[Way]) -> String {
        let Self { token, way: p2p, .. } = self;
        let mut text = self.client("visitor") + "forwards:\n";
        for Way { name, entrance, .. } in ways {
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "  - {{ listen: \"tcp://{entrance}\", target: \"service://bench/{name}\", \
                 token: \"{token}\", p2p: {p2p} }}"
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
    fn the_files_of_the_three_ends_fit_together() {
        let server = SocketAddr::from(([127, 0, 0, 1], 7000));
        let files = Files { server, token: "secret", way: "relay", dir: Path::new("/d") };
        let ways = [way("sink", 1, 2)];
        assert!(files.server().contains("listen: [\"tls://127.0.0.1:7000\"]\n"));
        assert!(files.server().contains("name: visitor, token: \"secret\", allow: { visit:"));
        let publisher = files.publisher(&ways);
        assert!(publisher.contains("name: sink, target: \"tcp://127.0.0.1:2\", public: private"));
        let visitor = files.visitor(&ways);
        assert!(
            visitor.contains("listen: \"tcp://127.0.0.1:1\", target: \"service://bench/sink\"")
        );
        assert!(visitor.ends_with("token: \"secret\", p2p: relay }\n"), "{visitor}");
    }
}
