//! SIGTERM to either side: no new visitor is accepted, existing streams may finish, and the
//! deadline ends the remaining streams.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::stage::{Daemon, Running};

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, bytes, connect, run, try_connect, tunnel, wait,
};
use crate::reload::outcome;

const SIZE: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

fn cases() -> impl Iterator<Item = (Scheme, Side)> {
    Scheme::ALL.iter().flat_map(|&scheme| [(scheme, Side::Server), (scheme, Side::Client)])
}

fn daemon(running: &mut Running, side: Side) -> &mut Daemon {
    if side == Side::Server { &mut running.server } else { running.client() }
}

/// Sends so many bytes when it hears the first one.
fn source() -> Origin {
    Origin::start(|stream| {
        // Who only looks whether the door is open says nothing.
        if (&stream).read_exact(&mut [0]).is_ok() {
            bytes::send(&stream, SIZE);
        }
    })
}

/// One who is in the middle of a transfer.
fn inside(port: u16) -> TcpStream {
    let visitor = connect(port);
    (&visitor).write_all(b"!").unwrap();
    bytes::expect(&visitor, 8);
    visitor
}

/// Whether a newcomer is turned away.
fn is_closed(port: u16) -> bool {
    try_connect(port).is_err()
}

#[test]
fn sigterm_closes_the_doors_and_lets_transfers_finish() {
    for (scheme, side) in cases() {
        let (published, forwarded) = (source(), source());
        let setup = Setup::new(scheme).service("source", published.port());
        let mut running = setup.forward(forwarded.port()).start();
        running.server.wait_line(&["serving clients on"], SOON);
        running.client().wait_line(&["has 1 service"], SOON);
        let (public, local) = (running.public("source"), running.local());
        let visitors = [inside(public), inside(local)];
        daemon(&mut running, side).terminate();
        wait("the public port closes", SOON, || is_closed(public).then_some(()));
        if side == Side::Client {
            wait("the local port closes", SOON, || is_closed(local).then_some(()));
        }
        for visitor in &visitors {
            (&*visitor).read_exact(&mut vec![0; SIZE as usize - 8]).unwrap();
            bytes::expect_end(visitor);
        }
        drop(visitors);
        let end = daemon(&mut running, side).wait_end(SOON);
        assert!(end.success(), "{scheme:?}, {side:?}: {end}");
    }
}

#[test]
fn sigterm_resets_at_the_deadline_who_does_not_finish() {
    for (scheme, side) in cases() {
        let echo = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", echo.port());
        for lines in [&mut setup.server_lines, &mut setup.client_lines] {
            lines.push_str("drain_timeout: 2s\n");
        }
        let mut running = setup.start();
        // Before its start has ended, a daemon ends at once.
        running.server.wait_line(&["serving clients on"], SOON);
        running.client().wait_line(&["has 1 service"], SOON);
        let public = running.public("echo");
        let mut visitor = connect(public);
        visitor.write_all(b"?").unwrap();
        visitor.read_exact(&mut [0]).unwrap();
        let start = Instant::now();
        daemon(&mut running, side).terminate();
        wait("the public port closes", SOON, || is_closed(public).then_some(()));
        // Until then the connection is as good as ever.
        visitor.write_all(b"!").unwrap();
        visitor.read_exact(&mut [0]).unwrap();
        bytes::expect_reset(&visitor);
        let took = start.elapsed();
        println!("{scheme:?}, {side:?}: cut after {took:?}");
        assert!(took >= Duration::from_secs(2) && took < SOON, "{took:?}");
        let end = daemon(&mut running, side).wait_end(LONG);
        assert!(end.success(), "{scheme:?}, {side:?}: {end}");
        daemon(&mut running, side).wait_line(&["did not finish in time"], SOON);
    }
}

/// `tunnel stop` of the server, in the background.
fn stop(running: &Running, name: &str, args: &[&str]) -> Daemon {
    let mut command = tunnel(&["stop"]);
    command.args(args).arg("--control").arg(running.file("server.sock"));
    Daemon::start(name, running.dir(), &mut command)
}

#[test]
fn a_stop_shows_whose_streams_are_left_and_a_second_one_resets_them() {
    for second in [&["--now"][..], &[]] {
        let echo = Origin::echo();
        let setup = Setup::new(Scheme::TLS).service("echo", echo.port());
        let mut running = setup.start();
        running.server.wait_line(&["serving clients on"], SOON);
        let public = running.public("echo");
        let visitors = [connect(public), connect(public)];
        for mut visitor in &visitors {
            visitor.write_all(b"?").unwrap();
            visitor.read_exact(&mut [0]).unwrap();
        }
        let mut first = stop(&running, "stop", &[]);
        first.wait_line(&["new visitors are refused, and open streams may finish"], SOON);
        first.wait_line(&["2 streams are left: home echo 2, for at most "], SOON);
        assert!(is_closed(public));
        running.server.wait_line(&["stopping: new visitors are refused", "second signal"], SOON);
        let said = outcome(run(tunnel(&["status", "--control"]).arg(running.file("server.sock"))));
        assert!(said.1.contains("and open streams are reset in "), "{said:?}");

        let mut second = stop(&running, "second", second);
        second.wait_line(&["stopping: the remaining streams are reset"], SOON);
        for visitor in &visitors {
            bytes::expect_reset(visitor);
        }
        for stop in [&mut first, &mut second] {
            assert!(stop.wait_end(LONG).success());
        }
        assert!(running.server.wait_end(LONG).success());
    }
}
