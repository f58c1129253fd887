//! Sessions with several links, and several processes that log in with the same name.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::stage::Running;

use crate::harness::{
    Origin, SOON, Scheme, Setup, connect, side_by_side, try_connect, wait, wait_listening,
};

/// Answers each connection with this byte.
fn says(byte: u8) -> Origin {
    Origin::start(move |mut stream| drop(stream.write_all(&[byte])))
}

/// What the service behind a port says, if it is reached.
fn heard(port: u16) -> Option<u8> {
    let (mut visitor, mut byte) = (try_connect(port).ok()?, [0]);
    // Longer than a visitor is held. Turned away is an answer, silence is none.
    visitor.set_read_timeout(Some(SOON * 3 / 2)).unwrap();
    match visitor.read_exact(&mut byte) {
        Ok(()) => Some(byte[0]),
        Err(e) => {
            assert_ne!(e.kind(), ErrorKind::WouldBlock, "a visitor hears nothing, not even an end");
            None
        }
    }
}

#[test]
fn a_visitor_of_a_port_that_opens_just_now_is_served() {
    let origin = says(b'!');
    let mut setup = Setup::new(Scheme::TCP).service("says", origin.port());
    // One of the workers has no link: it hands its visitors to the other.
    setup.server_lines.push_str("workers: 2\n");
    setup.client_lines.push_str("connections: 1\n");
    let mut running = setup.start_server();
    let port = running.public("says");
    for _ in 0..20 {
        running.start_client();
        std::thread::scope(|scope| {
            let first = || {
                let start = Instant::now();
                // At once when the port opens, as somebody who knocks all the time.
                let visitor = loop {
                    match try_connect(port) {
                        Ok(visitor) => break visitor,
                        Err(e) => assert!(start.elapsed() < SOON, "{e}"),
                    }
                };
                visitor.set_read_timeout(Some(SOON * 3 / 2)).unwrap();
                (&visitor).read_exact(&mut [0]).map_err(|e| e.kind())
            };
            let visitors: Vec<_> = (0..8).map(|_| scope.spawn(first)).collect();
            for visitor in visitors {
                assert_eq!(visitor.join().unwrap(), Ok(()));
            }
        });
        running.client().terminate();
        running.client().wait_end(SOON);
        wait("the port closes", SOON, || try_connect(port).is_err().then_some(()));
    }
}

fn of_three_links(mut setup: Setup) -> Running {
    setup.client_lines.push_str("connections: 3\n");
    setup.start()
}

#[test]
fn three_links_come_back_after_the_server_was_killed() {
    for &scheme in Scheme::ALL {
        let (echo, other) = (Origin::echo(), Origin::echo());
        let setup = Setup::new(scheme).service("echo", echo.port()).forward(other.port());
        let mut running = of_three_links(setup);
        let port = running.public("echo");
        running.wait_links(3);
        for _ in 0..2 {
            running.server.kill();
            running.start_server_again();
            wait_listening(running.server_port(), SOON);
            let listening = Instant::now();
            running.wait_echo(port);
            let took = listening.elapsed();
            println!("{scheme:?}: served {took:?} after the server listened");
            // 2 s on an idle machine.
            assert!(took < SOON, "{took:?}");
            running.wait_echo(running.local());
            running.wait_links(3);
        }
        assert!(running.client().is_running());
    }
}

#[test]
fn a_client_of_three_links_killed_and_started_again_finds_its_port_free() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut running = of_three_links(Setup::new(scheme).service("echo", origin.port()));
        let port = running.public("echo");
        for _ in 0..3 {
            running.wait_links(3);
            running.client().kill();
            running.start_client();
            running.wait_echo(port);
        }
        let logs = running.server.log() + &running.client().log();
        assert!(!logs.to_lowercase().contains("in use"), "{logs}");
    }
}

#[test]
fn a_client_reconnects_to_a_server_that_was_told_to_end() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut running = of_three_links(Setup::new(scheme).service("echo", origin.port()));
        let port = running.public("echo");
        for _ in 0..2 {
            running.wait_echo(port);
            running.server.terminate();
            assert!(running.server.wait_end(SOON).success());
            running.start_server_again();
            running.wait_echo(port);
            running.wait_links(3);
        }
        assert!(running.client().is_running());
    }
}

#[test]
fn a_server_that_is_started_again_is_no_warning_of_the_client() {
    side_by_side(Scheme::ALL, |scheme| {
        let (origin, other) = (Origin::echo(), Origin::echo());
        let setup = Setup::new(scheme).service("echo", origin.port()).forward(other.port());
        let mut running = of_three_links(setup);
        running.wait_echo(running.public("echo"));
        running.wait_links(3);
        for is_killed in [false, true] {
            let before = running.client().log().len();
            if is_killed {
                running.server.kill();
            } else {
                running.server.terminate();
                assert!(running.server.wait_end(SOON).success());
            }
            // The client meets a server that is away.
            let since = |running: &mut Running| running.client().log().split_off(before);
            wait("the client has lost the server", SOON, || {
                since(&mut running).contains("INFO lost the server").then_some(())
            });
            running.start_server_again();
            running.wait_echo(running.public("echo"));
            running.wait_links(3);
            let log = since(&mut running);
            let loud = log.lines().find(|line| line.contains("WARN") || line.contains("ERROR"));
            assert_eq!(loud, None, "{scheme:?}, killed: {is_killed}");
            let again =
                |line: &&str| line.contains(" is connected to ") && line.contains("INFO link ");
            let again =
                log.lines().filter(again).filter(|line| line.contains(" again, after ")).count();
            assert!(again >= 1, "{scheme:?}, killed: {is_killed}: {log}");
        }
    });
}

#[test]
fn of_two_clients_with_one_name_the_newest_serves_and_nobody_kicks_back() {
    side_by_side(Scheme::ALL, |scheme| {
        let (first, second) = (says(b'1'), says(b'2'));
        let mut setup = Setup::new(scheme).service("who", first.port());
        setup.client_lines.push_str("connections: 2\n");
        let mut running = setup.start();
        let port = running.public("who");
        wait("the first client serves", SOON, || (heard(port) == Some(b'1')).then_some(()));

        let (old, new) = (first.port().to_string(), second.port().to_string());
        let served = AtomicBool::new(false);
        let mut newer = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !served.load(Ordering::Relaxed) {
                    // A visitor may lose the older one's streams, never the door.
                    let refused = |e: &Error| e.kind() == ErrorKind::ConnectionRefused;
                    let closed = try_connect(port).is_err_and(|e| refused(&e));
                    assert!(!closed, "the port stays open while it changes hands");
                    // No flood: the origin's queue of connections is short.
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let newer = running.start_another_client(|text| text.replace(&old, &new));
            let start = Instant::now();
            let taken = std::panic::catch_unwind(|| {
                while heard(port) != Some(b'2') && start.elapsed() < SOON {
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            println!("{scheme:?}: taken over after {:?}", start.elapsed());
            served.store(true, Ordering::Relaxed);
            taken.unwrap();
            newer
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            assert_eq!(heard(port), Some(b'2'), "the newest stays in charge");
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = running.server.log();
        assert_eq!(log.matches("takes over").count(), 1, "{log}");
        running.client().wait_line(&["newer process"], SOON);
        let status = running.status("client").unwrap();
        assert_eq!(status["sessions"][0]["services"][0]["state"], "superseded", "{status}");
        assert!(running.client().is_running() && newer.is_running());
        let lines = running.client().log().lines().count();
        assert!(lines < 20, "who was superseded said it in {lines} lines");

        // Held visitors of the newest are none of the older one's business.
        let mut visitor = connect(port);
        running.client().kill();
        visitor.read_exact(&mut [0]).unwrap();
        assert_eq!(heard(port), Some(b'2'));
    });
}
