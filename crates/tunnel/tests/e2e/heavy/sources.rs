//! A flood from 100,000 sources: memory and descriptors stay bounded, and an answered flow
//! survives.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use crate::harness::{SOON, Scheme, side_by_side, wait};
use crate::udp::{Echo, ask, one_service, service, start, visitor};

#[test]
fn a_hundred_thousand_sources_cost_bounded_memory_and_no_answered_flow() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC], |scheme| {
        // Answers nothing but the honest visitor.
        let echo = Echo::answering(|datagram| {
            if datagram.starts_with(b"honest") { datagram.to_vec() } else { Vec::new() }
        });
        let (setup, port) = one_service(scheme, echo.port());
        let mut running = start(setup, 1);
        let honest = visitor(port);
        ask(&honest, b"honest");
        let before = [running.server.resident(), running.client().resident()];
        for n in 0..100_000_u32 {
            let [_, a, b, c] = n.to_be_bytes();
            let source = SocketAddrV4::new(Ipv4Addr::new(127, 1 + a, b, c.max(1)), 0);
            let socket = UdpSocket::bind(source).unwrap();
            socket.send_to(b"flood", ("127.0.0.1", port)).unwrap();
            if n % 10_000 == 0 {
                ask(&honest, b"honest still");
            }
        }
        ask(&honest, b"honest still");
        let after = [running.server.resident(), running.client().resident()];
        for ((role, before), after) in ["server", "client"].iter().zip(before).zip(after) {
            println!("{scheme:?} {role}: {before} KiB before, {after} KiB after");
            assert!(after < before + (128 << 10), "{role}: {before} KiB, then {after} KiB");
        }
        println!("descriptors of the client: {}", running.client().descriptors());
        assert!(running.client().descriptors() < 19_000);
        let told = service(&running, "server", "echo");
        println!("{told}");
        // A newcomer is served, too.
        ask(&visitor(port), b"honest newcomer");
        wait("the end of the flood's flows", 10 * SOON, || {
            (service(&running, "server", "echo")["flows"].as_u64().unwrap_or(0) < 100).then_some(())
        });
    });
}
