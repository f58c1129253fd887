//! Addresses other than one port on all IPv4 addresses.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpStream};

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, bytes, free_port};

const MB: u64 = 1_000_000;

#[test]
fn everything_can_be_on_ipv6() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start_on("[::1]:0", |stream| {
            bytes::expect(&stream, MB);
            bytes::expect_end(&stream);
            bytes::send(&stream, MB);
        });
        let setup = Setup::new(scheme).on_ipv6().service("six", origin.port());
        let mut running = setup.forward(origin.port()).start();
        for port in [running.public("six"), running.local()] {
            let visitor = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
            visitor.set_read_timeout(Some(LONG)).unwrap();
            bytes::send(&visitor, MB);
            visitor.shutdown(std::net::Shutdown::Write).unwrap();
            bytes::expect(&visitor, MB);
            bytes::expect_end(&visitor);
            origin.wait_one(SOON);
        }
        let reached = format!("tcp://[::1]:{}", running.public("six"));
        running.client().wait_line(&["six -> ", &reached], SOON);
    }
}

#[test]
fn a_port_that_the_server_chooses_is_told_and_stays_with_the_client() {
    let (origin, allowed) = (Origin::echo(), [free_port(), free_port()]);
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    setup.allow.extend(allowed);
    let mut running = setup.start_server();
    let fixed = running.public("echo");
    running.edit_client(|text| text.replace(&format!("tcp://:{fixed}"), "tcp://:0"));
    let told = |line: &str| line.rsplit(':').next().unwrap().trim().parse::<u16>().unwrap();

    running.start_client();
    let port = told(&running.client().wait_line(&["echo -> tcp://127.0.0.1:"], SOON));
    assert!(port == fixed || allowed.contains(&port), "{port} is none of the allowed ports");
    running.wait_echo(port);

    // Its log goes on in the same file, so that the second answer is the last line of its kind.
    running.client().kill();
    running.start_client();
    let port_again = crate::harness::wait("the port is told again", SOON, || {
        let log = running.client().log();
        let lines: Vec<_> = log.lines().filter(|line| line.contains("echo -> tcp://")).collect();
        (lines.len() == 2).then(|| told(lines[1]))
    });
    assert_eq!(port_again, port, "visitors know the port");
    let mut visitor = crate::harness::connect(port);
    visitor.write_all(b"?").unwrap();
    visitor.read_exact(&mut [0]).unwrap();
}
