//! Checks that a transport neither loses, duplicates nor reorders bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use bytes::{Bytes, BytesMut};

use super::drive::{Dice, Sum, close, piece, read_some, receive, send, write_all};
use super::{Fixture, connect};

pub(super) async fn both_ways_at_once(fixture: &dyn Fixture) {
    let (a, b) = connect(fixture).await;
    let (a, b) = (RefCell::new(a.lane), RefCell::new(b.lane));
    tokio::join!(
        send(&a, 1, 700_000, 5_000),
        receive(&b, 1, 700_000, 9_000),
        send(&b, 2, 900_000, 40_000),
        receive(&a, 2, 900_000, 3_000),
    );
}

pub(super) async fn large_transfer(fixture: &dyn Fixture) {
    let (a, b) = connect(fixture).await;
    let (a, b) = (RefCell::new(a.lane), RefCell::new(b.lane));
    let total = 12 << 20;
    tokio::join!(
        send(&a, 3, total, 512 << 10),
        receive(&b, 3, total, 512 << 10),
        send(&b, 4, 1 << 20, 64 << 10),
        receive(&a, 4, 1 << 20, 512 << 10),
    );
}

pub(super) async fn many_frames(fixture: &dyn Fixture) {
    let (mut a, mut b) = connect(fixture).await;
    let mut frames = VecDeque::new();
    let mut total = 0;
    for i in 0..1_000 {
        let length = if i % 7 == 0 { 0 } else { i % 23 };
        frames.push_back(piece(5, total, length));
        total += length as u64;
    }
    frames.push_back(Bytes::new());
    write_all(&mut *a.lane, &mut frames).await.expect("write");
    let mut sum = Sum::new(5);
    while sum.seen() < total {
        sum.add(&read_some(&mut *b.lane, 4096).await.expect("read"));
    }
    close(&mut *a.lane).await.expect("close");
    assert!(read_some(&mut *b.lane, 10).await.expect("end").is_empty());
}

pub(super) async fn one_byte_at_a_time(fixture: &dyn Fixture) {
    let (a, b) = connect(fixture).await;
    let (a, b) = (RefCell::new(a.lane), RefCell::new(b.lane));
    tokio::join!(send(&a, 6, 3_000, 1), receive(&b, 6, 3_000, 1));
}

/// Abandons every other poll at once and repeats the poll with another buffer and other frames.
pub(super) async fn given_up_polls(fixture: &dyn Fixture) {
    let (a, b) = connect(fixture).await;
    let (a, b) = (RefCell::new(a.lane), RefCell::new(b.lane));
    let total: u64 = 2_000_000;
    let writer = async {
        let (mut dice, mut sent) = (Dice::new(7), 0);
        while sent < total {
            let left = usize::try_from(total - sent).unwrap_or(usize::MAX);
            let mut frames = VecDeque::from([piece(7, sent, dice.roll(100_000).min(left))]);
            let polled =
                poll_fn(|cx| Poll::Ready(a.borrow_mut().poll_write(cx, &mut frames))).await;
            match polled {
                Poll::Ready(n) => sent += n.expect("write") as u64,
                Poll::Pending => tokio::task::yield_now().await,
            }
        }
        poll_fn(|cx| a.borrow_mut().poll_close(cx)).await.expect("close");
    };
    let reader = async {
        let (mut dice, mut sum) = (Dice::new(8), Sum::new(7));
        loop {
            let mut buf = BytesMut::with_capacity(dice.roll(50_000));
            let polled = poll_fn(|cx| Poll::Ready(b.borrow_mut().poll_read(cx, &mut buf))).await;
            match polled {
                Poll::Ready(n) if n.as_ref().is_ok_and(|&n| n == 0) => break,
                Poll::Ready(n) => assert_eq!(n.expect("read"), buf.len()),
                Poll::Pending => {
                    assert!(buf.is_empty(), "nothing is appended by a pending read");
                    tokio::task::yield_now().await;
                }
            }
            sum.add(&buf);
        }
        assert_eq!(sum.seen(), total);
    };
    tokio::join!(writer, reader);
}
