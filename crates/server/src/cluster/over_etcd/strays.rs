//! Clients behind a balancer whose connection is lost, and which reach another node than before.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::io::copy_bidirectional;
use tokio::task::AbortHandle;

use super::*;

/// A balancer in front of the nodes.
struct Balancer {
    address: SocketAddr,
    target: Rc<Cell<SocketAddr>>,
    connections: Rc<RefCell<Vec<AbortHandle>>>,
}

impl Balancer {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Rc::new(Cell::new(target));
        let connections = Rc::<RefCell<Vec<AbortHandle>>>::default();
        let (to, all) = (Rc::clone(&target), Rc::clone(&connections));
        spawn_local(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let target = to.get();
                let connection = spawn_local(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
                all.borrow_mut().push(connection.abort_handle());
            }
        });
        Self { address, target, connections }
    }

    /// Ends all connections. The next connections reach this server.
    fn lead_to(&self, server: &Server) {
        self.target.set(listens_at(server));
        self.connections.borrow_mut().drain(..).for_each(|connection| connection.abort());
    }
}

fn listens_at(server: &Server) -> SocketAddr {
    let (_, address) = server.listen()[0].split_once("://").unwrap();
    address.parse().unwrap()
}

/// An origin that returns all bytes.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn_local(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            spawn_local(async move {
                let (mut read, mut write) = socket.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

/// Sends bytes that depend on `turn`, and expects them back.
async fn talk(stream: &mut TcpStream, turn: u8) {
    let sent: Vec<u8> = (0..300_000u32).map(|at| at.to_le_bytes()[0] ^ turn).collect();
    let mut got = vec![0; sent.len()];
    let (mut read, mut write) = stream.split();
    let both = async { tokio::join!(write.write_all(&sent), read.read_exact(&mut got)) };
    let (is_sent, is_read) = timeout(SOON, both).await.expect("in time");
    is_sent.unwrap();
    is_read.unwrap();
    assert!(sent == got, "the bytes of turn {turn}");
}

/// The nodes through which the links of the client lead to a server.
async fn ways(server: &Server) -> Vec<Option<String>> {
    let sessions = server.status().await.sessions;
    let own = sessions.into_iter().filter(|session| session.peer == "home");
    let links = own.flat_map(|session| session.links);
    let carriers = links.flat_map(|link| link.carriers);
    carriers.map(|carrier| carrier.via.map(Into::into)).collect()
}

/// The open stream of a visitor goes on when the client comes back at another node. With `homes`
/// the client has links with several nodes.
fn an_open_stream_goes_on(scheme: &str, homes: usize) {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let folder = tempfile::tempdir().unwrap();
        let leaf = certificates.authority.server(&["127.0.0.1"]).unwrap();
        let (cert, key) = leaf.save(folder.path(), "server").unwrap();
        let identity = tls::Identity::load(&cert, &key).unwrap();
        let start = async |node| {
            let port = free_port();
            let text = settings(node, &directory, &certificates, port);
            let text = text.replace("listen: tcp://", &format!("listen: {scheme}://"));
            // A node with an address of its own can be a second home.
            let own = format!("zone: z, clients: '{scheme}://{}:{port}'", address(node));
            let text = text.replace("zone: z", &own);
            Server::start(read(&text), Some(identity.clone())).await.unwrap()
        };
        let (a, b) = (start("a").await, start("b").await);
        sees(&a, 2).await;
        sees(&b, 2).await;
        let balancer = Balancer::start(listens_at(&a)).await;
        let tcp = free_port();
        let service = format!(
            "{{ name: echo, target: 'tcp://127.0.0.1:{}', public: 'tcp://:{tcp}' }}",
            echo().await
        );
        let text = format!(
            "servers: {scheme}://{}\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\n\
             homes: {homes}\ntls: {{ ca: '{}' }}\nretry: {{ min: 50ms, max: 200ms }}\n\
             services: [{service}]\n",
            balancer.address,
            certificates.ca.display()
        );
        let text = Text { name: "client.yaml", text: &text };
        let config = config::load_client(Some(text), &ClientFlags::default(), &sources());
        let source = Box::new(|_| Err(ops::WrongConfig::one("no file".to_owned())));
        let client = client::start(config.unwrap().config, source, None).await.unwrap();
        eventually("the first node publishes", async || publishes(&a).await).await;
        let is_at_home = async || ways(&a).await.len() == 1 && ways(&b).await.len() == homes - 1;
        eventually("the links", is_at_home).await;
        let at = SocketAddr::new(address("a").into(), tcp);
        let mut stream = TcpStream::connect(at).await.unwrap();
        talk(&mut stream, 0).await;
        // The link that leads through the balancer is the only one that moves.
        for (turn, (server, way)) in (1..).zip([(&b, Some("b")), (&b, Some("b")), (&a, None)]) {
            balancer.lead_to(server);
            talk(&mut stream, turn).await;
            let is_there = async || ways(&a).await == [way.map(str::to_owned)];
            eventually("the way of the link", is_there).await;
        }
        // A node that stops lets carriers go that it passes on.
        balancer.lead_to(&b);
        talk(&mut stream, 9).await;
        balancer.target.set(listens_at(&a));
        b.drain().await;
        talk(&mut stream, 10).await;
        let is_there = async || ways(&a).await == [None];
        eventually("the way of the link", is_there).await;
        drop(stream);
        client.close().await;
        b.close().await;
        a.close().await;
    });
}

#[test]
fn an_open_stream_goes_on_when_its_client_comes_back_at_another_node_over_tcp() {
    an_open_stream_goes_on("tcp", 1);
}

#[test]
fn an_open_stream_goes_on_when_its_client_comes_back_at_another_node_over_tls() {
    an_open_stream_goes_on("tls", 1);
}

#[test]
fn an_open_stream_goes_on_when_its_client_has_another_link_with_the_node() {
    an_open_stream_goes_on("tcp", 2);
}
