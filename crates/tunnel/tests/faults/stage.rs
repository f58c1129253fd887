//! A cluster in a cage: three members of etcd, some nodes, balancers in front of them and clients,
//! each machine with a network namespace of its own at one bridge. The cage has the visitors.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::cage::{Lan, on};
use testkit::judge::Served;
use testkit::stage::{Daemon, LONG, binary, program, run, tunnel, wait};

use crate::clients::{CLIENTS, Clients, EDGE, SHARED, start_on};
use crate::etcd::{Etcd, MEMBERS};
use crate::history::{History, KILL};
use crate::visitor::{HTTP, KINDS, TLS, Wanted, visit};

/// All names of nodes.
pub(crate) const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The host of the balancers.
const FRONT: &str = "front";

/// The port of haproxy in front of all nodes, and that of `tunnel proxy`.
const HAPROXY: u16 = 8_001;
const PROXY: u16 = 8_002;

/// A secret of the cluster.
const SECRET: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

pub(crate) struct Stage {
    pub(crate) lan: Lan,
    pub(crate) etcd: Etcd,
    pub(crate) history: Arc<History>,
    nodes: BTreeMap<&'static str, Option<Daemon>>,
    fronts: Vec<Daemon>,
    pub(crate) clients: Arc<Clients>,
    dir: PathBuf,
}

/// The folder of a scenario: logs and the history stay there after the run.
fn folder(scenario: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(scenario);
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    dir
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
    }
}

impl Stage {
    /// A cluster of so many nodes, without clients.
    pub(crate) fn new(scenario: &str, nodes: usize, etcd_options: &[&str]) -> Self {
        let names = &NODES[..nodes];
        let lan = Lan::new(&[&MEMBERS[..], names, &[EDGE, FRONT]].concat());
        let dir = folder(scenario);
        let etcd = Etcd::start(&lan, &dir, etcd_options);
        let generate = |words: &[&str]| {
            let output = run(tunnel(&binary(), &["generate"]).args(words).current_dir(&dir));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let addresses: Vec<_> = names.iter().map(|node| lan.address(node).to_string()).collect();
        let mut words = vec!["certs", "-o", "certs", "-s"];
        words.extend(addresses.iter().map(String::as_str));
        words.push("--node");
        words.extend(names);
        generate(&words);
        let clients = Clients {
            dir: dir.clone(),
            tokens: CLIENTS.map(|(client, _)| (client, generate(&["token"]))).into(),
            addresses: names.iter().map(|&node| (node, lan.address(node))).collect(),
            next: AtomicU64::new(1),
        };
        let clients = Arc::new(clients);
        let nodes = names.iter().map(|&node| (node, None)).collect();
        let (history, fronts) = (Arc::new(History::new()), Vec::new());
        let mut stage = Self { lan, etcd, history, nodes, fronts, clients, dir };
        for node in names {
            stage.write_node(node);
            stage.start_node(node);
        }
        stage.wait_nodes();
        stage.start_fronts();
        stage
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write_node(&self, node: &str) {
        let (ip, dir) = (self.lan.address(node), self.dir.display());
        let client = |(name, wanted): &(&'static str, Option<Wanted>)| {
            let all: Vec<_> = wanted.iter().chain([&SHARED]).collect();
            let names: Vec<_> = all.iter().map(|it| it.name).collect();
            let ports: Vec<_> = all.iter().map(|it| it.port.to_string()).collect();
            let (names, ports) = (names.join(", "), ports.join(", "));
            format!(
                "  - {{ name: {name}, token: {}, allow: {{ tcp: [{ports}], udp: [{ports}], \
                 http: [{names}], tls: [{names}] }} }}\n",
                self.clients.tokens[name]
            )
        };
        let clients: String = CLIENTS.iter().map(client).collect();
        let text = format!(
            "listen: 'tls://{ip}:7000'\ntls: {{ cert: certs/server.crt, key: certs/server.key }}\n\
             public_bind: {ip}\nhttp: {{ listen: '{ip}:{HTTP}' }}\n\
             tls_routes: {{ listen: '{ip}:{TLS}' }}\n\
             state_dir: {dir}/{node}\ncontrol: {dir}/{node}.sock\nclients:\n{clients}\
             cluster:\n  name: test\n  node: {node}\n  zone: {node}\n  secret: {SECRET}\n  \
             clients: 'tls://{ip}:7000'\n  directory: {{ etcd: [{}] }}\n  \
             peers: {{ listen: 'tls://{ip}:7100', ca: certs/ca.crt, \
             cert: certs/node-{node}.crt, key: certs/node-{node}.key }}\n",
            self.etcd.urls(),
        );
        fs::write(self.file(&format!("{node}.yaml")), text).unwrap();
    }

    /// Starts a node, again if it ran before.
    pub(crate) fn start_node(&mut self, node: &'static str) {
        let daemon = start_on(node, &self.dir, "server", node);
        self.nodes.insert(node, Some(daemon));
    }

    /// Ends a node without a word.
    pub(crate) fn kill_node(&mut self, node: &'static str) {
        self.history.begin(Some(node), KILL);
        if let Some(Some(mut daemon)) = self.nodes.insert(node, None) {
            daemon.kill();
        }
        self.history.done();
    }

    pub(crate) fn signal_node(&self, node: &str, signal: Signal) {
        self.nodes[node].as_ref().unwrap().signal(signal);
    }

    /// The nodes whose process runs.
    pub(crate) fn alive(&self) -> Vec<&'static str> {
        self.nodes.iter().filter(|(_, daemon)| daemon.is_some()).map(|(node, _)| *node).collect()
    }

    /// What `tunnel status --json` says.
    pub(crate) fn status(&self, name: &str) -> Option<Value> {
        let mut command = tunnel(&binary(), &["status", "--json", "--control"]);
        let output = run(command.arg(self.file(&format!("{name}.sock"))));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until each node is a member, and knows exactly the nodes that run.
    pub(crate) fn wait_nodes(&self) {
        let alive = self.alive();
        for node in &alive {
            wait(&format!("node {node} to know the nodes {alive:?}"), LONG, || {
                let status = self.status(node)?;
                let known = status["cluster"]["nodes"].as_array()?;
                (status["cluster"]["member"] == true && known.len() == alive.len()).then_some(())
            });
        }
    }

    /// The nodes at which a client has links.
    pub(crate) fn homes(&self, client: &str) -> Vec<&'static str> {
        let has_links = |node: &&'static str| {
            self.status(node).is_some_and(|status| {
                let sessions = status["sessions"].as_array().cloned().unwrap_or_default();
                sessions.iter().any(|session| {
                    let links = session["links"].as_array();
                    let is_up =
                        links.is_some_and(|links| links.iter().any(|it| it["state"] == "up"));
                    session["peer"] == client && is_up
                })
            })
        };
        self.alive().into_iter().filter(has_links).collect()
    }

    /// Waits until a client has so many homes.
    pub(crate) fn wait_homes(&self, client: &str, count: usize) -> Vec<&'static str> {
        wait(&format!("{count} homes of {client}"), LONG, || {
            let homes = self.homes(client);
            (homes.len() == count).then_some(homes)
        })
    }

    /// haproxy and `tunnel proxy`, which lead visitors of names to all nodes.
    fn start_fronts(&mut self) {
        let ip = self.lan.address(FRONT);
        let nodes: Vec<_> = self.nodes.keys().map(|&node| (node, self.lan.address(node))).collect();
        let servers: String = nodes
            .iter()
            .map(|(node, at)| format!("    server {node} {at}:{HTTP} check inter 500\n"))
            .collect();
        let text = format!(
            "defaults\n    mode tcp\n    timeout connect 2s\n    timeout client 1m\n    \
             timeout server 1m\n    option redispatch\n    retries 3\nlisten web\n    \
             bind {ip}:{HAPROXY}\n{servers}"
        );
        fs::write(self.file("haproxy.cfg"), text).unwrap();
        // -db: one process in the foreground.
        let mut haproxy: Command = on(FRONT);
        haproxy.arg(program("haproxy")).arg("-db").arg("-f").arg(self.file("haproxy.cfg"));
        let haproxy = Daemon::start("haproxy", &self.dir, &mut haproxy);
        let targets: Vec<_> = nodes.iter().map(|(_, at)| format!("'tcp://{at}:{HTTP}'")).collect();
        let text = format!(
            "state_dir: {dir}/front\ncontrol: {dir}/front.sock\nproxies:\n  - {{ name: web, \
             listen: 'tcp://{ip}:{PROXY}', target: [{}], timeouts: {{ dial: 2s }} }}\n",
            targets.join(", "),
            dir = self.dir.display(),
        );
        fs::write(self.file("front.yaml"), text).unwrap();
        let proxy = start_on(FRONT, &self.dir, "proxy", "front");
        self.fronts = vec![haproxy, proxy];
        for port in [HAPROXY, PROXY] {
            wait("a balancer", LONG, || TcpStream::connect((ip, port)).ok());
        }
    }

    /// Where names are visited: each node, and both balancers.
    pub(crate) fn entrances(&self) -> Vec<(String, Ipv4Addr, Option<u16>)> {
        let nodes = self.nodes.keys().map(|&node| (node.to_owned(), self.lan.address(node), None));
        let front = self.lan.address(FRONT);
        let fronts = [("haproxy", HAPROXY), ("proxy", PROXY)];
        let fronts = fronts.map(|(name, port)| (name.to_owned(), front, Some(port)));
        nodes.chain(fronts).collect()
    }

    /// Waits until visitors of all kinds are served at these nodes, by this process if it is given.
    pub(crate) fn wait_served(
        &self,
        wanted: Wanted,
        nodes: &[&str],
        by: Option<u64>,
        limit: Duration,
    ) {
        for node in nodes {
            for kind in KINDS {
                let to = wanted.at(kind, self.lan.address(node));
                let what = format!("{} at node {node}", wanted.key(kind));
                let begun = std::time::Instant::now();
                loop {
                    let served = visit(kind, wanted, to);
                    let is_right = |it: &Served| by.is_none_or(|by| by == it.generation);
                    if served.as_ref().is_ok_and(is_right) {
                        break;
                    }
                    assert!(begun.elapsed() < limit, "not within {limit:?}: {what}: {served:?}");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
}
