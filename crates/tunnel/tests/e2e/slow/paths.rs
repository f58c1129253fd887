//! UDP paths that are blocked, rate-limited or rebound during transfers. These cases are slow or
//! depend on the machine: a preferred path is tried again once per minute, and the speed of the
//! machine decides whether a carrier survives 7 rebindings. `link/tests/link/paths.rs` and
//! `transport-quic/tests/paths.rs` test the same rules in virtual time or in one process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use testkit::wire::Entry;

use crate::harness::{LONG, Origin, Scheme, Setup, bytes, connect, free_port, side_by_side};
use crate::quic::{FAR, MB, OVER_UDP, both_ways, carriers, down_and_up, wait_passed};

/// Four connections, so that packets from another port go to the other worker's socket for some of
/// them every time; the ids in the packets bring them back.
#[test]
fn a_nat_that_rebinds_in_mid_transfer_costs_no_byte_and_no_carrier() {
    side_by_side(&OVER_UDP, |scheme| {
        const LINKS: usize = 4;
        let origin = both_ways(20 * MB);
        let mut setup = Setup::new(scheme).service("bulk", origin.port()).wired_with(LINKS);
        setup.server_lines.push_str("workers: 2\n");
        let running = setup.start();
        running.wait_links(LINKS);
        let before = carriers(&running);
        assert_eq!(before.0.len(), LINKS, "{before:?}");
        let port = running.public("bulk");
        let visitors: Vec<_> =
            (0..LINKS).map(|_| thread::spawn(move || down_and_up(port, 20 * MB))).collect();
        for _ in 0..7 {
            wait_passed(&running, 20 * MB);
            running.wire().rebind().unwrap();
        }
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        (0..LINKS).for_each(|_| origin.wait_one(LONG));
        assert_eq!(carriers(&running), before, "the same connections, and nothing was resumed");
        assert_eq!(before.1, 0);
    });
}

/// Five times what `design` allows: another transport carries within 5 s.
const CARRIES: Duration = Duration::from_secs(25);

/// The preferred path is tried once a minute while another one carries.
const TAKEN_BACK: Duration = Duration::from_secs(150);

/// Blocked before the client comes, given free, and blocked again under a transfer.
#[test]
fn where_udp_is_blocked_tls_carries_until_it_is_open_again() {
    side_by_side(&OVER_UDP, |scheme| {
        let origin = Origin::start(move |mut stream| {
            for total in [5 * MB, 60 * MB] {
                stream.read_exact(&mut [0]).unwrap();
                bytes::send(&stream, total);
            }
        });
        let mut setup = Setup::new(scheme).service("bulk", origin.port()).wired();
        let second = format!("tls://127.0.0.1:{}", free_port());
        setup.more_listen.push(second.clone());
        let mut running = setup.start_server();
        running.edit_client(|text| text.replacen("\"]", &format!("\", \"{second}\"]"), 1));
        running.wire().entry(Entry::Silent);
        let start = Instant::now();
        running.start_client();
        running.client().wait_line(&["connected to tls://"], CARRIES);
        running.wait_ready();
        println!("blocked from the start: carried after {:?}", start.elapsed());

        // A stream that stays open.
        let mut visitor = connect(running.public("bulk"));
        visitor.set_read_timeout(Some(TAKEN_BACK)).unwrap();
        visitor.write_all(b"1").unwrap();
        bytes::expect(&visitor, 5 * MB);
        running.wire().entry(Entry::Open);
        let start = Instant::now();
        running.client().wait_line(&[&format!("resumed over {}://", scheme.name)], TAKEN_BACK);
        println!("open again: taken back after {:?}", start.elapsed());

        visitor.write_all(b"2").unwrap();
        let download = thread::spawn(move || {
            bytes::expect(&visitor, 60 * MB);
            bytes::expect_end(&visitor);
        });
        wait_passed(&running, 3 * MB);
        running.wire().entry(Entry::Silent);
        running.wire().freeze();
        let start = Instant::now();
        running.client().wait_line(&["resumed over tls://"], CARRIES);
        println!("blocked under a stream: carried after {:?}", start.elapsed());
        download.join().unwrap();
        println!("all had come after {:?}", start.elapsed());
        origin.wait_one(LONG);
    });
}

/// A network that lets a megabit a second of UDP through, both ways, while a user downloads or
/// uploads.
#[test]
fn where_udp_is_policed_tls_carries_until_udp_is_free_again() {
    side_by_side(&OVER_UDP, |scheme| {
        let download: [Half; 2] =
            [|stream| bytes::send(stream, 40 * MB), |stream| bytes::expect(stream, 40 * MB)];
        let [serve, visit] = download;
        thread::scope(|threads| {
            threads.spawn(|| policed(scheme, "download", serve, visit));
            threads.spawn(|| policed(scheme, "upload", visit, serve));
        });
    });
}

type Half = fn(&TcpStream);

fn policed(scheme: Scheme, what: &str, serve: Half, visit: Half) {
    const POLICED: u64 = 125_000;
    let origin = Origin::start(move |mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        serve(&stream);
    });
    let mut setup = Setup::new(scheme).service("bulk", origin.port()).wired();
    let second = format!("tls://127.0.0.1:{}", free_port());
    setup.more_listen.push(second.clone());
    for lines in [&mut setup.server_lines, &mut setup.client_lines] {
        // As over Ethernet: four packets of loopback would be more than the path carries in half a
        // second.
        lines.push_str("quic: { mtu: 1472 }\nkcp: { mtu: 1472 }\n");
    }
    let mut running = setup.start_server();
    running.edit_client(|text| text.replacen("\"]", &format!("\", \"{second}\"]"), 1));
    running.wire().delay(FAR);
    running.start_client();
    running.client().wait_line(&[&format!("connected to {}://", scheme.name)], CARRIES);
    running.wait_ready();
    running.wire().police(POLICED);
    let mut visitor = connect(running.public("bulk"));
    visitor.set_read_timeout(Some(TAKEN_BACK)).unwrap();
    let start = Instant::now();
    visitor.write_all(b"1").unwrap();
    let transfer = thread::spawn(move || {
        visit(&visitor);
        bytes::expect_end(&visitor);
    });
    running.client().wait_line(&["resumed over tls://"], CARRIES);
    println!("{what}: tls carries after {:?}", start.elapsed());
    transfer.join().unwrap();
    origin.wait_one(LONG);
    println!("{what}: all had come after {:?}", start.elapsed());
    running.wire().police(0);
    running.client().wait_line(&[&format!("resumed over {}://", scheme.name)], TAKEN_BACK);
    println!("{what}: taken back after {:?}", start.elapsed());
}
