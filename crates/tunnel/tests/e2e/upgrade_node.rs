//! Nodes of a cluster are upgraded one after the other under load: no request fails at any node,
//! open streams go on, and the node stays a member with its epoch.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use testkit::certs::{Authority, Flaw};
use testkit::stage::{Daemon, etcd};

use crate::harness::{Origin, SOON, free_port, run, tunnel, wait};
use crate::upgrade::{Ended, no_former, upgraded};

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// Node `a` has the address 127.0.0.1, and node `b` 127.0.0.2, so that both can listen at one port.
fn address(node: &str) -> &'static str {
    if node == "a" { "127.0.0.1" } else { "127.0.0.2" }
}

/// The ports that are the same at both nodes.
#[derive(Clone, Copy)]
struct Ports {
    clients: u16,
    http: u16,
    nodes: u16,
    service: u16,
    echo: u16,
}

fn start_etcd(dir: &Path) -> (Daemon, u16) {
    let ports = [free_port(), free_port()];
    (Daemon::start("etcd", dir, &mut etcd(dir, ports)), ports[0])
}

fn start_node(node: &str, dir: &Path, ports: Ports, (scheme, etcd): (&str, u16)) -> Daemon {
    let (at, own) = (address(node), dir.join(node));
    fs::create_dir(&own).unwrap();
    let Ports { clients, http, nodes, .. } = ports;
    let [ca, cert, key] = ["ca.pem", &format!("{node}.crt"), &format!("{node}.key")]
        .map(|file| dir.join(file).display().to_string());
    let text = format!(
        "listen: tcp://{at}:{clients}\nworkers: 2\npublic_bind: {at}\nhttp: {{ listen: \
         '{at}:{http}' }}\ncontrol: {node}.sock\nstate_dir: {node}\nclients: [{{ name: home, \
         token: {TOKEN}, allow: {{ http: '*', tcp: '1024-65535' }} }}]\ncluster:\n  name: test\n  \
         node: {node}\n  directory: {{ etcd: 'http://127.0.0.1:{etcd}' }}\n  peers: {{ listen: \
         '{scheme}://{at}:{nodes}', ca: '{ca}', cert: '{cert}', key: '{key}' }}\n"
    );
    let file = dir.join(format!("{node}.yaml"));
    fs::write(&file, text).unwrap();
    let mut command = tunnel(&["server", "--config"]);
    command.arg(&file).current_dir(dir).env("HOME", dir);
    Daemon::start(node, dir, &mut command)
}

fn start_client(dir: &Path, ports: Ports, [web, echo_target]: [u16; 2]) -> Daemon {
    let (at, Ports { clients, service, echo, .. }) = (address("a"), ports);
    let text = format!(
        "servers: 'tcp://{at}:{clients}'\nname: home\ntoken: {TOKEN}\nretry: {{ min: 50ms, max: \
         200ms }}\nservices: [{{ name: web, target: 'tcp://127.0.0.1:{web}', public: \
         ['tcp://:{service}', 'http://app.example'] }}, {{ name: echo, target: \
         'tcp://127.0.0.1:{echo_target}', public: 'tcp://:{echo}' }}]\n"
    );
    let file = dir.join("client.yaml");
    fs::write(&file, text).unwrap();
    let mut command = tunnel(&["client", "--config"]);
    command.arg(&file).current_dir(dir).env("HOME", dir);
    Daemon::start("client", dir, &mut command)
}

/// The name and the epoch of the cluster in the status of a node, once it sees both nodes.
fn epoch(dir: &Path, node: &str) -> Option<u64> {
    let socket = dir.join(format!("{node}.sock"));
    let output = run(tunnel(&["status", "--json", "--control"]).arg(socket));
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    let cluster = &status["cluster"];
    let is_whole = cluster["member"] == true && cluster["nodes"].as_array()?.len() == 2;
    if is_whole { cluster["epoch"].as_u64() } else { None }
}

fn request(to: SocketAddr) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer.ends_with("hello") => Ok(()),
        Ok(answer) => Err(format!("{to}: {answer:?}")),
        Err(error) => Err(format!("{to}: {error}")),
    }
}

/// A connection with the echo at a node.
fn open(node: &str, port: u16) -> TcpStream {
    wait("an echo", SOON, || {
        let mut stream = TcpStream::connect((address(node), port)).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(b"x").ok()?;
        stream.read_exact(&mut [0]).ok()?;
        Some(stream)
    })
}

/// Visitors of all doors and ports of both nodes, one after another at each, and a stream at each
/// node that stays.
struct Requests {
    is_over: Arc<AtomicBool>,
    threads: Vec<(Arc<AtomicU64>, JoinHandle<()>)>,
}

impl Requests {
    fn start(ports: Ports) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let visit = |to: SocketAddr| {
            let (count, over) = (Arc::<AtomicU64>::default(), Arc::clone(&is_over));
            let counts = Arc::clone(&count);
            let visitor = thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    request(to).expect("no request fails");
                    counts.fetch_add(1, Ordering::Relaxed);
                }
            });
            (count, visitor)
        };
        let places = ["a", "b"].into_iter().flat_map(|node| {
            [ports.http, ports.service].map(|port| format!("{}:{port}", address(node)))
        });
        let mut threads: Vec<_> = places.map(|place| visit(place.parse().unwrap())).collect();
        for node in ["a", "b"] {
            let (count, over) = (Arc::<AtomicU64>::default(), Arc::clone(&is_over));
            let (blocks, mut stays) = (Arc::clone(&count), open(node, ports.echo));
            let bytes = thread::spawn(move || {
                let mut block = vec![7; 16 << 10];
                while !over.load(Ordering::Relaxed) {
                    stays.write_all(&block).expect("an open stream goes on");
                    stays.read_exact(&mut block).expect("an open stream goes on");
                    blocks.fetch_add(1, Ordering::Relaxed);
                }
            });
            threads.push((count, bytes));
        }
        Self { is_over, threads }
    }

    /// Waits until all visitors have gone on for a while.
    fn go_on(&self) {
        let count = |(count, _): &(Arc<AtomicU64>, _)| count.load(Ordering::Relaxed);
        let before: Vec<_> = self.threads.iter().map(count).collect();
        wait("visitors that go on", SOON, || {
            let failed = self.threads.iter().any(|(_, thread)| thread.is_finished());
            assert!(!failed, "a visitor has failed");
            let mut now = self.threads.iter().map(count).zip(&before);
            now.all(|(now, before)| now >= before + 20).then_some(())
        });
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for (_, thread) in self.threads {
            thread.join().unwrap();
        }
    }
}

fn upgrades_nodes_over(scheme: &str) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let authority = Authority::new("of the cluster").unwrap();
    authority.save(dir).unwrap();
    for node in ["a", "b"] {
        let own = authority.client(&[], &format!("node:{node}"), Flaw::None).unwrap();
        own.save(dir, node).unwrap();
    }
    let origin = Origin::start(|mut stream| {
        let mut head = [0; 1024];
        if stream.read(&mut head).is_ok_and(|read| read > 0) {
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            // A visitor may leave.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let echo_origin = Origin::echo();
    let [clients, http, nodes, service, echo] = [(); 5].map(|()| free_port());
    let ports = Ports { clients, http, nodes, service, echo };
    let (_etcd, etcd) = start_etcd(dir);
    let _nodes = ["a", "b"].map(|node| start_node(node, dir, ports, (scheme, etcd)));
    let sockets = ["a", "b"].map(|node| dir.join(format!("{node}.sock")));
    let _ended = sockets.clone().map(Ended);
    let epochs = ["a", "b"].map(|node| wait("both nodes", SOON, || epoch(dir, node)));
    let _client = start_client(dir, ports, [origin.port(), echo_origin.port()]);
    for place in ["a", "b"].map(address) {
        for port in [http, service] {
            let to = format!("{place}:{port}").parse().unwrap();
            wait("a visitor that is served", SOON, || request(to).ok());
        }
    }
    let load = Requests::start(ports);
    load.go_on();
    // The node of the client, the node of its visitors, and the node of the client once more.
    for node in [0, 1, 0] {
        upgraded(&sockets[node]);
        load.go_on();
    }
    load.end();
    sockets.iter().for_each(|socket| no_former(socket));
    let after = ["a", "b"].map(|node| wait("both nodes", SOON, || epoch(dir, node)));
    assert_eq!(after, epochs, "the nodes have gone on with their epochs");
}

#[test]
fn nodes_of_a_cluster_are_upgraded_without_a_failed_request_over_tls() {
    upgrades_nodes_over("tls");
}

#[test]
fn nodes_of_a_cluster_are_upgraded_without_a_failed_request_over_quic() {
    upgrades_nodes_over("quic");
}
