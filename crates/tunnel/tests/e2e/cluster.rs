//! One server of three processes on a real etcd: visitors of each node, and a node that is killed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use testkit::stage::{Daemon, etcd};

use crate::harness::{LONG, Origin, SOON, free_port, run, tunnel, wait};

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The secret of a cluster whose nodes reach each other over `tcp://`.
const SECRET: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uq7xJ2vKp0mZ";

/// The names of the nodes. Node `a` has the address 127.0.0.1, `b` 127.0.0.2, and `c` 127.0.0.3.
pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];

const HOST: &str = "app.example.test";

/// The nodes of a cluster, their etcd, and a client with a service over TCP, UDP and HTTP.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
    /// The ports of etcd for clients and for members.
    etcd_ports: [u16; 2],
    etcd: Option<Daemon>,
    nodes: Vec<Daemon>,
    client: Option<Daemon>,
    /// The port for clients, for other nodes, of names, and the public ports over TCP and UDP.
    ports: [u16; 5],
    origin: Origin,
    /// The nodes have no certificates and reach each other over `tcp://`.
    is_plain: bool,
    /// The lines of further clients in the file of each node.
    more_clients: String,
}

fn at(node: usize, port: u16) -> SocketAddr {
    let last = u8::try_from(node + 1).unwrap();
    SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), port)
}

fn start(dir: &Path, role: &str, name: &str) -> Daemon {
    let mut command = tunnel(&[role, "--config"]);
    command.arg(dir.join(format!("{name}.yaml"))).env("HOME", dir);
    Daemon::start(name, dir, &mut command)
}

/// Answers each connection with one response.
fn respond(mut stream: TcpStream) {
    let mut buf = [0; 1024];
    if stream.read(&mut buf).is_ok_and(|length| length > 0) {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        drop(stream.write_all(answer.as_bytes()));
    }
}

/// Sends back each datagram, while the test process runs.
fn echo_datagrams() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buf = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buf) {
            drop(socket.send_to(&buf[..length], from));
        }
    });
    port
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::start(false, String::new())
    }

    /// A stage whose nodes let in further clients.
    pub(crate) fn with_clients(more_clients: String) -> Self {
        Self::start(false, more_clients)
    }

    fn start(is_plain: bool, more_clients: String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certs = dir.path().join("certs");
        let made = run(tunnel(&["generate", "certs", "--node", "a", "b", "c", "-o"]).arg(certs));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut stage = Self {
            dir,
            etcd_ports: [free_port(), free_port()],
            etcd: None,
            nodes: Vec::new(),
            client: None,
            ports: std::array::from_fn(|_| free_port()),
            origin: Origin::start(respond),
            is_plain,
            more_clients,
        };
        stage.start_etcd();
        for (node, name) in NODES.into_iter().enumerate() {
            stage.write_node(node);
            stage.nodes.push(start(stage.dir.path(), "server", name));
        }
        stage.wait_nodes(&[0, 1, 2]);
        stage.write_client();
        stage
    }

    pub(crate) fn start_etcd(&mut self) {
        let mut command = etcd(self.dir.path(), self.etcd_ports);
        self.etcd = Some(Daemon::start("etcd", self.dir.path(), &mut command));
    }

    fn write_node(&self, node: usize) {
        let [clients, peers, names, tcp, udp] = self.ports;
        let (ip, name, dir) = (at(node, 0).ip(), NODES[node], self.dir.path().display());
        let links = if self.is_plain {
            format!("secret: {SECRET}\n  peers: {{ listen: 'tcp://{ip}:{peers}' }}\n")
        } else {
            format!(
                "peers: {{ listen: 'quic://{ip}:{peers}', ca: certs/ca.crt, \
                 cert: certs/node-{name}.crt, key: certs/node-{name}.key }}\n"
            )
        };
        let text = format!(
            "listen: tcp://{ip}:{clients}\npublic_bind: {ip}\nhttp: {{ listen: '{ip}:{names}' }}\n\
             state_dir: {dir}/{name}-state\ncontrol: {dir}/{name}.sock\n\
             clients:\n  - {{ name: home, token: {TOKEN}, \
             allow: {{ tcp: {tcp}, udp: {udp}, http: {HOST} }} }}\n{}\
             cluster:\n  name: test\n  node: {name}\n  \
             directory: {{ etcd: 'http://127.0.0.1:{}' }}\n  {links}",
            self.more_clients, self.etcd_ports[0],
        );
        fs::write(self.dir.path().join(format!("{name}.yaml")), text).unwrap();
    }

    /// The client knows the three nodes as paths of one server.
    fn write_client(&self) {
        let [clients, _, _, tcp, udp] = self.ports;
        let urls = (0..NODES.len()).map(|node| format!("'tcp://{}'", at(node, clients)));
        let (dir, urls) = (self.dir.path().display(), urls.collect::<Vec<_>>().join(", "));
        let (origin, echo) = (self.origin.port(), echo_datagrams());
        let text = format!(
            "servers: [{urls}]\nname: home\ntoken: {TOKEN}\nstate_dir: {dir}/client-state\n\
             control: {dir}/client.sock\nconnections: 1\nretry: {{ min: 50ms, max: 500ms }}\n\
             services:\n  - {{ name: web, target: 'tcp://127.0.0.1:{origin}', \
             public: ['tcp://:{tcp}', 'http://{HOST}'] }}\n  \
             - {{ name: dns, target: 'udp://127.0.0.1:{echo}', public: 'udp://:{udp}' }}\n"
        );
        fs::write(self.dir.path().join("client.yaml"), text).unwrap();
    }

    pub(crate) fn start_client(&mut self) {
        self.client = Some(start(self.dir.path(), "client", "client"));
    }

    fn status(&self, node: usize) -> Option<serde_json::Value> {
        let socket = self.dir.path().join(format!("{}.sock", NODES[node]));
        let output = run(tunnel(&["status", "--json"]).arg("--control").arg(socket));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until each of these nodes knows exactly these nodes.
    pub(crate) fn wait_nodes(&self, nodes: &[usize]) {
        for node in nodes {
            wait(&format!("node {node} to know the nodes {nodes:?}"), LONG, || {
                let status = self.status(*node)?;
                let known = status["cluster"]["nodes"].as_array()?;
                let is_member = status["cluster"]["member"] == true;
                (is_member && known.len() == nodes.len()).then_some(())
            });
        }
    }

    /// Whether a visitor of a port, or of the name, at this node is served.
    pub(crate) fn serves(&self, node: usize, port: u16) -> bool {
        let ask = || {
            let mut stream = TcpStream::connect_timeout(&at(node, port), SOON).ok()?;
            stream.set_read_timeout(Some(LONG)).ok()?;
            let asked = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
            stream.write_all(asked.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.ends_with("hello").then_some(())
        };
        ask().is_some()
    }

    /// The addresses of the nodes for clients, and for visitors of names.
    pub(crate) fn doors(&self) -> [[SocketAddr; 2]; 3] {
        let [clients, _, names, ..] = self.ports;
        std::array::from_fn(|node| [at(node, clients), at(node, names)])
    }

    /// The processor time of the nodes.
    pub(crate) fn cpu(&self) -> Duration {
        self.nodes.iter().map(Daemon::cpu).sum()
    }

    /// The ports of names and of the service over TCP.
    pub(crate) const fn visited(&self) -> [u16; 2] {
        let [_, _, names, tcp, _] = self.ports;
        [names, tcp]
    }

    /// Ends etcd without a word.
    pub(crate) fn kill_etcd(&mut self) {
        self.etcd.take().unwrap().kill();
    }

    /// Ends a node without a word.
    pub(crate) fn kill_node(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    fn answers_datagrams(&self, node: usize) -> bool {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut buf = [0; 16];
        socket.send_to(b"question", at(node, self.ports[4])).is_ok()
            && socket.recv(&mut buf).is_ok_and(|length| buf[..length] == *b"question")
    }

    /// Waits until visitors of all kinds are served at these nodes.
    pub(crate) fn wait_served(&self, nodes: &[usize]) {
        let [_, _, names, tcp, _] = self.ports;
        for node in nodes {
            let ready = |what: &str, is_ready: &dyn Fn() -> bool| {
                wait(&format!("{what} at node {node}"), LONG, || is_ready().then_some(()));
            };
            ready("the port over TCP", &|| self.serves(*node, tcp));
            ready("the name", &|| self.serves(*node, names));
            ready("the port over UDP", &|| self.answers_datagrams(*node));
        }
    }

    /// Waits until the client has a link with a node, and returns the node.
    pub(crate) fn home(&self) -> usize {
        wait("the node of the client", LONG, || {
            (0..NODES.len()).find(|node| {
                self.status(*node).is_some_and(|status| {
                    let sessions = status["sessions"].as_array().cloned().unwrap_or_default();
                    sessions.iter().any(|one| {
                        let has_links = one["links"].as_array().is_some_and(|all| !all.is_empty());
                        one["peer"] == "home" && has_links
                    })
                })
            })
        })
    }
}

#[test]
fn visitors_of_each_node_are_served_also_after_the_node_of_the_client_was_killed() {
    let mut stage = Stage::new();
    stage.start_client();
    stage.wait_served(&[0, 1, 2]);
    let home = stage.home();
    stage.kill_node(home);
    let others: Vec<_> = (0..NODES.len()).filter(|node| *node != home).collect();
    stage.wait_served(&others);
    // The records of the node that died are alive for 10 s and more.
    let known = stage.status(others[0]).unwrap()["cluster"]["nodes"].as_array().unwrap().len();
    println!("served while the other nodes knew {known} nodes");
    stage.nodes[home] = start(stage.dir.path(), "server", NODES[home]);
    stage.wait_served(&[0, 1, 2]);
}

#[test]
fn nodes_without_certificates_serve_visitors_over_tcp_by_the_secret_of_the_cluster() {
    let mut stage = Stage::start(true, String::new());
    stage.start_client();
    stage.wait_served(&[0, 1, 2]);
    let home = stage.home();
    let other = (home + 1) % NODES.len();
    stage.kill_node(home);
    stage.wait_served(&[other]);
}
