//! Checks clean ends, aborts, waiting and waking.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::drive::{close, read_some, receive, send, write_all};
use super::{Fixture, connect};

/// One side ends its direction and then reads the 2 MB that the other side sends after the end.
pub(super) async fn half_close(fixture: &dyn Fixture, by_dialer: bool) {
    let (dialled, accepted) = connect(fixture).await;
    let (first, second) = if by_dialer { (dialled, accepted) } else { (accepted, dialled) };
    let (first, second) = (RefCell::new(first.lane), RefCell::new(second.lane));
    let total = 2_000_000;
    tokio::join!(
        async {
            send(&first, 1, 1_000, 1_000).await;
            receive(&first, 2, total, 64 << 10).await;
        },
        async {
            receive(&second, 1, 1_000, 4_096).await;
            send(&second, 2, total, 64 << 10).await;
        },
    );
}

/// The maximum number of bytes that the transport and the kernel may hold for a reader that never
/// reads.
const HELD: usize = 64 << 20;

pub(super) async fn backpressure(fixture: &dyn Fixture) {
    let (mut a, b) = connect(fixture).await;
    let frame = Bytes::from(vec![1; 64 << 10]);
    let mut taken = 0;
    loop {
        let mut frames = VecDeque::from([frame.clone()]);
        let write = poll_fn(|cx| a.lane.poll_write(cx, &mut frames));
        match tokio::time::timeout(Duration::from_millis(500), write).await {
            Ok(n) => taken += n.expect("write"),
            Err(_) => break,
        }
        assert!(taken < HELD, "a writer must stop in front of a reader that never reads");
    }
    // Writing continues when the reader continues.
    let mut b = b;
    let mut got = 0;
    while got < taken {
        got += read_some(&mut *b.lane, 256 << 10).await.expect("read").len();
        let _ = tokio::time::timeout(Duration::ZERO, poll_fn(|cx| a.lane.poll_flush(cx))).await;
    }
    let mut frames = VecDeque::from([frame]);
    write_all(&mut *a.lane, &mut frames).await.expect("the writer goes on");
}

pub(super) async fn abort(fixture: &dyn Fixture) {
    let (mut a, mut b) = connect(fixture).await;
    let mut frames = VecDeque::from([Bytes::from_static(b"not the end")]);
    write_all(&mut *a.lane, &mut frames).await.expect("write");
    let mut frames = VecDeque::from([Bytes::from_static(b"unread")]);
    write_all(&mut *b.lane, &mut frames).await.expect("write");
    let got = read_some(&mut *b.lane, 1).await.expect("the first byte");
    assert_eq!(&got[..], b"n");
    // Wait until the other end's bytes lie unread here, so that the drop is an abort over TCP as
    // well.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(a);
    while let Ok(bytes) = read_some(&mut *b.lane, 100).await {
        assert!(!bytes.is_empty(), "an abort must not look like an end");
    }
    assert!(read_some(&mut *b.lane, 100).await.is_err(), "the error repeats");
    let mut frames = VecDeque::from([Bytes::from_static(b"x")]);
    assert!(write_all(&mut *b.lane, &mut frames).await.is_err(), "both directions are dead");
}

/// Runs a reader and a writer in two tasks: one direction's progress must not depend on the
/// other's.
pub(super) async fn wakers(fixture: &dyn Fixture) {
    let (a, b) = connect(fixture).await;
    let a = Rc::new(RefCell::new(a.lane));
    let mut b = b.lane;
    let reader = tokio::task::spawn_local({
        let a = Rc::clone(&a);
        async move {
            let mut buf = BytesMut::with_capacity(100);
            poll_fn(|cx| a.borrow_mut().poll_read(cx, &mut buf)).await.expect("read");
            buf
        }
    });
    let total = 24 << 20;
    let writer = tokio::task::spawn_local({
        let a = Rc::clone(&a);
        async move { send(&a, 1, total, 512 << 10).await }
    });
    // The writer blocks, and the reader waits.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut frames = VecDeque::from([Bytes::from_static(b"for the reader")]);
    write_all(&mut *b, &mut frames).await.expect("write");
    assert_eq!(&reader.await.expect("the reader's task")[..], b"for the reader");
    assert!(!writer.is_finished(), "the writer must still be stuck");
    let b = RefCell::new(b);
    receive(&b, 1, total, 512 << 10).await;
    writer.await.expect("the writer's task");
    close(&mut *b.into_inner()).await.expect("close");
}
