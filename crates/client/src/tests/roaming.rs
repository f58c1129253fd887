//! A client publishes a service of UDP at two servers, and a visitor goes from one server to the
//! other. The servers have different addresses of loopback, so the public port is the same.

use tokio::net::UdpSocket;

use super::*;
use crate::links::{Links, Plan};
use crate::uplink::Uplink;

/// The addresses of both servers.
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];

struct Roaming {
    servers: [Server; 2],
    client: Client,
    /// The second server as the client knows it.
    second: Arc<Uplink>,
    public: u16,
    target: UdpSocket,
}

async fn server(at: Ipv4Addr, public: u16) -> Server {
    let text = format!(
        "listen: tcp://{at}:0\nworkers: 1\npublic_bind: {at}\nclients:\n  - {{ name: home, token: \
         {TOKEN}, allow: {{ udp: {public} }} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
    Server::start(config, None).await.unwrap()
}

fn client_config(server: &Server, public: u16, target: SocketAddr, more: &str) -> ClientConfig {
    let url = server.listen().first().unwrap();
    let text = format!(
        "servers: {url}\nname: home\ntoken: {TOKEN}\nworkers: 2\nconnections: 1\nretry: {{ min: \
         5ms, max: 20ms }}\nservices:\n  - {{ name: game, target: \"udp://{target}\", public: \
         \"udp://:{public}\"{more} }}\n"
    );
    let text = Text { name: "client.yaml", text: &text };
    loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()))
}

impl Roaming {
    /// The links to the servers are on different workers of the client, or on the same worker.
    /// `more`: further keys of the service.
    async fn start(is_across: bool, more: &str) -> Self {
        let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = target.local_addr().unwrap();
        let public = {
            let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            free.local_addr().unwrap().port()
        };
        let servers = [server(SERVERS[0], public).await, server(SERVERS[1], public).await];
        let client = Client::start(client_config(&servers[0], public, at, more)).await.unwrap();
        let config = client_config(&servers[1], public, at, more);
        let server = &config.servers[0];
        let plan = Plan::new(&config, server, memory::link_config(&config.common), 2).unwrap();
        let links = Links::of(plan, 2);
        let second = Uplink::new(server, &links, &client.shared.events, 1);
        second.set_charge(true);
        second.note_services(&config);
        let first = client.shared.uplinks.preferred();
        client.shared.uplinks.set(vec![first, Arc::clone(&second)]);
        let handles = &client.workers.handles()[usize::from(is_across)..];
        keeping::start(&links, handles, &client.shared, (&second, usize::MAX)).await.unwrap();
        let roaming = Self { servers, client, second, public, target };
        let is_up = || {
            let first = roaming.client.shared.uplinks.preferred();
            first.published.has("game") && roaming.second.published.has("game")
        };
        let published = timeout(SOON, async {
            while !is_up() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        published.await.expect("both servers publish the service");
        roaming
    }

    /// A visitor asks by a server, and the target answers. Returns the address that the target
    /// sees.
    async fn talk(&self, visitor: &UdpSocket, server: usize) -> SocketAddr {
        let door = SocketAddr::from((SERVERS[server], self.public));
        let mut space = [0; 16];
        // A datagram that comes before the server has heard of the end of a flow is lost.
        let question = async {
            loop {
                visitor.send_to(b"?", door).await.unwrap();
                let got = self.target.recv_from(&mut space);
                if let Ok(got) = timeout(Duration::from_millis(200), got).await {
                    return got.unwrap();
                }
            }
        };
        let (length, from) = timeout(SOON, question).await.expect("a question");
        assert_eq!(&space[..length], b"?");
        self.target.send_to(b"!", from).await.unwrap();
        let answer = timeout(SOON, visitor.recv_from(&mut space)).await.expect("an answer");
        assert_eq!(answer.unwrap(), (1, door), "by the server that was asked last");
        from
    }

    /// The flows of the service on all workers of the client.
    async fn flows(&self) -> u64 {
        let all = owner::counts(self.client.workers.handles()).await;
        all.iter().map(|service| service.flows).sum()
    }

    /// The flows that went on with a socket, on all workers of the client.
    async fn roamed(&self) -> u64 {
        let all = owner::counts(self.client.workers.handles()).await;
        all.iter().map(|service| service.flows_roamed).sum()
    }

    async fn stop(self) {
        self.client.close().await;
        for server in &self.servers {
            server.close().await;
        }
    }
}

async fn visitor() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_that_moves_to_another_server_keeps_its_socket_to_the_target() {
    for is_across in [true, false] {
        let roaming = Roaming::start(is_across, "").await;
        let (one, other) = (visitor().await, visitor().await);
        let from = roaming.talk(&one, 0).await;
        let of_other = roaming.talk(&other, 0).await;
        assert_ne!(from, of_other);
        for server in [1, 1, 0, 1, 0] {
            assert_eq!(roaming.talk(&one, server).await, from, "{is_across} {server}");
        }
        // An answer that comes on its own goes over the server of the last datagram.
        roaming.target.send_to(b"news", from).await.unwrap();
        let mut space = [0; 16];
        let (length, by) = timeout(SOON, one.recv_from(&mut space)).await.unwrap().unwrap();
        assert_eq!((&space[..length], by.ip()), (&b"news"[..], SERVERS[0].into()));
        assert_eq!(roaming.talk(&other, 0).await, of_other);
        assert_eq!(roaming.flows().await, 2, "a visitor has one flow");
        assert_eq!(roaming.roamed().await, 4, "to the second server and back, twice");
        roaming.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_counts_a_visitor_that_moves_once() {
    let roaming = Roaming::start(true, ", limits: { streams: 1, flows: 1 }").await;
    let visitor = visitor().await;
    let from = roaming.talk(&visitor, 0).await;
    assert_eq!(roaming.talk(&visitor, 1).await, from);
    assert_eq!(roaming.talk(&visitor, 0).await, from);
    roaming.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_keeps_its_socket_when_its_server_ends() {
    let roaming = Roaming::start(true, "").await;
    let visitor = visitor().await;
    let from = roaming.talk(&visitor, 0).await;
    roaming.servers[0].close().await;
    let gone = timeout(SOON, async {
        while roaming.flows().await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    gone.await.expect("the flow has ended with its link");
    assert_eq!(roaming.talk(&visitor, 1).await, from);
    roaming.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_at_two_servers_at_once_gets_a_socket_for_each() {
    let roaming = Roaming::start(true, "").await;
    let visitor = visitor().await;
    let first = roaming.talk(&visitor, 0).await;
    let mut last = [first; 2];
    for turn in 1..=20 {
        let server = turn % 2;
        last[server] = roaming.talk(&visitor, server).await;
    }
    assert_eq!(last[0], first, "the first server keeps the first socket");
    assert_ne!(last[1], first);
    assert_eq!(roaming.flows().await, 2);
    roaming.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_publish_the_service_takes_no_socket_over() {
    let roaming = Roaming::start(true, "").await;
    let visitor = visitor().await;
    let from = roaming.talk(&visitor, 0).await;
    roaming.second.published.refuse("game", "for a test", "b");
    assert_ne!(roaming.talk(&visitor, 1).await, from);
    assert_eq!(roaming.talk(&visitor, 0).await, from);
    roaming.stop().await;
}
