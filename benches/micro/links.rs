//! The work of a link's state machine per frame, at both ends: `send`, `poll_transmit`, then
//! `handle_input` and `consume` at the other end, and the CREDIT back when it is due.

use std::cell::RefCell;

use benches::rig::Links;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use proto::Side;

/// One frame at a time.
#[divan::bench(args = [64, 4 << 10, 32 << 10])]
fn frame(bencher: Bencher<'_, '_>, size: usize) {
    let mut links = Links::default();
    let (stream, _) = links.open();
    let payload = vec![7; size];
    bencher.counter(BytesCount::new(size)).bench_local(|| {
        assert!(links.send(Side::Server, stream, &payload, 16 << 10), "there is room");
        links.settle();
    });
}

/// A frame of 64 bytes on each of `count` streams, all ready before the first is sent. The cost per
/// frame must not depend on the number of waiting streams.
#[divan::bench(args = [1, 100, 10_000])]
fn streams_ready(bencher: Bencher<'_, '_>, count: usize) {
    let mut links = Links::default();
    let streams: Vec<_> = (0..count).map(|_| links.open().0).collect();
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        for &stream in &streams {
            assert!(links.send(Side::Server, stream, &[7; 64], 16 << 10), "there is room");
        }
        links.settle();
    });
}

/// One request of 200 bytes and its answer, beside `count` open streams without traffic.
#[divan::bench(args = [1, 10_000])]
fn request_beside_idle_streams(bencher: Bencher<'_, '_>, count: usize) {
    let mut links = Links::default();
    let streams: Vec<_> = (0..count).map(|_| links.open()).collect();
    let (server, client) = streams[count / 2];
    bencher.bench_local(|| {
        assert!(links.send(Side::Server, server, &[7; 200], 16 << 10), "there is room");
        links.settle();
        assert!(links.send(Side::Client, client, &[7; 200], 16 << 10), "there is room");
        links.settle();
    });
}

/// OPEN, FIN in both directions, until both ends have forgotten the stream. A link has 2^29 ids for
/// each side.
#[divan::bench]
fn open_and_close(bencher: Bencher<'_, '_>) {
    let links = RefCell::new(Links::default());
    bencher.bench_local(|| {
        let mut links = links.borrow_mut();
        let (stream, _) = links.open();
        links.finish(Side::Server, stream);
        links.settle();
        links.settle();
    });
    let links = links.borrow();
    assert!(links.server().closed > 0 && links.server().closed == links.client().closed);
}
