//! Many sources and many failures: memory, descriptors and tasks stay bounded, and an answered flow
//! survives.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use testkit::stage::Running;

use crate::harness::{SOON, Scheme, Setup, connect, free_port, side_by_side, wait, wait_listening};
use crate::udp::{Echo, ask, one_service, service, start, visitor};

#[test]
fn a_hundred_thousand_sources_cost_bounded_memory_and_no_answered_flow() {
    // One after the other: each takes half of the local ports of this machine.
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        // Answers nothing but the honest visitor.
        let echo =
            Echo::answering(|datagram| datagram.starts_with(b"honest").then(|| datagram.to_vec()));
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
            println!("{scheme:?} {role}: {before} bytes before, {after} bytes after");
            assert!(after < before + (128 << 20), "{role}: {before} bytes, then {after}");
        }
        println!("descriptors of the client: {}", running.client().descriptors());
        assert!(running.client().descriptors() < 19_000);
        let counts = service(&running, "server", "echo");
        println!("{counts}");
        // A newcomer is served, too.
        ask(&visitor(port), b"honest newcomer");
        wait("the end of the flood's flows", 10 * SOON, || {
            (service(&running, "server", "echo")["flows"].as_u64().unwrap_or(0) < 100).then_some(())
        });
    }
}

#[test]
fn four_thousand_idle_flows_each_pass_their_next_datagram() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let echo = Echo::start();
        let (setup, port) = one_service(scheme, echo.port());
        let mut running = start(setup, 1);
        let before = [running.server.resident(), running.client().resident()];
        // A source may have 256 flows.
        let visitors: Vec<_> = (0..4_000_u16)
            .map(|n| {
                let [high, low] = (n / 200).to_be_bytes();
                let socket = UdpSocket::bind((Ipv4Addr::new(127, 9, high, low + 1), 0)).unwrap();
                socket.connect(("127.0.0.1", port)).unwrap();
                socket.set_read_timeout(Some(SOON / 20)).unwrap();
                socket
            })
            .collect();
        for turn in 0..2 {
            for (n, visitor) in visitors.iter().enumerate() {
                ask(visitor, format!("{turn} {n}").as_bytes());
            }
        }
        assert_eq!(echo.peers().len(), 4_000, "each visitor has one flow");
        let after = [running.server.resident(), running.client().resident()];
        println!("{scheme:?}: {before:?} bytes before 4,000 flows, {after:?} bytes with them");
        assert!((0..2).all(|role| after[role] < before[role] + 4_000 * (8 << 10)), "8 KiB each");
    });
}

#[test]
fn refused_connections_of_a_proxy_leave_nothing_behind() {
    let (mut setup, proxy, closed) = (Setup::new(Scheme::TLS), free_port(), free_port());
    setup.more_targets.push(format!("127.0.0.1:{closed}"));
    writeln!(setup.client_lines, "forwards:\n  - {{ listen: \"socks5://127.0.0.1:{proxy}\" }}")
        .unwrap();
    let mut running = setup.start();
    wait_listening(proxy, SOON);
    let refused = || {
        let mut stream = connect(proxy);
        let [high, low] = closed.to_be_bytes();
        stream.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low]).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[..4], [5, 0, 5, 5], "refused");
    };
    let tasks = |running: &Running, role| running.status(role).unwrap()["tasks"].as_u64().unwrap();
    (0..500).for_each(|_| refused());
    let base = [running.server.resident(), running.client().resident()];
    let descriptors = [running.server.descriptors(), running.client().descriptors()];
    let before = ["server", "client"].map(|role| tasks(&running, role));
    (0..20_000).for_each(|_| refused());
    wait("the last connections end", SOON, || {
        let now = [running.server.descriptors(), running.client().descriptors()];
        let after = ["server", "client"].map(|role| tasks(&running, role));
        let is_back = (0..2)
            .all(|role| now[role] <= descriptors[role] + 2 && after[role] <= before[role] + 2);
        is_back.then_some(())
    });
    let after = [running.server.resident(), running.client().resident()];
    println!("{base:?} bytes after 500 refused connections, {after:?} bytes after 20,000 more");
    assert!((0..2).all(|role| after[role] < base[role] + (8 << 20)), "{base:?} {after:?}");
}
