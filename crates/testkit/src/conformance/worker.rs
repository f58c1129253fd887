//! Checks that a lane with buffered bytes can move to another thread's runtime during a transfer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::thread;
use std::time::Duration;

use transport::Lane;

use super::drive::{Sum, piece, read_some, receive, send};
use super::{Fixture, connect};

const TOTAL: u64 = 3_000_000;

pub(super) async fn moves(fixture: &dyn Fixture) {
    let (a, b) = connect(fixture).await;
    let a = RefCell::new(a.lane);
    let mut lane = b.lane;
    let moved = async {
        // Read a few bytes here, so that the lane still holds the rest of a record. Write some as
        // well.
        let mut sum = Sum::new(1);
        while sum.seen() < 20_001 {
            sum.add(&read_some(&mut *lane, 777).await.expect("read"));
        }
        let mut frames = VecDeque::from([piece(2, 0, 400_000)]);
        let mut written = 0;
        while written < 100_000 {
            written += poll_fn(|cx| lane.poll_write(cx, &mut frames)).await.expect("write") as u64;
        }
        lane.detach().expect("detach");
        let (done, wait) = tokio::sync::oneshot::channel();
        let there = thread::spawn(move || {
            there(lane, sum, written);
            let _ = done.send(());
        });
        let _ = wait.await;
        there.join().expect("the other worker");
    };
    tokio::join!(send(&a, 1, TOTAL, 30_000), receive(&a, 2, TOTAL, 60_000), moved);
}

/// The other worker: it finishes both directions.
fn there(mut lane: Box<dyn Lane>, mut sum: Sum, mut written: u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async move {
        lane.attach().expect("attach");
        let lane = RefCell::new(lane);
        let reader = async {
            loop {
                let mut buf = bytes::BytesMut::with_capacity(5_000);
                let n = poll_fn(|cx| lane.borrow_mut().poll_read(cx, &mut buf)).await;
                if n.expect("read") == 0 {
                    break;
                }
                sum.add(&buf);
            }
            assert_eq!(sum.seen(), TOTAL);
        };
        let writer = async {
            while written < TOTAL {
                let left = usize::try_from(TOTAL - written).unwrap_or(usize::MAX);
                let mut frames = VecDeque::from([piece(2, written, left.min(50_000))]);
                let n = poll_fn(|cx| lane.borrow_mut().poll_write(cx, &mut frames)).await;
                written += n.expect("write") as u64;
            }
            poll_fn(|cx| lane.borrow_mut().poll_close(cx)).await.expect("close");
        };
        let both = async { tokio::join!(reader, writer) };
        tokio::time::timeout(Duration::from_secs(50), both).await.expect("in time");
    });
}
