//! Servers as nodes on a real member of etcd that demands certificates.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use client::Client;
use config::{ClientFlags, ServerConfig, ServerFlags, Sources, Text};
use ops::status::{ServiceState, SessionState};
use ops::{ClusterView as _, Daemon as _, Serving as _};
use testkit::certs::{Authority, Flaw};
use testkit::stage::{CheckedPorts, Pebble, free_port, program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::{Features, Server};
use member::{Members, SOON, run};

#[path = "../../../../etcd/tests/member.rs"]
#[allow(dead_code, reason = "the tests of the crate etcd use the rest")]
pub(super) mod member;

mod homes;
mod strays;

pub(super) const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The authority of a cluster, and the files of its nodes.
pub(super) struct Certificates {
    dir: tempfile::TempDir,
    authority: Authority,
    ca: PathBuf,
}

impl Certificates {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of the cluster").unwrap();
        let ca = authority.save(dir.path()).unwrap();
        Self { dir, authority, ca }
    }

    /// The keys `ca`, `cert` and `key` of a node.
    fn of(&self, node: &str) -> String {
        let name = format!("node:{node}");
        let own = self.authority.client(&[], &name, Flaw::None).unwrap();
        let (cert, key) = own.save(self.dir.path(), node).unwrap();
        let (ca, cert, key) = (self.ca.display(), cert.display(), key.display());
        format!("ca: '{ca}', cert: '{cert}', key: '{key}'")
    }
}

/// Node `a` has the address 127.0.0.1, node `b` 127.0.0.2, and so on, so that all nodes can listen
/// at one port.
pub(super) fn address(node: &str) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, node.as_bytes()[0] - b'a' + 1)
}

async fn start(node: &str, directory: &str, certificates: &Certificates) -> Server {
    serve(&settings(node, directory, certificates, 0)).await
}

/// The configuration of a node to which the client `home` connects at this port.
fn settings(node: &str, directory: &str, certificates: &Certificates, listen: u16) -> String {
    let home = format!(
        "{{ name: home, token: {TOKEN}, allow: {{ http: '*', tls: '*', tcp: '1024-65535', \
         udp: '1024-65535' }} }}"
    );
    text_of(node, directory, certificates, (listen, &home))
}

/// The configuration of a node with these clients.
pub(super) fn config_of(
    node: &str,
    directory: &str,
    certificates: &Certificates,
    clients: &str,
) -> ServerConfig {
    read(&text_of(node, directory, certificates, (0, clients)))
}

fn text_of(
    node: &str,
    directory: &str,
    certificates: &Certificates,
    (listen, clients): (u16, &str),
) -> String {
    let (at, own, port) = (address(node), certificates.of(node), free_port());
    format!(
        "listen: tcp://{at}:{listen}\nworkers: 2\npublic_bind: {at}\n\
         http: {{ listen: '{at}:0' }}\ntls_routes: {{ listen: '{at}:0' }}\n\
         clients: [{clients}]\n\
         cluster: {{ name: test, node: {node}, zone: z, directory: {directory}, \
         peers: {{ listen: 'quic://{at}:{port}', {own} }} }}\n"
    )
}

fn read(text: &str) -> ServerConfig {
    let text = Text { name: "server.yaml", text };
    config::load_server(Some(text), &ServerFlags::default(), &sources()).unwrap().config
}

/// A server with this configuration.
async fn serve(text: &str) -> Server {
    Server::start(read(text), None).await.unwrap()
}

pub(super) fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("no files".to_owned()) }
}

/// A process of the client at one of the servers.
async fn publish(server: &Server) -> Client {
    let web = "{ name: web, target: 'tcp://127.0.0.1:1', public: 'http://app.example' }";
    publish_all(server, web).await
}

/// As [`publish`], with these services.
async fn publish_all(server: &Server, services: &str) -> Client {
    publish_at(&server.listen()[0], services).await
}

/// As [`publish_all`], with these servers.
async fn publish_at(servers: &str, services: &str) -> Client {
    Client::start(client_config(servers, services)).await.unwrap()
}

/// The configuration of a client.
fn client_config(servers: &str, services: &str) -> config::ClientConfig {
    let text = format!(
        "servers: {servers}\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\n\
         retry: {{ min: 50ms, max: 200ms }}\nservices: [{services}]\n",
    );
    let text = Text { name: "client.yaml", text: &text };
    config::load_client(Some(text), &ClientFlags::default(), &sources()).unwrap().config
}

/// Whether a server publishes the service.
pub(super) async fn publishes(server: &Server) -> bool {
    let sessions = server.status().await.sessions;
    let mut services = sessions.iter().flat_map(|session| &session.services);
    services.any(|service| service.state == ServiceState::Up)
}

pub(super) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < SOON, "{what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a node sees this number of nodes.
pub(super) async fn sees(server: &Server, nodes: usize) {
    let begin = Instant::now();
    loop {
        let cluster = server.brief().await.cluster.unwrap();
        if cluster.member && cluster.nodes.len() == nodes {
            assert!(cluster.engine_heard_seconds.is_some() && cluster.nodes[0].zone.is_some());
            assert!(cluster.report.unwrap().contains("joined"));
            return;
        }
        assert!(begin.elapsed() < SOON, "{cluster:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_server_joins_over_tls_with_its_certificate_and_leaves_at_its_end() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of etcd").unwrap();
        let ca = authority.save(dir.path()).unwrap();
        // The gateway inside etcd presents the certificate of the server as that of a client.
        let peer = authority.peer(&["127.0.0.1"]).unwrap();
        let (certificate, key) = peer.save(dir.path(), "etcd").unwrap();
        let client = authority.client(&[], "a node", Flaw::None).unwrap();
        let own = client.save(dir.path(), "node").unwrap();
        let [certificate, key, ca] = [&certificate, &key, &ca].map(|path| path.to_str().unwrap());
        let mut members = Members::new(1, &["--client-cert-auth", "--trusted-ca-file", ca]);
        members.over_tls(certificate, key);
        members.begin(0);
        let address = members.settings(SOON).members.remove(0);
        let directory = format!(
            "{{ etcd: 'https://{address}', tls: {{ ca: '{ca}', cert: '{}', key: '{}' }} }}",
            own.0.display(),
            own.1.display()
        );
        let certificates = Certificates::new();
        let start = async |node| start(node, &directory, &certificates).await;
        let one = start("a").await;
        sees(&one, 1).await;
        let two = start("b").await;
        sees(&one, 2).await;
        sees(&two, 2).await;
        two.close().await;
        sees(&one, 1).await;
        // The records of a node that ended are void: the next process joins at once.
        let two = start("b").await;
        sees(&two, 2).await;
        two.close().await;
        one.close().await;
    });
}

#[test]
fn a_client_that_logs_in_at_another_node_takes_its_services_along() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node| start(node, &directory, &certificates).await;
        let (a, b) = (start("a").await, start("b").await);
        sees(&a, 2).await;
        sees(&b, 2).await;
        let first = publish(&a).await;
        eventually("the first node publishes", async || publishes(&a).await).await;
        for (node, server) in [("a", &a), ("b", &b)] {
            let is_at_a = async || {
                let client = located(server, "home").await == ["client home of home at a"];
                client
                    && located(server, "app.example").await == ["http://app.example of home at a"]
            };
            eventually(&format!("node {node} knows where the client is"), is_at_a).await;
        }
        assert!(located(&b, "80").await.is_empty());
        let second = publish(&b).await;
        eventually("the second node publishes", async || publishes(&b).await).await;
        eventually("the first node publishes no more", async || !publishes(&a).await).await;
        let has_yielded = async || {
            let sessions = first.status().await.sessions;
            sessions.iter().all(|session| session.state == SessionState::Superseded)
        };
        eventually("the first process has yielded", has_yielded).await;
        assert!(publishes(&b).await);
        let is_at_b = async || located(&a, "home").await == ["client home of home at b"];
        eventually("the first node knows where the client is now", is_at_b).await;
        second.close().await;
        first.close().await;
        a.close().await;
        b.close().await;
    });
}

/// What `tunnel where` shows at a node.
async fn located(server: &Server, name: &str) -> Vec<String> {
    let places = server.locate(name.to_owned()).await.unwrap();
    let said = |place: ops::cluster::ClusterPlace| {
        let nodes: Vec<_> = place.nodes.iter().map(|node| node.name.as_str()).collect();
        format!("{} of {} at {}", place.what, place.client, nodes.join(" "))
    };
    places.into_iter().map(said).collect()
}

/// An origin that answers each connection with one text, after the first bytes of the visitor.
pub(super) async fn origin(text: &'static str) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            spawn_local(async move {
                let mut buf = [0; 1024];
                if socket.read(&mut buf).await.is_ok_and(|read| read > 0) {
                    let _ = socket.write_all(text.as_bytes()).await;
                }
            });
        }
    };
    (port, spawn_local(serve))
}

/// What a visitor gets that sends this text to an address. `None`: it is not served.
pub(super) async fn ask(to: SocketAddr, text: &str) -> Option<String> {
    let asked = async {
        let mut socket = TcpStream::connect(to).await.ok()?;
        socket.write_all(text.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(SOON, asked).await.ok().flatten().filter(|answer| !answer.is_empty())
}

/// The port of the door for visitors of this kind.
pub(super) fn door(server: &Server, scheme: &str) -> SocketAddr {
    let urls = server.visitors.iter();
    let mut own = urls.filter_map(|url| url.strip_prefix(scheme)?.strip_prefix("://"));
    own.next().unwrap().trim_end_matches('/').parse().unwrap()
}

#[test]
fn visitors_of_each_node_reach_a_client_of_another_node() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node| start(node, &directory, &certificates).await;
        let (a, b) = (start("a").await, start("b").await);
        sees(&a, 2).await;
        sees(&b, 2).await;
        let (target, _origin) = origin(ANSWER).await;
        let (tcp, udp) = (free_port(), free_port());
        let echo = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let echo_port = echo.local_addr().unwrap().port();
        let _echo = spawn_local(async move {
            let mut buf = [0; 64];
            loop {
                let (length, from) = echo.recv_from(&mut buf).await.unwrap();
                echo.send_to(&buf[..length], from).await.unwrap();
            }
        });
        let services = format!(
            "{{ name: web, target: 'tcp://127.0.0.1:{target}', \
             public: ['tcp://:{tcp}', 'http://app.example'] }}, \
             {{ name: dns, target: 'udp://127.0.0.1:{echo_port}', public: 'udp://:{udp}' }}"
        );
        let client = publish_all(&a, &services).await;
        eventually("the first node publishes", async || publishes(&a).await).await;
        let request = "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n";
        for (node, server) in [("a", &a), ("b", &b)] {
            let at = |port| SocketAddr::new(address(node).into(), port);
            let is_served = async || ask(at(tcp), "anything").await.as_deref() == Some(ANSWER);
            eventually(&format!("the TCP port of node {node}"), is_served).await;
            let answer = ask(door(server, "http"), request).await.unwrap_or_default();
            assert!(answer.ends_with("hello"), "{node}: {answer}");
            let visitor = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let is_answered = async || {
                visitor.send_to(b"question", at(udp)).await.unwrap();
                let mut buf = [0; 64];
                let heard = timeout(Duration::from_millis(500), visitor.recv(&mut buf)).await;
                heard.is_ok_and(|length| buf[..length.unwrap()] == *b"question")
            };
            eventually(&format!("the UDP port of node {node}"), is_answered).await;
        }
        client.close().await;
        b.close().await;
        a.close().await;
    });
}

#[test]
fn visitors_follow_a_client_to_another_node() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node| start(node, &directory, &certificates).await;
        let (a, b, c) = (start("a").await, start("b").await, start("c").await);
        for server in [&a, &b, &c] {
            sees(server, 3).await;
        }
        let (target, _origin) = origin(ANSWER).await;
        let tcp = free_port();
        let services = format!(
            "{{ name: web, target: 'tcp://127.0.0.1:{target}', \
             public: ['tcp://:{tcp}', 'http://app.example'] }}"
        );
        let client = publish_all(&a, &services).await;
        let port = SocketAddr::new(address("c").into(), tcp);
        let is_served = async || ask(port, "anything").await.as_deref() == Some(ANSWER);
        eventually("the port of the third node", is_served).await;
        let request = "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n";
        let http = door(&c, "http");
        assert!(ask(http, request).await.unwrap_or_default().ends_with("hello"));
        // The client has stopped, and its next process logs in at another node. Visitors that come
        // meanwhile wait.
        client.close().await;
        let moves = async {
            sleep(Duration::from_millis(300)).await;
            publish_all(&b, &services).await
        };
        let visits = async {
            let mut answers = Vec::new();
            for _ in 0..20 {
                answers.push(ask(http, request).await);
                sleep(Duration::from_millis(50)).await;
            }
            answers
        };
        let (client, answers) = tokio::join!(moves, visits);
        let served = answers.iter().flatten().filter(|answer| answer.ends_with("hello")).count();
        assert_eq!(served, answers.len(), "{answers:?}");
        // The port of a client that stops closes, as at a single server, and opens again.
        let is_served = async || ask(port, "anything").await.as_deref() == Some(ANSWER);
        eventually("the port of the third node after the move", is_served).await;
        // The next process logs in at the third node, which listens at the port already.
        let last = publish_all(&c, &services).await;
        eventually("the third node publishes", async || publishes(&c).await).await;
        let is_whole = async || {
            let sessions = last.status().await.sessions;
            let mut services = sessions.iter().flat_map(|session| &session.services);
            services.any(|service| service.state == ServiceState::Up)
        };
        eventually("both addresses are published", is_whole).await;
        assert!(is_served().await);
        last.close().await;
        client.close().await;
        for server in [a, b, c] {
            server.close().await;
        }
    });
}

/// The answer to a visitor over HTTPS that checks the certificate of a name.
async fn ask_over_tls(at: SocketAddr, host: &str, root: &Path) -> Result<String, String> {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--http1.1", "--max-time", "20", "--cacert"]).arg(root);
    curl.args(["--resolve", &format!("{host}:{}:{}", at.port(), at.ip())]);
    curl.arg(format!("https://{host}:{}/", at.port()));
    let output = tokio::task::spawn_blocking(move || curl.output()).await.unwrap().unwrap();
    let [answer, error] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() { Ok(answer) } else { Err(error) }
}

#[test]
fn one_node_orders_and_every_node_answers_tls_alpn_01_and_presents_the_certificate() {
    one_node_orders("tls-alpn-01");
}

#[test]
fn one_node_orders_and_every_node_answers_http_01_and_presents_the_certificate() {
    one_node_orders("http-01");
}

/// Orders a certificate that is proved by this check.
fn one_node_orders(by: &str) {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    const SECRET: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uq7xJ2vKp0mZ";
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("of the API of pebble").unwrap();
        let (ca, leaf) =
            (authority.save(dir.path()).unwrap(), authority.server(&["127.0.0.1"]).unwrap());
        // The authority asks the first node alone, and the client has its links with the second.
        let checked = CheckedPorts { http: free_port(), tls: free_port() };
        let pebble = Pebble::start(dir.path(), (&leaf.certificate, &leaf.key), &ca, checked);
        let start = async |node: &str, [http, tls]: [u16; 2]| {
            let (at, own, port) = (address(node), certificates.of(node), free_port());
            let text = format!(
                "listen: tcp://{at}:0\nworkers: 2\npublic_bind: {at}\n\
                 http: {{ listen: '{at}:{http}' }}\n\
                 tls_routes: {{ listen: '{at}:{tls}', acme: {{ accept_terms: true, \
                 directory: '{}', ca: '{}' }} }}\n\
                 clients: [{{ name: home, token: {TOKEN}, allow: {{ http: '*' }} }}]\n\
                 cluster: {{ name: test, node: {node}, zone: z, secret: {SECRET}, \
                 directory: {directory}, peers: {{ listen: 'quic://{at}:{port}', {own} }} }}\n",
                pebble.directory,
                ca.display()
            );
            let text = Text { name: "server.yaml", text: &text };
            let config = config::load_server(Some(text), &ServerFlags::default(), &sources());
            let config = config.unwrap().config;
            let state = dir.path().join(node);
            // The check that proved a name before is tried first; the certificate is gone.
            let folder = pebble.directory.trim_start_matches("https://").replace([':', '/'], "_");
            let folder = state.join("acme").join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            let head = format!("# tunnel: certificate of {} by {by}\n", pebble.directory);
            std::fs::write(folder.join("app.example.pem"), head).unwrap();
            let link = node::memory::link_config(&config.common);
            let of_links = (link, Features::OURS);
            Server::start_with(config, None, of_links, None, Some(&state)).await.unwrap()
        };
        let ports = [[checked.http, checked.tls], [free_port(), free_port()]];
        let (a, b) = (start("a", ports[0]).await, start("b", ports[1]).await);
        sees(&a, 2).await;
        sees(&b, 2).await;
        let (target, _origin) = origin(ANSWER).await;
        let services = format!(
            "{{ name: web, target: 'tcp://127.0.0.1:{target}', public: 'https://app.example' }}"
        );
        let client = publish_all(&b, &services).await;
        let root = dir.path().join("root.crt");
        std::fs::write(&root, pebble.root()).unwrap();
        let doors = [("a", ports[0]), ("b", ports[1])];
        let doors = doors.map(|(node, [_, port])| SocketAddr::new(address(node).into(), port));
        for at in doors.iter().rev() {
            let answers = async || match ask_over_tls(*at, "app.example", &root).await {
                Ok(answer) => answer == "hello",
                Err(_) => false,
            };
            eventually(&format!("the certificate at {at}: {}", pebble.log()), answers).await;
        }
        let [at_a, at_b] = [a.status().await, b.status().await].map(|status| {
            let own = status.certificates.into_iter().find(|it| it.host == "app.example");
            own.and_then(|own| own.challenge)
        });
        assert_eq!((at_a, at_b.as_deref()), (None, Some(by)));
        let orders = pebble.orders();

        // The client moves to the first node, whose certificate of the name is that of the cluster.
        client.close().await;
        let client = publish_all(&a, &services).await;
        eventually("the first node publishes", async || publishes(&a).await).await;
        b.close().await;
        let answers = async || ask_over_tls(doors[0], "app.example", &root).await.is_ok();
        eventually("the certificate at the node that ordered nothing", answers).await;
        let has_it = async || {
            let names = a.status().await.certificates;
            names.iter().any(|name| name.host == "app.example" && name.expires_at.is_some())
        };
        eventually("the status has the certificate", has_it).await;
        assert_eq!(pebble.orders(), orders, "{}", pebble.log());
        client.close().await;
        a.close().await;
    });
}

#[test]
fn a_node_that_stops_lets_its_clients_go_to_another_node() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node| start(node, &directory, &certificates).await;
        let (a, b) = (start("a").await, start("b").await);
        sees(&a, 2).await;
        sees(&b, 2).await;
        let web = "{ name: web, target: 'tcp://127.0.0.1:1', public: 'http://app.example' }";
        let servers = format!("['{}', '{}']", a.listen()[0], b.listen()[0]);
        let client = publish_at(&servers, web).await;
        eventually("the first node publishes", async || publishes(&a).await).await;
        // The drain completes without a visitor, and the client has gone before.
        a.drain().await;
        assert!(a.status().await.sessions.is_empty(), "the client has gone");
        eventually("the second node publishes", async || publishes(&b).await).await;
        let says_so = async || {
            let cluster = b.brief().await.cluster.unwrap();
            cluster.nodes.iter().any(|node| node.name == "a" && node.draining)
        };
        eventually("the record of the first node says so", says_so).await;
        // The last node has nobody to whom its client could go.
        a.close().await;
        sees_alone(&b).await;
        let begun = Instant::now();
        b.drain().await;
        assert!(begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
        assert!(!b.status().await.sessions.is_empty());
        client.close().await;
        b.close().await;
    });
}

/// Waits until a node sees no other node.
async fn sees_alone(server: &Server) {
    let is_alone = async || server.brief().await.cluster.unwrap().nodes.len() == 1;
    eventually("the other node has gone", is_alone).await;
}
