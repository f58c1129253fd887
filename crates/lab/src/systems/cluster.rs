//! `tunnel` as two nodes of one server, on a member of etcd. Visitors connect to the first node.
//! The client has its link with that node, or with the other node. Each daemon has one worker, and
//! each link has one carrier. etcd has no part in a request, so its processor time is not counted.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use testkit::stage::{run, tunnel};

use super::certificates::said;
use super::scene::{Scene, free};
use super::way::Way;

/// The names and the addresses of the nodes.
const NODES: [(&str, [u8; 4]); 2] = [("a", [127, 0, 0, 1]), ("b", [127, 0, 0, 2])];

/// The client has its link with the node of the visitors.
pub(super) fn own(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, 0, "tls")
}

/// The client has its link with the other node, and the nodes have links over `tls://`.
pub(super) fn hop(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, 1, "tls")
}

/// As [`hop`], over `quic://`.
pub(super) fn hop_quic(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, 1, "quic")
}

/// As [`hop`], over `tcp://`.
pub(super) fn hop_tcp(scene: &mut Scene<'_>) -> Result<()> {
    start(scene, 1, "tcp")
}

fn start(scene: &mut Scene<'_>, home: usize, scheme: &str) -> Result<()> {
    let binary = scene.site.tunnel.clone();
    let certs = ["generate", "certs", "--node", "a", "b", "--output"];
    said(&run(tunnel(&binary, &certs).arg(scene.dir)))?;
    let token = said(&run(&mut tunnel(&binary, &["generate", "token"])))?;
    let secret = said(&run(&mut tunnel(&binary, &["generate", "token"])))?;
    let (etcd, members) = (free(), free());
    let mut command = testkit::stage::etcd(scene.dir, [etcd.port(), members.port()]);
    scene.spawn_aside("etcd", &mut command)?;
    scene.wait_listening(etcd)?;
    let at = |address: [u8; 4]| SocketAddr::from((address, free().port()));
    let logins = NODES.map(|(_, address)| at(address));
    let files = Files { token: &token, secret: &secret, etcd, scheme, dir: scene.dir };
    let servers = [0, 1].map(|nth| files.node(nth, logins[nth], at(NODES[nth].1), &scene.ways));
    let client = files.client(logins[home], &scene.ways);
    for (text, (name, _)) in servers.iter().zip(NODES) {
        let file = scene.write(&format!("node-{name}.yaml"), text)?;
        let mut command = tunnel(&binary, &["server", "--config"]);
        scene.spawn(&format!("node {name}"), command.arg(file).env("HOME", scene.dir))?;
    }
    for login in logins {
        scene.wait_accepting(login)?;
    }
    let file = scene.write("client.yaml", &client)?;
    let mut command = tunnel(&binary, &["client", "--config"]);
    scene.spawn("client", command.arg(file).env("HOME", scene.dir))
}

/// The values that the files of the daemons share.
#[derive(Debug)]
struct Files<'a> {
    token: &'a str,
    /// The secret of the cluster.
    secret: &'a str,
    etcd: SocketAddr,
    /// The transport between the nodes.
    scheme: &'a str,
    dir: &'a Path,
}

impl Files<'_> {
    fn node(&self, nth: usize, login: SocketAddr, peers: SocketAddr, ways: &[Way]) -> String {
        let Self { token, secret, etcd, scheme, dir } = self;
        let (dir, ip, (name, _)) = (dir.display(), login.ip(), NODES[nth]);
        let ports = ways.iter().map(|way| format!("\"{}\"", way.entrance.port()));
        let ports = ports.collect::<Vec<_>>().join(", ");
        format!(
            "listen: [\"tcp://{login}\"]\npublic_bind: {ip}\nstate_dir: \"{dir}/state-{name}\"\n\
             control: \"{dir}/node-{name}.sock\"\nworkers: 1\nlog: {{ level: warn }}\n\
             clients:\n  - {{ name: bench, token: \"{token}\", allow: {{ tcp: [{ports}] }} }}\n\
             cluster:\n  name: bench\n  node: {name}\n  secret: \"{secret}\"\n  \
             directory: {{ etcd: \"http://{etcd}\" }}\n  \
             peers: {{ listen: \"{scheme}://{peers}\", ca: ca.crt, cert: node-{name}.crt, \
             key: node-{name}.key }}\n"
        )
    }

    fn client(&self, login: SocketAddr, ways: &[Way]) -> String {
        let Self { token, dir, .. } = self;
        let dir = dir.display();
        let mut text = format!(
            "servers: [\"tcp://{login}\"]\nname: bench\ntoken: \"{token}\"\nworkers: 1\n\
             state_dir: \"{dir}/state-client\"\ncontrol: \"{dir}/client.sock\"\n\
             connections: 1\nlog: {{ level: warn }}\nservices:\n"
        );
        for Way { name, entrance, target } in ways {
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "  - {{ name: {name}, target: \"tcp://{target}\", public: \"tcp://:{}\" }}",
                entrance.port()
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
    fn the_files_of_the_nodes_and_of_the_client_fit_together() {
        let [etcd, login, peers] =
            [1, 7000, 7100].map(|port| SocketAddr::from(([127, 0, 0, 2], port)));
        let (token, secret) = ("token", "secret");
        let files = Files { token, secret, etcd, scheme: "quic", dir: Path::new("/d") };
        let ways = [way("web", 8, 9)];
        let node = files.node(1, login, peers, &ways);
        assert!(node.starts_with("listen: [\"tcp://127.0.0.2:7000\"]\npublic_bind: 127.0.0.2\n"));
        assert!(node.contains("allow: { tcp: [\"8\"] }") && node.contains("  node: b\n"), "{node}");
        assert!(node.contains("listen: \"quic://127.0.0.2:7100\", ca: ca.crt"), "{node}");
        let client = files.client(login, &ways);
        assert!(client.contains("servers: [\"tcp://127.0.0.2:7000\"]"), "{client}");
        assert!(client.ends_with("target: \"tcp://127.0.0.1:9\", public: \"tcp://:8\" }\n"));
    }
}
