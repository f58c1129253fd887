//! Datagrams of every size over every transport, through services and forwards (reliability 6).

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::time::Duration;

use super::{Echo, LARGEST, ask, one_service, pattern, start, visitor};
use crate::harness::{Scheme, free_port, side_by_side};

/// Sizes around every border: of IP packets, of QUIC's datagrams, of fragments, of UDP itself.
fn sizes() -> impl Iterator<Item = usize> {
    let borders =
        [0, 1, 512, 1_024, 1_152, 1_200, 1_280, 1_472, 1_500, 4_096, 9_000, 16_384, 32_768];
    let around =
        borders.into_iter().flat_map(|size: usize| [size.saturating_sub(1), size, size + 1]);
    around.chain((0..LARGEST).step_by(4_099)).chain([LARGEST - 1, LARGEST])
}

#[test]
fn datagrams_of_every_size_arrive_whole_over_every_transport() {
    side_by_side(Scheme::ALL, |scheme| {
        let echo = Echo::start();
        let (mut setup, port) = one_service(scheme, echo.port());
        let (local, target) = (free_port(), echo.port());
        setup.more_targets.push(format!("udp://127.0.0.1:{target}"));
        writeln!(
            setup.client_lines,
            "forwards:\n  - {{ listen: \"udp://127.0.0.1:{local}\", target: \"udp://127.0.0.1:{target}\" }}"
        )
        .unwrap();
        let _running = start(setup, 1);
        for port in [port, local] {
            let visitor = visitor(port);
            for size in sizes() {
                ask(&visitor, &pattern(size));
            }
        }
    });
}

#[test]
fn an_answer_comes_from_the_address_that_the_visitor_asked() {
    let echo = Echo::start();
    let (mut setup, port) = one_service(Scheme::TLS, echo.port());
    setup.server_lines = setup.server_lines.replace("public_bind: \"127.0.0.1\"", "");
    let text = setup.client_lines.replace("udp://:", "udp://0.0.0.0:");
    setup.client_lines = text;
    setup.more_rights = vec![format!("udp: [\"0.0.0.0:{port}\"]")];
    let _running = start(setup, 1);
    for host in ["127.0.0.1", "127.0.0.2", "127.1.2.3"] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // A connected socket takes datagrams of this address alone.
        socket.connect((host, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        ask(&socket, host.as_bytes());
    }
}
