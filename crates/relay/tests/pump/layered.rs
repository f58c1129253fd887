//! Visitors that are byte streams above a socket, as TLS and upgraded connections are.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use proto::{Budget, Open, Priority, Target, Unlimited};
use relay::{Duplex, Layered, Timeouts, join, open_duplex};
use testkit::origins::{Origin, Pattern};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::net::UnixStream;
use tokio::task::spawn_local;
use tokio::time::Instant;

use crate::link::Opener;
use crate::rig::{FRAME, Rig, WINDOW, run, run_paused, until};

const FIRST: &[u8] = b"read with the head of the answer";

fn open(rig: &Rig) -> Duplex {
    let target = Target::Service("test".into());
    let open = Open { target, visitor: None, priority: Priority::default(), fields: None };
    open_duplex(&Opener(Rc::clone(&rig.link)), open, &rig.visitors, None).unwrap()
}

/// A visitor behind a small pipe, so that writes block inside a frame.
fn visitor() -> (DuplexStream, Layered) {
    let (near, far) = duplex(1000);
    (near, Layered::new(far, Bytes::from_static(FIRST)))
}

/// Sends the bytes to an echo that ends after them, and compares what comes back.
async fn exchange(visitor: DuplexStream, length: u64) {
    let (mut reader, mut writer) = split(visitor);
    let sent = Pattern.at(0, 5000).repeat(usize::try_from(length / 5000).unwrap());
    let bytes = sent.clone();
    let writing = spawn_local(async move {
        writer.write_all(&bytes).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut seen = Vec::new();
    reader.read_to_end(&mut seen).await.unwrap();
    writing.await.unwrap();
    assert!(seen == [FIRST, &sent].concat(), "{} bytes of {}", seen.len(), sent.len());
}

#[test]
fn bytes_and_ends_pass_over_a_stream_behind_the_first_bytes() {
    run(async {
        let origin = Origin::half_close_echo().unwrap();
        let rig = Rig::new(origin.address());
        let (visitor, end) = visitor();
        let carried = spawn_local(open(&rig).carry(end));
        exchange(visitor, 3_000_000).await;
        carried.await.unwrap();
        rig.settled().await;
        let stats = &rig.visitors.stats;
        assert_eq!(
            (stats.opened(), stats.bytes_in(), stats.bytes_out()),
            (1, 3_000_000, 3_000_000)
        );
    });
}

#[test]
fn bytes_and_ends_pass_to_a_socket_behind_the_first_bytes() {
    run(async {
        let (near, far) = UnixStream::pair().unwrap();
        let (visitor, end) = visitor();
        let budget: Rc<dyn Budget> = Rc::new(Unlimited);
        let carried = spawn_local(join(end, near.into(), Timeouts::default(), budget));
        spawn_local(async move {
            let (mut reader, mut writer) = far.into_split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        });
        exchange(visitor, 3_000_000).await;
        carried.await.unwrap();
    });
}

#[test]
fn a_visitor_that_leaves_ends_the_stream_and_a_target_that_breaks_ends_the_visitor() {
    run(async {
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        let (leaving, end) = visitor();
        let carried = spawn_local(open(&rig).carry(end));
        until(|| rig.targets.stats.opened() == 1).await;
        drop(leaving);
        carried.await.unwrap();
        rig.settled().await;

        let (mut left, end) = visitor();
        let carried = spawn_local(open(&rig).carry(end));
        until(|| rig.targets.stats.opened() == 2).await;
        rig.link.kill();
        let mut seen = Vec::new();
        left.read_to_end(&mut seen).await.unwrap();
        carried.await.unwrap();
        rig.settled().await;
    });
}

#[test]
fn the_time_outs_of_the_service_end_it() {
    run_paused(async {
        let origin = Origin::echo().unwrap();
        let idle = Duration::from_secs(300);
        let timeouts = Timeouts { idle, ..Timeouts::default() };
        let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, None);
        let (mut left, end) = visitor();
        let stream = open(&rig);
        let begin = Instant::now();
        stream.carry(end).await;
        assert!(begin.elapsed() >= idle && begin.elapsed() < 2 * idle, "{:?}", begin.elapsed());
        let mut seen = Vec::new();
        left.read_to_end(&mut seen).await.unwrap();
        assert_eq!(seen, FIRST);

        let (near, _far) = UnixStream::pair().unwrap();
        let (_left, end) = visitor();
        let begin = Instant::now();
        join(end, near.into(), timeouts, Rc::new(Unlimited)).await;
        assert!(begin.elapsed() >= idle && begin.elapsed() < 2 * idle, "{:?}", begin.elapsed());
    });
}
