//! Connections and processes are killed. Visitors see only a pause, and the kind of each end (FIN
//! or reset) is preserved.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::Instant;

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, bytes, connect, free_port, is_listening, reset_on_drop,
    side_by_side, try_connect, wait, wait_listening,
};

const MB: u64 = 1_000_000;

/// Reads what a visitor sends and answers with as much.
fn swallow_then_send(total: u64) -> Origin {
    Origin::start(move |stream| {
        bytes::expect(&stream, total);
        bytes::send(&stream, total);
        stream.shutdown(Shutdown::Write).unwrap();
        bytes::expect_end(&stream);
    })
}

/// The other end of [`swallow_then_send`].
fn send_then_swallow(port: u16, total: u64) {
    let visitor = connect(port);
    bytes::send(&visitor, total);
    bytes::expect(&visitor, total);
    bytes::expect_end(&visitor);
}

#[test]
fn a_carrier_killed_again_and_again_loses_no_byte_of_200_mb_each_way() {
    side_by_side(Scheme::ALL, |scheme| {
        let origin = swallow_then_send(200 * MB);
        let running = Setup::new(scheme).service("bulk", origin.port()).wired().start();
        let start = Instant::now();
        running.wire().kill_every(30 << 20);
        send_then_swallow(running.public("bulk"), 200 * MB);
        origin.wait_one(LONG);
        let kills = running.wire().kills();
        println!("{scheme:?}: {kills} kills took {:?}", start.elapsed());
        assert!(kills >= 10, "400 MB, killed every 30 MiB: {kills}");
    });
}

#[test]
fn one_byte_at_a_time_is_as_good_as_any() {
    let origin = swallow_then_send(20_000);
    let running = Setup::new(Scheme::TLS).service("slow", origin.port()).wired().start();
    running.wire().chunk(1);
    send_then_swallow(running.public("slow"), 20_000);
    // The handshake and the greeting, too.
    running.wire().kill();
    send_then_swallow(running.public("slow"), 20_000);
}

/// No FIN, no RST, nothing: who waits for an answer knows in 5 s, who only listens by the second
/// missed ping.
#[test]
fn a_path_that_swallows_everything_is_replaced_in_mid_transfer() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let origin = swallow_then_send(100 * MB);
        let mut setup = Setup::new(scheme).service("bulk", origin.port()).wired();
        for lines in [&mut setup.server_lines, &mut setup.client_lines] {
            lines.push_str("keepalive: 2s\n");
        }
        let running = setup.start();
        let visitor = connect(running.public("bulk"));
        // The way up: the client's side waits for what never comes.
        let sender = {
            let visitor = visitor.try_clone().unwrap();
            std::thread::spawn(move || bytes::send(&visitor, 100 * MB))
        };
        let start = Instant::now();
        running.wire().freeze();
        sender.join().unwrap();
        // The way down: the server's side waits.
        running.wire().freeze();
        bytes::expect(&visitor, 100 * MB);
        bytes::expect_end(&visitor);
        drop(visitor);
        origin.wait_one(LONG);
        let took = start.elapsed();
        println!("{scheme:?}: two frozen paths took {took:?}");
        assert!(took.as_secs() < 75, "two frozen paths took {took:?}");
    });
}

/// The server still believes in the old link: its path is silent, not closed.
#[test]
fn a_new_client_process_takes_over_the_ports_of_a_silent_one() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        let origin = Origin::echo();
        let mut running = Setup::new(scheme).service("echo", origin.port()).wired().start();
        let port = running.public("echo");
        running.wait_echo(port);
        running.wire().freeze();
        running.client().kill();
        running.start_client();
        running.wait_echo(port);
    }
}

#[test]
fn the_same_client_process_serves_again_after_the_server_was_killed() {
    for &scheme in Scheme::ALL {
        let (echo, idle) = (Origin::echo(), Origin::echo());
        let setup = Setup::new(scheme).service("echo", echo.port()).forward(idle.port());
        let mut running = setup.start();
        let port = running.public("echo");
        running.wait_echo(port);
        running.server.kill();
        wait("the public port is gone", SOON, || (!is_listening(port)).then_some(()));
        running.start_server_again();
        wait_listening(running.server_port(), SOON);
        let listening = Instant::now();
        running.wait_echo(port);
        println!("{scheme:?}: served {:?} after the server listened", listening.elapsed());
        running.wait_echo(running.local());
        assert!(running.client().is_running());
    }
}

#[test]
fn a_client_killed_and_started_again_finds_its_port_free() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut running = Setup::new(scheme).service("echo", origin.port()).start();
        let port = running.public("echo");
        for _ in 0..3 {
            let mut held = connect(port);
            held.write_all(b"?").unwrap();
            held.read_exact(&mut [0]).unwrap();
            running.client().kill();
            running.start_client();
            running.wait_echo(port);
        }
        let logs = running.server.log() + &running.client().log();
        assert!(!logs.to_lowercase().contains("in use"), "{logs}");
    }
}

#[test]
fn closing_at_once_after_100_mb_loses_nothing() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start(|stream| {
            bytes::expect(&stream, 100 * MB);
            bytes::expect_end(&stream);
        });
        let running = Setup::new(scheme).service("sink", origin.port()).start();
        let visitor = connect(running.public("sink"));
        bytes::send(&visitor, 100 * MB);
        drop(visitor);
        origin.wait_one(LONG);
    }
}

#[test]
fn a_service_that_closes_first_sends_not_one_stray_byte() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start(|stream| bytes::send(&stream, 100 * MB));
        let running = Setup::new(scheme).service("source", origin.port()).forward(origin.port());
        let running = running.start();
        for port in [running.public("source"), running.local()] {
            let visitor = connect(port);
            bytes::expect(&visitor, 100 * MB);
            bytes::expect_end(&visitor);
        }
    }
}

#[test]
fn a_half_closed_visitor_still_gets_10_mb() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start(|stream| {
            bytes::expect(&stream, MB);
            bytes::expect_end(&stream);
            bytes::send(&stream, 10 * MB);
        });
        let running = Setup::new(scheme).service("half", origin.port()).start();
        let visitor = connect(running.public("half"));
        bytes::send(&visitor, MB);
        visitor.shutdown(Shutdown::Write).unwrap();
        bytes::expect(&visitor, 10 * MB);
        bytes::expect_end(&visitor);
        origin.wait_one(LONG);
    }
}

#[test]
fn a_half_closed_service_still_gets_10_mb() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start(|stream| {
            bytes::send(&stream, MB);
            stream.shutdown(Shutdown::Write).unwrap();
            bytes::expect(&stream, 10 * MB);
            bytes::expect_end(&stream);
        });
        let running = Setup::new(scheme).service("half", origin.port()).start();
        let visitor = connect(running.public("half"));
        bytes::expect(&visitor, MB);
        bytes::expect_end(&visitor);
        bytes::send(&visitor, 10 * MB);
        drop(visitor);
        origin.wait_one(LONG);
    }
}

#[test]
fn a_reset_by_the_visitor_is_a_reset_at_the_service() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start(|mut stream| {
            stream.write_all(b"!").unwrap();
            bytes::expect_reset(&stream);
        });
        let running = Setup::new(scheme).service("reset", origin.port()).start();
        let mut visitor = connect(running.public("reset"));
        // Who leaves before the service was dialled is none of its business.
        visitor.read_exact(&mut [0]).unwrap();
        visitor.write_all(b"before the end").unwrap();
        reset_on_drop(&visitor);
        drop(visitor);
        origin.wait_one(LONG);
    }
}

#[test]
fn a_reset_by_the_service_is_a_reset_at_the_visitor() {
    for &scheme in Scheme::ALL {
        let origin = Origin::start(|mut stream| {
            stream.read_exact(&mut [0]).unwrap();
            reset_on_drop(&stream);
        });
        let running = Setup::new(scheme).service("reset", origin.port()).start();
        let mut visitor = connect(running.public("reset"));
        visitor.write_all(b"!").unwrap();
        bytes::expect_reset(&visitor);
    }
}

#[test]
fn a_refused_dial_is_a_reset_and_delays_nobody() {
    for &scheme in Scheme::ALL {
        let (nobody, echo) = (free_port(), Origin::echo());
        let setup = Setup::new(scheme).service("closed", nobody).service("echo", echo.port());
        let running = setup.forward(nobody).start();
        for port in [running.public("closed"), running.local()] {
            let visitors: Vec<_> = (0..20).map(|_| try_connect(port)).collect();
            running.wait_echo(running.public("echo"));
            visitors.into_iter().for_each(bytes::expect_refused);
        }
    }
}
