//! Many streams of different kinds at the same time, while their carriers are killed.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{LONG, Origin, Scheme, Setup, bytes, connect};

const MB: u64 = 1_000_000;

/// Streams of each kind; there are five kinds.
const EACH: usize = 10;

/// Each of its bytes comes back before the next is sent.
fn talk(mut visitor: TcpStream) {
    visitor.set_nodelay(true).unwrap();
    for n in 0..200u8 {
        let mut answer = [0];
        visitor.write_all(&[n]).unwrap();
        visitor.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [n]);
        std::thread::sleep(Duration::from_millis(5));
    }
    visitor.shutdown(Shutdown::Write).unwrap();
    bytes::expect_end(&visitor);
}

/// Both ways at the same time.
fn echo_bulk(visitor: &TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bytes::send(visitor, 4 * MB);
            visitor.shutdown(Shutdown::Write).unwrap();
        });
        bytes::expect(visitor, 4 * MB);
        bytes::expect_end(visitor);
    });
}

#[test]
fn fifty_streams_of_all_kinds_outlive_their_carriers() {
    for (scheme, links) in [(Scheme::TLS, 1), (Scheme::TCP, 3)] {
        let echo = Origin::echo();
        let source = Origin::start(|stream| bytes::send(&stream, 8 * MB));
        let sink = Origin::start(|stream| {
            bytes::expect(&stream, 8 * MB);
            bytes::expect_end(&stream);
        });
        let mut setup = Setup::new(scheme).service("echo", echo.port());
        // Carriers that die young make a client wait; here they all do.
        setup.client_lines.push_str("retry: { min: 10ms, max: 50ms }\n");
        let setup = setup.service("source", source.port()).service("sink", sink.port());
        let running = setup.forward(echo.port()).wired_with(links).start();
        running.wait_links(links);
        let (echo_port, source_port, sink_port) =
            (running.public("echo"), running.public("source"), running.public("sink"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut streams = Vec::new();
            for _ in 0..EACH {
                streams.push(scope.spawn(|| talk(connect(echo_port))));
                streams.push(scope.spawn(|| echo_bulk(&connect(echo_port))));
                streams.push(scope.spawn(|| echo_bulk(&connect(running.local()))));
                streams.push(scope.spawn(|| {
                    let visitor = connect(source_port);
                    bytes::expect(&visitor, 8 * MB);
                    bytes::expect_end(&visitor);
                }));
                streams.push(scope.spawn(|| bytes::send(connect(sink_port), 8 * MB)));
            }
            // At any byte, and at moments that no byte count has.
            running.wire().kill_every(11 << 20);
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(300));
                    running.wire().kill();
                }
            });
            let ends: Vec<_> =
                streams.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            over.store(true, Ordering::Relaxed);
            (0..EACH).for_each(|_| sink.wait_one(LONG));
            let failed = ends.iter().filter(|end| end.is_err()).count();
            assert_eq!(failed, 0, "of {} streams", ends.len());
        });
        let kills = running.wire().kills();
        println!("{scheme:?}, {links} links: {kills} kills");
        assert!(kills >= 10, "{kills} kills");
    }
}
