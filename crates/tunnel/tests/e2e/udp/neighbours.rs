//! A dead peer, a dead target or a datagram that is too long harms nobody else (reliability 7, 35).

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::{Echo, ask, pattern, services, start, visitor};
use crate::harness::{LONG, Scheme, Setup, free_port, side_by_side};

#[test]
fn dead_targets_and_silent_visitors_delay_no_other_flow() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let echo = Echo::start();
        let (mut setup, ports) = (Setup::new(scheme), [free_port(), free_port(), free_port()]);
        setup
            .more_rights
            .push(format!("udp: [{}]", ports.map(|port| format!("\"{port}\"")).join(", ")));
        let public = ports.map(|port| format!("\"udp://:{port}\""));
        let nobody = format!("udp://127.0.0.1:{}", free_port());
        let good = format!("udp://127.0.0.1:{}", echo.port());
        services(
            &mut setup,
            &[
                ("good", &public[0], &good, ""),
                ("closed", &public[1], &nobody, ""),
                // A name that no resolver knows.
                ("unknown", &public[2], "udp://no-such-host.invalid:9", ""),
            ],
        );
        let running = start(setup, 3);
        let honest = visitor(ports[0]);
        ask(&honest, b"first");
        // Visitors that never read, and that go away at once.
        for n in 0..200 {
            let lost = UdpSocket::bind("127.0.0.1:0").unwrap();
            for port in ports {
                lost.send_to(&pattern(n * 7), ("127.0.0.1", port)).unwrap();
                lost.send_to(&pattern(65_507), ("127.0.0.1", port)).unwrap();
            }
            if n % 20 == 0 {
                let begin = Instant::now();
                ask(&honest, &pattern(n));
                assert!(begin.elapsed() < LONG / 2);
            }
        }
        let dropped = |name: &str| super::service(&running, "client", name)["dropped"].clone();
        assert!(dropped("closed")["unreachable"].as_u64().unwrap() > 0, "{}", dropped("closed"));
        ask(&honest, b"last");
        std::thread::sleep(Duration::from_millis(10));
    });
}
