//! Clients with links to several nodes at once.

use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cluster::names::NodeId;

use super::super::downhill::{AskedClients, NodeLoads, let_go};
use super::*;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n";

const SECOND: Duration = Duration::from_secs(1);

/// Where the process of [`a_node_in_a_process_of_its_own`] finds its configuration.
const CONFIGURATION: &str = "TUNNEL_TEST_NODE";

/// No test, but the process of a node that is killed: the tests below start this program again.
#[test]
fn a_node_in_a_process_of_its_own() {
    let Ok(file) = std::env::var(CONFIGURATION) else { return };
    run(async {
        let _server = serve(&std::fs::read_to_string(file).unwrap()).await;
        std::future::pending::<()>().await;
    });
}

/// A node in another process, which is killed on drop.
struct NodeProcess(Child);

impl NodeProcess {
    fn start(settings: &str, certificates: &Certificates) -> Self {
        let file = certificates.dir.path().join("node.yaml");
        std::fs::write(&file, settings).unwrap();
        let (_, path) = module_path!().split_once("::").unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{path}::a_node_in_a_process_of_its_own")])
            .env(CONFIGURATION, file)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The services of the tests: a TCP port, and a name.
fn services(target: u16, tcp: u16) -> String {
    format!(
        "{{ name: web, target: 'tcp://127.0.0.1:{target}', \
         public: ['tcp://:{tcp}', 'http://app.example'] }}"
    )
}

/// Whether a server publishes services over its own links with the client. It has entrances for
/// services of other nodes as well.
async fn publishes_here(server: &Server) -> bool {
    let sessions = server.status().await.sessions;
    let own = sessions.iter().filter(|session| session.peer == "home" && !session.links.is_empty());
    let mut services = own.flat_map(|session| &session.services);
    services.any(|service| service.state == ServiceState::Up && service.address != "private")
}

/// Whether a visitor of a port is served.
async fn is_served(at: SocketAddr) -> bool {
    ask(at, "anything").await.as_deref() == Some(ANSWER)
}

/// Connects to a port again and again. Returns how many connections were refused when `during`
/// has ended.
async fn refused_during(at: SocketAddr, during: impl Future<Output = ()>) -> u32 {
    let mut refused = 0;
    let knock = async {
        loop {
            let outcome = TcpStream::connect(at).await;
            let is_refused = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
            refused += u32::from(outcome.as_ref().is_err_and(is_refused));
            sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        () = knock => {}
        () = during => {}
    }
    refused
}

/// Whether a visitor of a name is served.
async fn answers(door: SocketAddr) -> bool {
    ask(door, REQUEST).await.unwrap_or_default().ends_with("hello")
}

#[test]
fn a_process_with_links_to_two_nodes_has_its_services_at_both() {
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
        let services = services(target, tcp);
        let servers = format!("['one={}', 'two={}']", a.listen()[0], b.listen()[0]);
        let client = publish_at(&servers, &services).await;
        for (node, server) in [("a", &a), ("b", &b), ("c", &c)] {
            let port = SocketAddr::new(address(node).into(), tcp);
            eventually(&format!("the port of {node}"), async || is_served(port).await).await;
            let door = door(server, "http");
            eventually(&format!("the name at {node}"), async || answers(door).await).await;
        }
        // Both homes have the services, and keep them.
        for _ in 0..40 {
            assert!(publishes_here(&a).await && publishes_here(&b).await);
            sleep(Duration::from_millis(50)).await;
        }
        let sessions = client.status().await.sessions;
        let states: Vec<_> =
            sessions.iter().flat_map(|it| &it.services).map(|it| &it.state).collect();
        assert!(
            states.len() >= 2 && states.iter().all(|it| **it == ServiceState::Up),
            "{states:?}"
        );

        // Another process of the client replaces this process at both homes.
        let other = publish_all(&c, &services).await;
        let takes_over = async {
            eventually("the third node publishes", async || publishes_here(&c).await).await;
            eventually("the homes publish no more", async || {
                !publishes_here(&a).await && !publishes_here(&b).await
            })
            .await;
            let at = SocketAddr::new(address("a").into(), tcp);
            eventually("the port of a", async || is_served(at).await).await;
        };
        // The port stays open at a node that has the service no more, and whose visitors go on.
        let at = SocketAddr::new(address("a").into(), tcp);
        assert_eq!(refused_during(at, takes_over).await, 0);
        let has_yielded = async || {
            let sessions = client.status().await.sessions;
            sessions.iter().all(|session| session.state == SessionState::Superseded)
        };
        eventually("the former process has yielded at both homes", has_yielded).await;
        for node in ["a", "b", "c"] {
            let port = SocketAddr::new(address(node).into(), tcp);
            eventually(&format!("the port of {node}"), async || is_served(port).await).await;
        }
        client.close().await;
        other.close().await;
        for server in [a, b, c] {
            server.close().await;
        }
    });
}

#[test]
#[ignore = "measures time: the long step `timed`"]
fn visitors_of_other_nodes_notice_nothing_of_the_death_of_a_home() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        // Over TCP the end of a process is noticed at once; over QUIC after some seconds.
        let settings = |node, listen| {
            settings(node, &directory, &certificates, listen).replace("quic://", "tls://")
        };
        let (b, c) = (serve(&settings("b", 0)).await, serve(&settings("c", 0)).await);
        let listen = free_port();
        let one = NodeProcess::start(&settings("a", listen), &certificates);
        for server in [&b, &c] {
            sees(server, 3).await;
        }
        let (target, _origin) = origin(ANSWER).await;
        let tcp = free_port();
        let services = services(target, tcp);
        let servers = format!("['one=tcp://{}:{listen}', 'two={}']", address("a"), b.listen()[0]);
        let client = publish_at(&servers, &services).await;
        let port = |node| SocketAddr::new(address(node).into(), tcp);
        let doors = [door(&b, "http"), door(&c, "http")];
        for node in ["a", "b", "c"] {
            eventually(&format!("the port of {node}"), async || is_served(port(node)).await).await;
        }
        for door in doors {
            eventually("the name", async || answers(door).await).await;
        }
        eventually("the second home publishes", async || publishes_here(&b).await).await;
        drop(one);
        // A request is repeated at the other home. Bytes of other protocols are not: they wait here
        // until the third node has noticed the end of its connection.
        let serves = async || timeout(SECOND, is_served(port("c"))).await == Ok(true);
        let notices = eventually("the port of the third node", serves);
        let (answered, ()) = tokio::join!(async { answers(doors[1]).await }, notices);
        assert!(answered);
        // The lease of the node that died ends meanwhile.
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        while begin.elapsed() < Duration::from_secs(20) {
            let asked = Instant::now();
            let served = tokio::join!(
                is_served(port("b")),
                is_served(port("c")),
                answers(doors[0]),
                answers(doors[1]),
            );
            longest = longest.max(asked.elapsed());
            assert_eq!(served, (true, true, true, true), "after {:?}", begin.elapsed());
            sleep(SECOND / 20).await;
        }
        sees(&c, 2).await;
        println!("the longest visit took {longest:?}");
        client.close().await;
        b.close().await;
        c.close().await;
    });
}

#[test]
fn a_node_that_was_killed_leads_visitors_to_the_home_that_stayed_when_it_is_back() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let settings = |node, listen| {
            settings(node, &directory, &certificates, listen).replace("quic://", "tls://")
        };
        let b = serve(&settings("b", 0)).await;
        let listen = free_port();
        let killed = NodeProcess::start(&settings("a", listen), &certificates);
        sees(&b, 2).await;
        let (target, _origin) = origin(ANSWER).await;
        let tcp = free_port();
        let servers = format!("['one=tcp://{}:{listen}', 'two={}']", address("a"), b.listen()[0]);
        // The node that dies is the first one in the record.
        let client = publish_at(&servers, &services(target, tcp)).await;
        let port = SocketAddr::new(address("a").into(), tcp);
        eventually("the port of the first home", async || is_served(port).await).await;
        eventually("the second home publishes", async || publishes_here(&b).await).await;
        drop(killed);
        // The client finds no listener for clients there, so the record names the dead epoch.
        let a = serve(&settings("a", 0)).await;
        sees(&a, 2).await;
        eventually("the port of the node that is back", async || is_served(port).await).await;
        let door = door(&a, "http");
        eventually("the name at the node that is back", async || answers(door).await).await;
        client.close().await;
        a.close().await;
        b.close().await;
    });
}

#[test]
fn a_visitor_who_comes_before_the_client_has_another_home_is_served_there() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let settings = |node, listen| {
            settings(node, &directory, &certificates, listen).replace("quic://", "tls://")
        };
        let c = serve(&settings("c", 0)).await;
        let listen = [free_port(), free_port()];
        let killed = NodeProcess::start(&settings("a", listen[0]), &certificates);
        sees(&c, 2).await;
        let (target, _origin) = origin(ANSWER).await;
        let path = |node, port| format!("'tcp://{}:{port}'", address(node));
        let servers = format!("[{}, {}]", path("a", listen[0]), path("b", listen[1]));
        let client = publish_at(&servers, &services(target, free_port())).await;
        let door = door(&c, "http");
        eventually("the name", async || answers(door).await).await;
        drop(killed);
        // The visitor finds the record of the node that has died. The client logs in later.
        let later = async {
            sleep(SECOND / 2).await;
            serve(&settings("b", listen[1])).await
        };
        // The lease of the node that died is longer than this.
        let visit = timeout(6 * SECOND, answers(door));
        let (b, answered) = tokio::join!(later, visit);
        assert_eq!(answered, Ok(true));
        client.close().await;
        b.close().await;
        c.close().await;
    });
}

#[test]
fn a_client_of_one_server_finds_a_second_home_in_another_zone() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node, zone: &str| {
            let (listen, at) = (free_port(), address(node));
            let text = settings(node, &directory, &certificates, listen);
            let own = format!("zone: {zone}, clients: 'tcp://{at}:{listen}',");
            serve(&text.replace("zone: z,", &own)).await
        };
        let (a, b, c) = (start("a", "y").await, start("b", "y").await, start("c", "z").await);
        for server in [&a, &b, &c] {
            sees(server, 3).await;
        }
        let (target, _origin) = origin(ANSWER).await;
        let tcp = free_port();
        let config = client_config(&a.listen()[0], &services(target, tcp));
        let source = Box::new(|_| Err(ops::WrongConfig::one("no file".to_owned())));
        let client = client::start(config, source, None).await.unwrap();
        eventually("the configured server publishes", async || publishes_here(&a).await).await;
        eventually("the node of another zone publishes", async || publishes_here(&c).await).await;
        assert!(!publishes_here(&b).await);
        // The second home ends, and another node takes its place, whose port was open already.
        let at = SocketAddr::new(address("b").into(), tcp);
        eventually("the port of b", async || is_served(at).await).await;
        let takes_its_place = async {
            c.close().await;
            eventually("the node of the same zone publishes", async || publishes_here(&b).await)
                .await;
        };
        assert_eq!(refused_during(at, takes_its_place).await, 0);
        assert!(publishes_here(&a).await);
        client.close().await;
        for server in [a, b] {
            server.close().await;
        }
    });
}

#[test]
fn a_client_goes_to_an_emptier_node_and_keeps_its_other_home() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node, zone: &str| {
            let (listen, at) = (free_port(), address(node));
            let text = settings(node, &directory, &certificates, listen);
            let own = format!("zone: {zone}, clients: 'tcp://{at}:{listen}',");
            serve(&text.replace("zone: z,", &own)).await
        };
        let (a, b, c) = (start("a", "y").await, start("b", "y").await, start("c", "z").await);
        for server in [&a, &b, &c] {
            sees(server, 3).await;
        }
        let (target, _origin) = origin(ANSWER).await;
        let config = client_config(&a.listen()[0], &services(target, free_port()));
        let source = Box::new(|_| Err(ops::WrongConfig::one("no file".to_owned())));
        let client = client::start(config, source, None).await.unwrap();
        eventually("the configured server publishes", async || publishes_here(&a).await).await;
        eventually("the node of another zone publishes", async || publishes_here(&c).await).await;

        // As if a node had many links, and only one of the others none.
        let lets_go = async |server: &Server, other: &str, emptier: &str| {
            let node = server.node.as_ref().unwrap();
            let living = Arc::clone(&node.cluster().nodes().borrow());
            let others = [(other, 100), (emptier, 0)];
            let others = others.map(|(name, links)| (NodeId::new(name).unwrap(), links)).into();
            let loads = NodeLoads { own: 100, others, living };
            let (mut asked, mut count) = (AskedClients::default(), 0);
            for minute in 0..3 {
                let now = (8, minute, SECOND);
                count += let_go(node, &server.registry, &loads, now, &mut asked).await;
            }
            assert_eq!(count, 1, "the client is asked in one of three minutes");
        };
        eventually("the directory has both homes", async || {
            let places = a.locate("home".to_owned()).await.unwrap();
            places.iter().any(|place| place.nodes.len() == 2)
        })
        .await;
        lets_go(&c, "a", "b").await;
        eventually("the emptier node publishes", async || publishes_here(&b).await).await;
        eventually("the client has gone", async || !publishes_here(&c).await).await;
        assert!(publishes_here(&a).await);

        // A link to the configured server gets a successor there, because its file names no other.
        lets_go(&a, "b", "c").await;
        let has_homes = async || publishes_here(&a).await && publishes_here(&b).await;
        eventually("the client has its homes", has_homes).await;
        client.close().await;
        for server in [a, b, c] {
            server.close().await;
        }
    });
}

#[test]
fn visitors_with_a_password_are_served_by_the_home_that_stays() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node, listen| {
            let text = settings(node, &directory, &certificates, listen);
            serve(&text.replace("peers:", &format!("secret: {TOKEN}, peers:"))).await
        };
        let (a, c) = (start("a", 0).await, start("c", 0).await);
        let (target, _origin) = origin(ANSWER).await;
        let web = format!(
            "{{ name: web, target: 'tcp://127.0.0.1:{target}', public: 'http://app.example', \
             basic_auth: ['ann:swordfish'] }}"
        );
        // The second home is there later, so the record has its mark of the password.
        let listen = free_port();
        let servers = format!("['one={}', 'two=tcp://{}:{listen}']", a.listen()[0], address("b"));
        let client = publish_at(&servers, &web).await;
        eventually("the first home publishes", async || publishes_here(&a).await).await;
        let b = start("b", listen).await;
        eventually("the second home publishes", async || publishes_here(&b).await).await;
        let at = door(&c, "http");
        let asks = async |proof: &str| {
            let proof = format!("Connection: close\r\nAuthorization: Basic {proof}\r\n\r\n");
            ask(at, &REQUEST.replace("\r\n\r\n", &format!("\r\n{proof}"))).await.unwrap_or_default()
        };
        let is_served = async || asks("YW5uOnN3b3JkZmlzaA==").await.ends_with("hello");
        eventually("a visitor with the password", is_served).await;
        assert!(asks("YW5uOm1hcmxpbg==").await.starts_with("HTTP/1.1 401"));
        b.close().await;
        for _ in 0..20 {
            assert!(is_served().await);
            sleep(SECOND / 20).await;
        }
        client.close().await;
        a.close().await;
        c.close().await;
    });
}

#[test]
fn a_home_to_which_the_configured_server_has_moved_keeps_the_services() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let mut paths = Vec::new();
        let mut start = async |node, zone: &str| {
            let (listen, at) = (free_port(), address(node));
            paths.push(format!("'tcp://{at}:{listen}'"));
            let text = settings(node, &directory, &certificates, listen);
            let own = format!("zone: {zone}, clients: 'tcp://{at}:{listen}',");
            serve(&text.replace("zone: z,", &own)).await
        };
        let (a, b, c) = (start("a", "y").await, start("b", "z").await, start("c", "y").await);
        for server in [&a, &b, &c] {
            sees(server, 3).await;
        }
        let (target, _origin) = origin(ANSWER).await;
        let servers = format!("[{}, {}]", paths[0], paths[1]);
        let config = client_config(&servers, &services(target, free_port()));
        let source = Box::new(|_| Err(ops::WrongConfig::one("no file".to_owned())));
        let client = client::start(config, source, None).await.unwrap();
        eventually("the second home publishes", async || publishes_here(&b).await).await;
        assert!(publishes_here(&a).await && !publishes_here(&c).await);
        // The next path of the configured server leads to the second home, which goes when the
        // client has found another one.
        a.close().await;
        eventually("a third node publishes", async || publishes_here(&c).await).await;
        let is_removed = async || client.status().await.sessions.iter().all(|it| it.peer != "b");
        eventually("the former second home is no server any more", is_removed).await;
        let door = door(&b, "http");
        for _ in 0..20 {
            assert!(publishes_here(&b).await);
            assert_eq!(timeout(SECOND, answers(door)).await, Ok(true));
            sleep(SECOND / 10).await;
        }
        client.close().await;
        b.close().await;
        c.close().await;
    });
}

#[test]
fn a_port_that_is_in_use_at_another_node_opens_there_when_it_is_free() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let (a, b) = (
            start("a", &directory, &certificates).await,
            start("b", &directory, &certificates).await,
        );
        sees(&a, 2).await;
        let (target, _origin) = origin(ANSWER).await;
        let tcp = free_port();
        let port = |node| SocketAddr::new(address(node).into(), tcp);
        // As that of a former process of the client, which ends a moment later.
        let holder = TcpListener::bind(port("b")).await.unwrap();
        let client = publish_all(&a, &services(target, tcp)).await;
        eventually("the port of the node", async || is_served(port("a")).await).await;
        let name = door(&b, "http");
        eventually("the name at the other node", async || answers(name).await).await;
        drop(holder);
        eventually("the port of the other node", async || is_served(port("b")).await).await;
        client.close().await;
        a.close().await;
        b.close().await;
    });
}

#[test]
fn a_node_that_a_client_has_left_leads_to_the_home_that_stays() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node| start(node, &directory, &certificates).await;
        let (a, b) = (start("a").await, start("b").await);
        sees(&a, 2).await;
        sees(&b, 2).await;
        let (target, _origin) = origin(ANSWER).await;
        let services = services(target, free_port());
        let one = format!("'one={}'", a.listen()[0]);
        let both = client_config(&format!("[{one}, 'two={}']", b.listen()[0]), &services);
        let alone = client_config(&format!("[{one}]"), &services);
        let source =
            Box::new(move |_| Ok(ops::Loaded { config: alone.clone(), warnings: Vec::new() }));
        let client = client::start(both, source, None).await.unwrap();
        for server in [&a, &b] {
            eventually("both publish", async || publishes_here(server).await).await;
        }
        let door = door(&b, "http");
        eventually("the name at the home that goes", async || answers(door).await).await;
        // Visitors come while the client leaves: they find a record that names this node still.
        let visits = async {
            let begin = Instant::now();
            while begin.elapsed() < SECOND {
                answers(door).await;
                sleep(SECOND / 500).await;
            }
        };
        let (reloaded, ()) = tokio::join!(client.reload(), visits);
        reloaded.unwrap();
        eventually("the client has left", async || !publishes_here(&b).await).await;
        // Long before the node forgets what it has found.
        let serves = eventually("the name at the node that it left", async || answers(door).await);
        timeout(15 * SECOND, serves).await.unwrap();
        client.close().await;
        a.close().await;
        b.close().await;
    });
}

#[test]
fn a_process_that_was_replaced_looks_for_no_further_home() {
    run(async {
        let members = Members::start(1, &[]).await;
        let directory = format!("{{ etcd: 'http://{}' }}", members.settings(SOON).members[0]);
        let certificates = Certificates::new();
        let start = async |node| {
            let (listen, at) = (free_port(), address(node));
            let text = settings(node, &directory, &certificates, listen);
            let own = format!("zone: {node}, clients: 'tcp://{at}:{listen}',");
            serve(&text.replace("zone: z,", &own)).await
        };
        let (a, b, c) = (start("a").await, start("b").await, start("c").await);
        for server in [&a, &b, &c] {
            sees(server, 3).await;
        }
        let (target, _origin) = origin(ANSWER).await;
        let services = services(target, free_port());
        let begin = async |homes: &str| {
            let config = client_config(&a.listen()[0], &services);
            let homes = if homes == "1" { std::num::NonZeroUsize::new(1) } else { None };
            let config = config::ClientConfig { homes, ..config };
            let source = Box::new(|_| Err(ops::WrongConfig::one("no file".to_owned())));
            client::start(config, source, None).await.unwrap()
        };
        let former = begin("auto").await;
        let has_two = async || publishes_here(&b).await || publishes_here(&c).await;
        eventually("the second home publishes", has_two).await;
        let third = if publishes_here(&b).await { &c } else { &b };
        let newer = begin("1").await;
        let has_yielded = async || {
            let sessions = former.status().await.sessions;
            sessions.iter().all(|session| session.state == SessionState::Superseded)
        };
        eventually("the former process has yielded at both homes", has_yielded).await;
        // A client that has lost a home has another one after 6 s.
        for _ in 0..40 {
            assert!(publishes_here(&a).await && !publishes_here(third).await);
            sleep(SECOND / 5).await;
        }
        former.close().await;
        newer.close().await;
        for server in [a, b, c] {
            server.close().await;
        }
    });
}
