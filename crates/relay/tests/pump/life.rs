//! Time-outs, and streams that end while they begin.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use relay::Timeouts;
use testkit::origins::{Digest, Ended, Origin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::rig::{FRAME, Rig, WINDOW, receive, reset, run, run_paused, until, visit};

#[test]
fn a_half_closed_stream_without_bytes_is_aborted_in_time() {
    run_paused(async {
        let origin = Origin::never_reader().unwrap();
        let rig = Rig::new(origin.address());
        let begin = Instant::now();
        let visitor = tokio::task::spawn_local(visit(rig.address, |socket| {
            socket.shutdown(Shutdown::Write).unwrap();
            receive(&socket).unwrap_err().kind()
        }));
        until(|| rig.targets.stats.opened() == 1).await;
        advance_until(|| rig.visitors.stats.live() == 0).await;
        assert!(begin.elapsed() >= Duration::from_secs(60), "{:?}", begin.elapsed());
        assert_eq!(visitor.await.unwrap(), ErrorKind::ConnectionReset);
        rig.settled().await;
    });
}

/// Advances the clock until `condition` holds. The clock stands still while a blocking task runs.
async fn advance_until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(120), "virtual time has run out");
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_reset_after_the_visitors_half_close_reaches_the_service() {
    run_paused(async {
        let origin = Origin::start(|mut socket| async move {
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.unwrap();
            // The client wants no answer; the service sends it until the socket fails.
            while socket.write_all(&[0; 1000]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ended { received: Digest::default(), clean: false }
        })
        .unwrap();
        let rig = Rig::new(origin.address());
        let visitor = tokio::task::spawn_local(visit(rig.address, |socket| {
            socket.shutdown(Shutdown::Write).unwrap();
            socket
        }));
        let socket = visitor.await.unwrap();
        until(|| rig.visitors.stats.bytes_out() > 0).await;
        reset(socket);
        until(|| rig.visitors.stats.live() == 0).await;
        advance_until(|| rig.targets.stats.live() == 0).await;
        until(|| !origin.seen().ended.is_empty()).await;
    });
}

#[test]
fn an_idle_stream_lives_for_ever_unless_a_limit_is_set() {
    for (idle, lives) in [(0, true), (600, false)] {
        run_paused(async move {
            let origin = Origin::echo().unwrap();
            let timeouts = Timeouts { idle: Duration::from_secs(idle), ..Timeouts::default() };
            let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, None);
            let socket = rig
                .visit(|mut socket| {
                    socket.write_all(b"x").unwrap();
                    socket.read_exact(&mut [0]).unwrap();
                    socket
                })
                .await;
            for _ in 0..1000 {
                tokio::time::advance(Duration::from_secs(1)).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(rig.visitors.stats.live() == 1, lives);
            drop(socket);
            rig.settled().await;
        });
    }
}

#[test]
fn a_direction_without_bytes_ends_the_stream_although_the_other_one_moves() {
    // Time-outs of the visitor's and of the target's direction in seconds, and whether the stream
    // stays open while the target sends continuously and the visitor sends nothing.
    for (up, down, lives) in [(0, 0, true), (20, 0, false), (0, 20, true), (600, 20, true)] {
        run_paused(async move {
            let origin = Origin::start(|mut socket| async move {
                socket.read_exact(&mut [0]).await.unwrap();
                while socket.write_all(b"x").await.is_ok() {
                    // The origin has the clock of the machine.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ended { received: Digest::default(), clean: false }
            })
            .unwrap();
            let of = Duration::from_secs;
            let timeouts = Timeouts { idle_up: of(up), idle_down: of(down), ..Timeouts::default() };
            let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, None);
            let begin = Instant::now();
            let socket = rig
                .visit(|mut socket| {
                    socket.write_all(b"x").unwrap();
                    socket
                })
                .await;
            let stats = &rig.visitors.stats;
            until(|| stats.bytes_out() > 0).await;
            for _ in 0..60 {
                let before = stats.bytes_out();
                until(|| stats.bytes_out() > before || stats.live() == 0).await;
                if stats.live() == 0 {
                    break;
                }
                tokio::time::advance(of(1)).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(stats.live() == 1, lives, "{up} {down}");
            if !lives {
                // A quarter more at most, and a second of the loop.
                let took = begin.elapsed().as_secs();
                assert!((20..=26).contains(&took), "{took}");
            }
            drop(socket);
            rig.settled().await;
        });
    }
}

#[test]
fn a_target_that_sends_nothing_ends_the_stream_although_the_visitor_sends() {
    run_paused(async {
        let origin = Origin::start(|mut socket| async move {
            while socket.read_u8().await.is_ok() {}
            Ended { received: Digest::default(), clean: false }
        })
        .unwrap();
        let timeouts = Timeouts { idle_down: Duration::from_secs(20), ..Timeouts::default() };
        let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, None);
        let begin = Instant::now();
        let mut socket = rig.visit(|socket| socket).await;
        let stats = &rig.visitors.stats;
        until(|| stats.live() == 1).await;
        for sent in 1..60 {
            let _ = socket.write_all(b"x");
            until(|| stats.bytes_in() == sent || stats.live() == 0).await;
            if stats.live() == 0 {
                break;
            }
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        let took = begin.elapsed().as_secs();
        assert!((20..=26).contains(&took), "{took}");
        rig.settled().await;
    });
}

#[test]
fn a_stream_ends_after_its_total_time_although_bytes_move() {
    run_paused(async {
        let origin = Origin::echo().unwrap();
        let timeouts = Timeouts { total: Duration::from_secs(30), ..Timeouts::default() };
        let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, None);
        let begin = Instant::now();
        let mut socket = rig.visit(|socket| socket).await;
        let stats = &rig.visitors.stats;
        until(|| stats.live() == 1).await;
        for sent in 1..60 {
            let _ = socket.write_all(b"x");
            until(|| stats.bytes_out() == sent || stats.live() == 0).await;
            if stats.live() == 0 {
                break;
            }
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        assert!((30..=31).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
        rig.settled().await;
    });
}

#[test]
fn the_other_direction_ends_a_time_after_the_first_one_although_bytes_move() {
    run_paused(async {
        let origin = Origin::start(|mut socket| async move {
            socket.read_to_end(&mut Vec::new()).await.unwrap();
            while socket.write_all(&[0; 1000]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ended { received: Digest::default(), clean: false }
        })
        .unwrap();
        let flush = Duration::from_secs(30);
        let timeouts = Timeouts { flush, half_close: Duration::ZERO, ..Timeouts::default() };
        let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, None);
        let stats = &rig.visitors.stats;
        let visitor = tokio::task::spawn_local(visit(rig.address, |socket| {
            socket.shutdown(Shutdown::Write).unwrap();
            receive(&socket).unwrap_err().kind()
        }));
        until(|| stats.bytes_out() > 0).await;
        let begin = Instant::now();
        for n in 1..60 {
            let seen = stats.bytes_out();
            until(|| stats.bytes_out() > seen || stats.live() == 0).await;
            if stats.live() == 0 {
                break;
            }
            assert!(n < 32, "the stream still lives");
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        assert!((29..=31).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
        assert_eq!(visitor.await.unwrap(), ErrorKind::ConnectionReset);
        advance_until(|| rig.targets.stats.live() == 0).await;
    });
}

#[test]
fn a_stream_whose_both_sides_have_finished_lingers_beyond_the_flush_time() {
    run_paused(async {
        let close = Arc::new(Notify::new());
        let closing = Arc::clone(&close);
        let origin = Origin::start(move |mut socket| {
            let closing = Arc::clone(&closing);
            async move {
                socket.write_all(b"answer").await.unwrap();
                socket.shutdown().await.unwrap();
                // Closing a socket with unread bytes sends RST.
                closing.notified().await;
                Ended { received: Digest::default(), clean: true }
            }
        })
        .unwrap();
        let timeouts = Timeouts { flush: Duration::from_secs(2), ..Timeouts::default() };
        let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, None);
        let stats = &rig.visitors.stats;
        let mut socket = rig.visit(|socket| socket).await;
        socket.write_all(&[0; 100_000]).unwrap();
        until(|| stats.bytes_out() == 6).await;
        close.notify_one();
        // The service wants no more of the visitor's bytes, and its answer is written.
        until(|| rig.targets.stats.live() == 0).await;
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(stats.live(), 1, "an end now would cost the visitor the answer");
        advance_until(|| stats.live() == 0).await;
        let mut answer = [0; 6];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    });
}

#[test]
fn a_visitor_that_leaves_during_the_dial_ends_it() {
    run(async {
        // A listener whose backlog is full does not answer.
        let socket =
            || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let silent = socket();
        silent.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        silent.listen(0).unwrap();
        let address = silent.local_addr().unwrap();
        let fillers = [socket(), socket(), socket()];
        for filler in &fillers {
            filler.set_nonblocking(true).unwrap();
            let _ = filler.connect(&address);
        }
        let timeouts = Timeouts { dial: Duration::from_secs(3600), ..Timeouts::default() };
        let rig = Rig::with(address.as_socket().unwrap(), WINDOW, FRAME, timeouts, None);
        let visitor = rig.visit(|mut socket| {
            socket.write_all(b"queued").unwrap();
            socket
        });
        let socket = visitor.await;
        until(|| rig.link.max_queued() == 6).await;
        assert_eq!((rig.targets.stats.live(), rig.targets.stats.opened()), (1, 0));
        reset(socket);
        rig.settled().await;
    });
}
