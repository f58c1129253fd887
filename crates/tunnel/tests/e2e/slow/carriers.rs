//! The carriers of a client with two and four paths over different transports die and move again
//! and again under load, and no byte is lost.

use std::env;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::netem::Rng;
use testkit::stage::Running;
use testkit::wire::{Reach, Trouble, Wire};

use crate::harness::{LONG, Origin, Scheme, Setup, bytes, connect, free_port, run, tunnel};

/// Connections that are killed or moved in each case, which takes minutes. `TUNNEL_TEST_KILLS` sets
/// another number: 5,000 take up to half an hour where other work shares the cores.
const KILLS: u64 = 1_000;

/// The longest pause between two faults, in ms. A link resumes within a few ms over a standby, so
/// most of the faults hit a link that carries.
const PAUSE: u64 = 60;

/// The bytes of a stream in each direction.
const PIECE: u64 = 3_000_000;

/// Visitors at the same time.
const VISITORS: usize = 6;

/// A server with a listener of each of the schemes, a client with a path to each listener through
/// a wire of its own, and the wires with the URLs of their paths.
fn paths(origin: &Origin, schemes: &[Scheme], links: usize) -> (Running, Vec<(Wire, String)>) {
    let [first, others @ ..] = schemes else { panic!("no path") };
    let lines = |more: &str| format!("workers: 2\nresume_timeout: 60s\n{more}");
    let mut setup = Setup::new(*first).service("echo", origin.port());
    setup.server_lines = lines("");
    setup.client_lines = lines(&format!("connections: {links}\nspread: by_stream\n"));
    let url = |scheme: &Scheme, port: u16| {
        let place = if scheme.http { "/tunnel" } else { "" };
        format!("{}://127.0.0.1:{port}{place}", scheme.name)
    };
    let ports: Vec<_> = others.iter().map(|_| free_port()).collect();
    setup.more_listen =
        others.iter().zip(&ports).map(|(scheme, port)| url(scheme, *port)).collect();
    let ports: Vec<_> = std::iter::once(setup.server_port()).chain(ports).collect();
    let mut running = setup.start_server();
    let wires = schemes.iter().zip(ports).map(|(scheme, port)| {
        let wire = Wire::to(port);
        let url = url(scheme, wire.port());
        (wire, url)
    });
    let wires: Vec<_> = wires.collect();
    let list: Vec<_> = wires.iter().map(|(_, url)| format!("\"{url}\"")).collect();
    running.edit_client(|text| {
        let rest = text.split_once('\n').unwrap().1;
        format!("servers: [{}]\n{rest}", list.join(", "))
    });
    running.start_client();
    running.wait_echo(running.public("echo"));
    (running, wires)
}

/// Visitors send and check bytes until `is_over` is set; each stream ends with a FIN both ways.
fn visit(port: u16, is_over: &AtomicBool, streams: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let near = connect(port);
        near.set_read_timeout(Some(LONG)).unwrap();
        near.set_write_timeout(Some(LONG)).unwrap();
        let far = near.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                bytes::send(&near, PIECE);
                near.shutdown(Shutdown::Write).unwrap();
            });
            bytes::expect(&far, PIECE);
            bytes::expect_end(&far);
        });
        streams.fetch_add(1, Ordering::Relaxed);
    }
}

/// Kills and moves at random, until `total` of them have hit a connection. Returns the number of
/// kills, and of links that moved.
fn trouble(running: &Running, wires: &[(Wire, String)], rng: &mut Rng, total: u64) -> [u64; 2] {
    let [mut kills, mut moves] = [0; 2];
    let mut told = 0;
    while kills + moves < total {
        std::thread::sleep(Duration::from_millis(rng.below(PAUSE)));
        let (wire, url) = &wires[rng.below(wires.len() as u64) as usize];
        if rng.chance(300) {
            let mut command = tunnel(&["move", "--control"]);
            let output = run(command.arg(running.file("client.sock")).args(["--to", url]));
            // A link whose path has died meanwhile stays, and says so.
            let said = String::from_utf8_lossy(&output.stdout);
            moves += said.matches(" moved from ").count() as u64;
        } else {
            let reach = if rng.chance(500) {
                Reach::All
            } else {
                Reach::One(u32::try_from(rng.below(1 << 16)).unwrap())
            };
            let trouble =
                if rng.chance(800) { Trouble::Reset(reach) } else { Trouble::Close(reach) };
            kills += wire.suffer(trouble) as u64;
        }
        if (kills + moves) / 500 > told {
            told = (kills + moves) / 500;
            println!("{} of {total} faults", told * 500);
        }
    }
    [kills, moves]
}

/// The case with these transports.
fn no_byte_is_lost(schemes: &[Scheme], links: usize, seed: u64) {
    let total = env::var("TUNNEL_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let origin = Origin::echo();
    let (running, wires) = paths(&origin, schemes, links);
    let port = running.public("echo");
    let (is_over, streams) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    let [kills, moves] = std::thread::scope(|scope| {
        for _ in 0..VISITORS {
            scope.spawn(|| visit(port, &is_over, &streams));
        }
        let done = trouble(&running, &wires, &mut Rng::new(seed), total);
        is_over.store(true, Ordering::Relaxed);
        done
    });
    let streams = streams.into_inner();
    println!(
        "{} paths, seed {seed}: {kills} kills, {moves} moves, {streams} streams of {PIECE} bytes \
         each way in {:?}",
        schemes.len(),
        start.elapsed()
    );
    assert!(moves > total / 50, "{moves} moves");
    assert!(streams > total / 100, "{streams} streams");
}

#[test]
fn two_carriers_killed_and_moved_again_and_again_lose_no_byte() {
    no_byte_is_lost(&[Scheme::TLS, Scheme::WSS], 2, 57);
}

#[test]
fn four_carriers_of_four_transports_killed_and_moved_again_and_again_lose_no_byte() {
    no_byte_is_lost(&[Scheme::TLS, Scheme::QUIC, Scheme::WSS, Scheme::KCP], 4, 58);
}
