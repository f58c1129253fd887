//! Flow control: how much memory one stream may hold, and how it affects other streams of the link.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use relay::Timeouts;
use socket2::SockRef;
use testkit::origins::{Origin, Pattern};

use crate::rig::{FRAME, Rig, WINDOW, exchange, receive, run, send, until, visit};

#[test]
fn one_byte_of_credit_is_enough_for_every_byte() {
    run(async {
        let origin = Origin::echo().unwrap();
        let rig = Rig::with(origin.address(), 1, FRAME, Timeouts::default(), None);
        let got = rig.visit(|socket| exchange(&socket, 3000).unwrap()).await;
        assert_eq!(got, Pattern.digest(3000));
        assert!(rig.link.max_queued() <= 1);
        rig.settled().await;
    });
}

#[test]
fn odd_windows_and_frames_lose_nothing() {
    run(async {
        let origin = Origin::echo().unwrap();
        for (window, frame) in [(1000, 7), (16 << 10, 16 << 10), (65_537, 4099), (4 << 20, 1 << 20)]
        {
            let rig = Rig::with(origin.address(), window, frame, Timeouts::default(), None);
            let length = 200_000 + window as u64;
            let got = rig.visit(move |socket| exchange(&socket, length).unwrap()).await;
            assert_eq!(got, Pattern.digest(length), "{window} {frame}");
            assert!(rig.link.max_queued() <= window);
            rig.settled().await;
        }
    });
}

#[test]
fn the_service_may_speak_first() {
    run(async {
        let origin = Origin::banner("SSH-2.0-test\r\n").unwrap();
        let rig = Rig::new(origin.address());
        let got = rig
            .visit(|mut socket| {
                let mut banner = [0; 14];
                socket.read_exact(&mut banner).unwrap();
                banner
            })
            .await;
        assert_eq!(&got, b"SSH-2.0-test\r\n");
        rig.settled().await;
    });
}

#[test]
fn http_passes_with_keep_alive_and_chunks() {
    run(async {
        let origin = Origin::http().unwrap();
        let rig = Rig::new(origin.address());
        let got = rig
            .visit(|mut socket| {
                for _ in 0..100 {
                    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                    let mut answer = [0; 41];
                    socket.read_exact(&mut answer).unwrap();
                    assert!(answer.ends_with(b"\r\n\r\nok\n"));
                }
                socket
                    .write_all(b"GET /chunked/100000 HTTP/1.1\r\nConnection: close\r\n\r\n")
                    .unwrap();
                let mut rest = Vec::new();
                socket.read_to_end(&mut rest).unwrap();
                rest.ends_with(b"\r\n0\r\n\r\n") && rest.len() > 100_000
            })
            .await;
        assert!(got);
        rig.settled().await;
    });
}

/// Fills a stream whose reader hardly reads, and shows that a transfer of another stream on the
/// same link completes meanwhile.
fn neighbour_of(stuck: Origin) {
    run(async move {
        let (window, frame) = (WINDOW, FRAME);
        let good = Origin::echo().unwrap();
        let rig = Rig::with(stuck.address(), window, frame, Timeouts::default(), None);
        let other = Rig::with(good.address(), window, frame, Timeouts::default(), None);
        let stalled = tokio::task::spawn_local(visit(rig.address, |socket| {
            socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            // The call ends with the time-out, because the far end never takes this many bytes.
            let _ = send(&socket, 1 << 30);
            socket
        }));
        until(|| rig.link.max_queued() > 0).await;
        let got = other.visit(|socket| exchange(&socket, 20 << 20).unwrap()).await;
        assert_eq!(got, Pattern.digest(20 << 20));
        let socket = stalled.await.unwrap();
        assert!(rig.link.max_queued() <= window, "{}", rig.link.max_queued());
        assert_eq!(rig.visitors.stats.live(), 1);
        crate::rig::reset(socket);
        // The visitor's pump has no credit left to read with, and no bytes to write. It must notice
        // the reset all the same.
        until(|| rig.visitors.stats.live() == 0).await;
        rig.settled().await;
    });
}

#[test]
fn a_slow_reader_is_bounded_by_its_credit_and_its_stalled_visitor_is_missed() {
    neighbour_of(Origin::slow_reader(1000).unwrap());
}

#[test]
fn a_never_reader_is_bounded_by_its_credit_and_its_stalled_visitor_is_missed() {
    neighbour_of(Origin::never_reader().unwrap());
}

#[test]
fn a_visitor_that_reads_late_gets_everything() {
    run(async {
        let origin = Origin::source(20 << 20).unwrap();
        let rig = Rig::new(origin.address());
        let got = rig
            .visit(|socket| {
                std::thread::sleep(Duration::from_millis(300));
                receive(&socket).unwrap()
            })
            .await;
        assert_eq!(got, Pattern.digest(20 << 20));
        assert!(rig.link.max_queued() <= WINDOW);
        rig.settled().await;
    });
}

/// A target that reads only the first `bytes` bytes of its single visitor, with a small buffer.
fn reads_only(mut bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SockRef::from(&listener).set_recv_buffer_size(64 << 10).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut piece = vec![0; 64 << 10];
        while bytes > 0 {
            let most = bytes.min(piece.len());
            bytes -= socket.read(&mut piece[..most]).unwrap();
        }
        // Until the visitor gives up.
        std::thread::sleep(crate::rig::DEADLINE);
    });
    address
}

#[test]
fn the_system_keeps_few_unsent_bytes_of_a_stream_that_stalls() {
    const KIB: u64 = 1 << 10;
    // Of a target that reads nothing fewer than of a target that has read.
    for (reads, most) in [(0, 320), (8 << 20, 640)] {
        run(async move {
            let rig = Rig::new(reads_only(reads));
            let socket = visit(rig.address, |mut socket| {
                socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
                while socket.write(&[0; 16 << 10]).is_ok() {}
                socket
            })
            .await;
            // The 128 KiB in the target's own buffer are included.
            let left = rig.targets.stats.bytes_out() - reads as u64;
            assert!(left <= most * KIB, "{reads}: {left} bytes");
            crate::rig::reset(socket);
        });
    }
}
