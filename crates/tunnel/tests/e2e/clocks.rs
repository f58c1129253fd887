//! The wall clocks of both machines jump. No part of a tunnel may depend on them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Clock, LONG, Origin, SOON, Scheme, Setup, bytes, connect, wait};

const MB: u64 = 1_000_000;

/// The hour of the last line of a log; its lines start with `2026-01-31T12:…Z`.
fn hour(log: &str) -> u32 {
    let time = log.lines().rev().find_map(|line| line.split_once('T')).unwrap().1;
    time.split(':').next().unwrap().parse().unwrap()
}

fn echo(visitor: &mut TcpStream) {
    visitor.write_all(b"?").unwrap();
    visitor.read_exact(&mut [0]).unwrap();
}

#[test]
fn nothing_ends_when_clocks_jump_by_an_hour() {
    let origin = Origin::start(|stream| bytes::send(&stream, 60 * MB));
    let idle = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS).wired();
    let setup_clocks = ["server", "client"].map(|role| Clock::right(setup.dir(), role));
    let [server_clock, client_clock] = setup_clocks;
    (setup.server_env, setup.client_env) = (server_clock.env(), client_clock.env());
    for lines in [&mut setup.server_lines, &mut setup.client_lines] {
        // Pings pass while the clocks are wrong.
        lines.push_str("keepalive: 500ms\nlog: { level: debug }\n");
    }
    let mut running = setup.service("bulk", origin.port()).service("idle", idle.port()).start();
    let mut held = connect(running.public("idle"));
    echo(&mut held);
    let right = hour(&running.server.log());

    // A transfer, in the middle of which the clocks go apart by two hours and change sides.
    let mut visitor = connect(running.public("bulk"));
    let jumps = [("+1h", "-1h"), ("-1h", "+1h"), ("+1h", "+1h"), ("-1h", "-1h")];
    let mut body = vec![0; 60_000_000];
    for (part, (server, client)) in body.chunks_mut(15_000_000).zip(jumps) {
        visitor.read_exact(part).unwrap();
        server_clock.set(server);
        client_clock.set(client);
        // Several pings of real time: the daemons are processes of their own.
        std::thread::sleep(Duration::from_millis(1_700));
        echo(&mut held);
    }
    bytes::expect(&body[..], 60 * MB);
    bytes::expect_end(&visitor);
    origin.wait_one(LONG);
    let carriers = |log: &str| log.matches("connected to").count() + log.matches("resumed").count();
    let log = running.client().log();
    assert_eq!(carriers(&log), 1, "one carrier has lived through it all: {log}");

    // Resuming, and streams that were open go on.
    for (n, (server, client)) in jumps.into_iter().enumerate() {
        running.wire().kill();
        server_clock.set(server);
        client_clock.set(client);
        echo(&mut held);
        wait("the carrier is replaced", SOON, || {
            (running.client().log().matches("resumed over").count() == n + 1).then_some(())
        });
    }
    // The clocks were wrong indeed.
    let wrong = hour(&running.server.log());
    assert_ne!(wrong, right, "the server's clock shows another hour");

    // A new log-in to a server an hour away, and a new server.
    running.client().kill();
    client_clock.set("+1h");
    running.start_client();
    running.wait_echo(running.public("idle"));
    running.server.kill();
    server_clock.set("+1h");
    client_clock.set("-1h");
    running.start_server_again();
    running.wait_echo(running.public("idle"));
}
