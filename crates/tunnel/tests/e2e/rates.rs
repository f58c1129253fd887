//! Surplus streams are refused at once, and surplus datagrams are dropped, each with its counter.
//! `slow::rates` measures rates of bytes in wall-clock time; `relay/src/pace.rs` has how exact they
//! are, in virtual time.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};

use testkit::stage::Daemon;

use crate::harness::{LONG, Origin, SOON, Scheme, free_port, tunnel, wait, wait_listening};
use crate::reload::echo;
use crate::udp::Echo;
use crate::visitors::visit_from;

#[test]
fn surplus_streams_are_refused_at_once_and_by_source() {
    let origin = Origin::echo();
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let file = dir.path().join("proxy.yaml");
    let text = format!(
        "control: {}\nproxies:\n  - {{ listen: \"tcp://127.0.0.1:{port}\", target: \
         \"tcp://127.0.0.1:{}\", limits: {{ connections: 3, source: {{ streams: 2 }} }} }}\n",
        dir.path().join("proxy.sock").display(),
        origin.port()
    );
    fs::write(&file, text).unwrap();
    let mut command = tunnel(&["proxy", "--workers", "2", "--config"]);
    let _proxy = Daemon::start("proxy", dir.path(), command.arg(&file));
    wait_listening(port, SOON);
    // The connection of the wait is over.
    let held: Vec<_> = wait("two of one source", SOON, || {
        let held: Vec<_> = (0..2).map(|_| visit_from(5, port).unwrap()).collect();
        held.iter().all(serves).then_some(held)
    });
    assert!(!serves(&visit_from(5, port).unwrap()), "a third one of the source");
    let third = visit_from(6, port).unwrap();
    echo(&third, 3);
    assert!(!serves(&visit_from(7, port).unwrap()), "a fourth one in all");
    held.iter().for_each(|one| echo(one, 4));
}

/// Whether a connection is served.
fn serves(mut stream: &TcpStream) -> bool {
    let mut back = [0];
    stream.write_all(b"x").is_ok() && stream.read(&mut back).ok() == Some(1)
}

#[test]
fn datagrams_beyond_a_rate_are_dropped_and_counted() {
    let origin = Echo::start();
    let (mut setup, port) = crate::udp::one_service(Scheme::QUIC, origin.port());
    setup.client_lines = setup.client_lines.replace(" }\n", ", limits: { up: 10KB/s } }\n");
    let running = crate::udp::start(setup, 1);
    let visitor = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    visitor.set_read_timeout(Some(LONG)).unwrap();
    visitor.connect(("127.0.0.1", port)).unwrap();
    for _ in 0..100 {
        visitor.send(&[1; 1000]).unwrap();
    }
    let mut answer = [0; 2000];
    assert_eq!(visitor.recv(&mut answer).unwrap(), 1000);
    wait("the counter", SOON, || {
        let status = running.status("client")?;
        let dropped = status["sessions"][0]["services"][0]["dropped"]["rate"].as_u64()?;
        (50..100).contains(&dropped).then_some(())
    });
}
