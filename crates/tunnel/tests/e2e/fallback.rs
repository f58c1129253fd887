//! Two paths to one server, with `tls://` preferred: while `tls://` is blocked, `wss://` carries
//! the streams. The return to the preferred path is tested in virtual time in
//! `link/tests/link/paths.rs`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::wire::Entry;

use crate::harness::{Origin, Scheme, Setup, connect, free_port};

/// Five times what `design` allows: another transport carries within 5 s.
const CARRIES: Duration = Duration::from_secs(25);

fn echo(visitor: &mut TcpStream, byte: u8) {
    visitor.set_read_timeout(Some(CARRIES)).unwrap();
    visitor.write_all(&[byte]).unwrap();
    let mut back = [0];
    visitor.read_exact(&mut back).unwrap();
    assert_eq!(back, [byte]);
}

/// A server with both, and a client that reaches `tls://` over a wire.
fn two_paths(origin: &Origin) -> testkit::stage::Running {
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port()).wired();
    let second = format!("wss://127.0.0.1:{}/tunnel", free_port());
    setup.more_listen.push(second.clone());
    let running = setup.start_server();
    running.edit_client(|text| text.replacen("\"]", &format!("\", \"{second}\"]"), 1));
    running
}

#[test]
fn a_path_blocked_from_the_start_gives_way_to_a_web_socket() {
    for entry in [Entry::Refused, Entry::Silent] {
        let origin = Origin::echo();
        let mut running = two_paths(&origin);
        running.wire().entry(entry);
        let start = Instant::now();
        running.start_client();
        // The log says which link uses which path, and why.
        let reason = match entry {
            Entry::Refused => " failed (",
            Entry::Open | Entry::Silent => " did not answer within 2 s",
        };
        let line = running.client().wait_line(&[" is connected to wss://", ", because "], CARRIES);
        assert!(line.contains("INFO link 1 is connected"), "{line}");
        let (_, because) = line.split_once(", because tls://127.0.0.1:").unwrap();
        assert!(because.contains(reason), "{line}");
        running.wait_ready();
        echo(&mut connect(running.public("echo")), 1);
        println!("{entry:?}: carried after {:?}", start.elapsed());
    }
}

#[test]
fn a_path_blocked_under_a_stream_gives_way_to_a_web_socket() {
    let origin = Origin::echo();
    let mut running = two_paths(&origin);
    running.start_client();
    running.client().wait_line(&["connected to tls://"], CARRIES);
    running.wait_ready();
    let mut visitor = connect(running.public("echo"));
    echo(&mut visitor, 1);
    running.wire().entry(Entry::Silent);
    running.wire().freeze();
    let start = Instant::now();
    echo(&mut visitor, 2);
    println!("a stream went on after {:?}", start.elapsed());
    let line = running.client().wait_line(&["resumed over wss://"], CARRIES);
    assert!(line.contains("INFO link 1 resumed over wss://127.0.0.1:"), "{line}");
    assert!(line.contains(", because tls://127.0.0.1:") && line.contains(" is silent"), "{line}");
}
