//! What somebody who looks at the console of a large server costs it.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use benches::herd::Herd;
use benches::server::Server;
use proto::greeting::{Name, Token};
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::sleep;

use super::herd::{BACK, until};
use super::neighbours::{raise_descriptor_limit, visitors, wait_active};
use crate::admin::{Api, TOKEN};
use crate::harness::{Nginx, Scheme, Setup, free_port, run, tunnel};
use crate::peer::dialer;

/// Clients, of which this process holds the links.
const CLIENTS: usize = 5000;

/// Streams, of which this process holds the visitors. Server and this process have a descriptor for
/// each client and each visitor, and the usual limit of a process is 20,000.
const STREAMS: usize = 12_000;

/// How long is measured without and with a viewer.
const SPAN: Duration = Duration::from_secs(20);

/// What each page of the console looks at (`console/feed.js`).
const PAGES: &[(&str, &str)] = &[
    ("overview", "totals,needs,busiest"),
    ("clients", "totals,clients,services"),
    ("services", "totals,services"),
    ("streams", "totals,streams:200"),
    ("log", "totals,log"),
];

/// The aim for each page. With the static binary on 2 cores (2026-11-27, a quiet machine) the
/// overview takes 0.85 %, the services 0.8 %, the clients and the log 1.1 %, the streams 1.35 %.
/// Before pages got what has changed, the overview took 14 % to 18 %.
const AIM: f64 = 0.01;

/// Most of a core for each page: a busy machine and a build for tests get five times the aim.
const MOST: f64 = 5.0 * AIM;

/// Reads lines of events until its connection is shut down.
fn viewer(port: u16, topics: &str, heard: &Arc<AtomicU64>) -> (TcpStream, thread::JoinHandle<u64>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "GET /api/v1/events?changes=true&topics={topics} HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {TOKEN}\r\n\r\n"
    )
    .unwrap();
    let (from, heard) = (BufReader::new(stream.try_clone().unwrap()), Arc::clone(heard));
    let reading = thread::spawn(move || {
        let mut bytes = 0;
        for line in from.split(b'\n') {
            let Ok(line) = line else { break };
            bytes += line.len() as u64;
            if line.starts_with(b"{") {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        }
        bytes
    });
    (stream, reading)
}

#[test]
fn a_viewer_of_five_thousand_clients_costs_little() {
    let (_, hard) = raise_descriptor_limit();
    let hard = usize::try_from(hard).unwrap();
    let clients = CLIENTS.min(hard / 4);
    let streams = STREAMS.min(hard.saturating_sub(clients + 2_000));
    let scheme = Scheme::TLS;
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    let token = token.trim();
    let mut setup = Setup::alone(scheme);
    for n in 0..clients {
        writeln!(setup.server_lines, "  - {{ name: c{n}, token: \"{token}\" }}").unwrap();
    }
    let api = Api(free_port());
    setup.server_lines.push_str(&api.lines());
    let nginx = Nginx::start(setup.dir(), "keepalive_timeout 1h;");
    let running = setup.service("web", nginx.port).start();
    let idle = visitors(running.public("web"), streams);
    let status = format!("http://127.0.0.1:{}/status", nginx.port);
    wait_active(&status, |active| active >= streams);

    let (dialer, port) = (dialer(&running), running.server_port());
    let server = Server {
        url: format!("{}://127.0.0.1:{port}", scheme.name),
        address: ([127, 0, 0, 1], port).into(),
        dialer,
    };
    let token = Token::new(token).unwrap();
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let names = (0..clients).map(|n| Name::new(&format!("c{n}")).unwrap());
        let herd = Herd::start(&server, &token, names);
        until("all are there", BACK, || herd.live() == clients).await;
        // What the log-ins still have to do.
        sleep(Duration::from_secs(5)).await;
        let used = async || {
            let before = running.server.cpu();
            sleep(SPAN).await;
            (running.server.cpu() - before).as_secs_f64() / SPAN.as_secs_f64()
        };
        let alone = used().await;
        println!("{clients} clients and {streams} streams: {:.2} % of a core", alone * 100.0);
        for (page, topics) in PAGES {
            let heard = Arc::new(AtomicU64::new(0));
            let (connection, reading) = viewer(api.0, topics, &heard);
            // The first look, and its tables, are not what each second costs.
            sleep(Duration::from_secs(2)).await;
            let lines = heard.load(Ordering::Relaxed);
            let with = used().await;
            let lines = heard.load(Ordering::Relaxed) - lines;
            connection.shutdown(Shutdown::Both).unwrap();
            let bytes = reading.join().unwrap();
            let more = with - alone;
            println!(
                "{page}: {:.2} % of a core more, aim {:.0} %; {lines} lines in {SPAN:?}, {bytes} bytes \
                 in all",
                more * 100.0,
                AIM * 100.0
            );
            // A line of totals each second; `needs` and `log` have lines when there is news.
            assert!(lines >= SPAN.as_secs() / 2, "{page}: {lines} lines");
            assert!(more < MOST, "{page}: {more}");
        }
        assert!(herd.is_whole(), "nobody gave up");
    });
    drop(idle);
}
