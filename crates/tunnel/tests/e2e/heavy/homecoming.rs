//! A very large number of clients come to the nodes of a cluster at the same time.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use benches::herd::Herd;
use benches::server::{Server, dialer};
use proto::greeting::{Name, Token};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::sleep;

use super::herd::until;
use crate::cluster::Stage;

const CLIENTS: usize = 10_000;

/// The names that are visited at each node, one after the other: each fortieth. A visit takes 3 ms
/// where the nodes, etcd, the clients and the visitors share two cores.
const VISITED: usize = CLIENTS / 40;

const DOMAIN: &str = "many.test";

/// The token of each client.
const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// The most time until all clients are reachable at each node.
const REACHABLE: Duration = Duration::from_secs(10);

/// Visits a name, and returns the first line of the answer.
async fn visit(door: SocketAddr, host: &str) -> String {
    let mut stream = TcpStream::connect(door).await.unwrap();
    let asked = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn ten_thousand_clients_come_back_to_three_nodes_at_once() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut lines = String::new();
    for n in 0..CLIENTS {
        // A file of a configuration has 1 MiB at most.
        writeln!(lines, "  - {{name: c{n},token: {TOKEN},allow: {{http: '*.{DOMAIN}'}}}}").unwrap();
    }
    let stage = Stage::with_clients(lines);
    let servers = stage.doors().map(|[clients, _]| Server {
        url: format!("tcp://{clients}"),
        address: clients,
        dialer: dialer("tcp", clients, "", None).unwrap(),
    });
    let token = Token::new(TOKEN).unwrap();
    let start = || {
        let names = (0..CLIENTS).map(|n| Name::new(&format!("c{n}")).unwrap());
        Herd::publish(&servers, &token, names, DOMAIN)
    };
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let (herd, before) = (start(), stage.cpu());
        let first = until("all are there", 30 * REACHABLE, || herd.published() == CLIENTS).await;
        println!("all published within {first:?}: {:?} of the nodes' CPU", stage.cpu() - before);
        assert_eq!(herd.take_refusals(), Vec::<String>::new());

        // Each client is a new process, which takes the place of its former process.
        drop(herd);
        sleep(Duration::from_secs(3)).await;
        let (begun, before) = (Instant::now(), stage.cpu());
        let herd = start();
        let back = until("all are back", 30 * REACHABLE, || herd.published() == CLIENTS).await;
        println!("all published again within {back:?}: {:?} of CPU", stage.cpu() - before);
        println!("refused meanwhile: {}", herd.take_refusals().len());
        let doors = stage.doors().map(|[_, names]| names);
        let visits = doors.map(|door| async move {
            for n in (0..CLIENTS).step_by(CLIENTS / VISITED) {
                let host = format!("c{n}.{DOMAIN}");
                let answer = visit(door, &host).await;
                // The client refuses its visitors: nobody but the client answers so.
                assert!(answer.contains(" 502 "), "{host} at {door}: {answer}");
            }
        });
        let [a, b, c] = visits;
        tokio::join!(a, b, c);
        println!("{VISITED} names visited at each node {:?} after the begin", begun.elapsed());
        assert!(herd.visits() >= 3 * VISITED, "{} visits arrived", herd.visits());
        // Each visit was served at its first attempt.
        assert!(back < REACHABLE, "{back:?}");
    });
}
