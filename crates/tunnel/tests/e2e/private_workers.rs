//! A stream to a private service whose two links are on one worker of the server, and one whose
//! links are on two workers: the server joins the first within the worker, and the second across
//! threads.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, UdpSocket};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use crate::harness::{LONG, Origin, Scheme, Setup, bytes, connect, free_port, wait};
use crate::private::{Stage, forward, private, relayed, tcp};

/// The bytes of each direction: more than all windows on the way.
const BYTES: u64 = 40_000_000;

/// The client whose links are asked for may be on any of 4 workers, so a round finds each case with
/// a chance of 1/4 at least: the chance that so many rounds miss a case is below 1e-12.
const ROUNDS: usize = 100;

/// The worker of the server that has the one link of a client.
fn worker(stage: &Stage, client: &str) -> u64 {
    wait("one live link", LONG, || {
        let status = stage.running.status("server")?;
        let sessions = status["sessions"].as_array()?;
        let own: Vec<_> = sessions.iter().filter(|session| session["peer"] == client).collect();
        let [session] = own[..] else { return None };
        let [link] = &session["links"].as_array()?[..] else { return None };
        (link["state"] == "up").then(|| link["worker"].as_u64())?
    })
}

#[test]
fn streams_and_datagrams_are_joined_within_a_worker_and_across_two() {
    // Takes all before it answers: a half-close has to pass, and what follows it.
    let half = Origin::start(|stream| {
        bytes::expect(&stream, BYTES);
        bytes::expect_end(&stream);
        bytes::send(&stream, BYTES);
    });
    let reset = Origin::start(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = udp.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((n, from)) = udp.recv_from(&mut datagram) {
            let _ = udp.send_to(&datagram[..n], from);
        }
    });
    let services = [
        private("half", &tcp(half.port())),
        private("reset", &tcp(reset.port())),
        private("dns", &format!("udp://127.0.0.1:{udp_port}")),
    ];
    let mut setup = Setup::new(Scheme::TLS);
    setup.client_lines.push_str("connections: 1\nworkers: 1\n");
    let mut stage = Stage::with(setup, "home/*", &services, "workers: 4\n");
    let home = worker(&stage, "home");
    let [to_half, to_reset, to_udp] = [(); 3].map(|()| free_port());
    let lines = format!(
        "forwards:\n{}{}{}",
        relayed(&tcp(to_half), "home/half"),
        relayed(&tcp(to_reset), "home/reset"),
        forward(&format!("udp://127.0.0.1:{to_udp}"), "home/dns").replace(" }", ", p2p: relay }")
    );
    let mut seen = [false; 2];
    for _ in 0..ROUNDS {
        stage.visit(&lines);
        let across = worker(&stage, "laptop") != home;
        if std::mem::replace(&mut seen[usize::from(across)], true) {
            continue;
        }
        let visitor = connect(to_half);
        bytes::send(&visitor, BYTES);
        visitor.shutdown(Shutdown::Write).unwrap();
        bytes::expect(&visitor, BYTES);
        bytes::expect_end(&visitor);
        half.wait_one(LONG);
        let mut visitor = connect(to_reset);
        visitor.write_all(b"?").unwrap();
        bytes::expect_reset(visitor);
        reset.wait_one(LONG);
        let local = UdpSocket::bind("127.0.0.1:0").unwrap();
        local.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        wait("an answer by datagram", LONG, || {
            local.send_to(b"question", ("127.0.0.1", to_udp)).unwrap();
            let n = local.recv(&mut [0; 64]).ok()?;
            assert_eq!(n, b"question".len());
            Some(())
        });
        if seen == [true; 2] {
            return;
        }
    }
    panic!("within a worker and across two: {seen:?}");
}
