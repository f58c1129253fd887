//! The encoding of frame heads, and the decoding of DATA by a link without other work.

use std::cell::RefCell;

use benches::rig::Receiver;
use bytes::{BufMut as _, BytesMut};
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use proto::{Head, Kind, StreamId};

#[divan::bench]
fn head_encode() -> [u8; 8] {
    black_box(Head::new(Kind::Data, 0, black_box(65_540), StreamId::new(black_box(7)))).encode()
}

#[divan::bench]
fn head_decode() -> Head {
    Head::decode(black_box([2, 1, 0, 4, 0, 0, 0, 7]))
}

/// Handles one DATA frame, with head and payload in one buffer, from the bytes to the event and its
/// consumption.
#[divan::bench(args = [64, 4 << 10, 64 << 10])]
fn data_decode(bencher: Bencher<'_, '_>, size: usize) {
    let receiver = RefCell::new(Receiver::default());
    bencher
        .counter(BytesCount::new(size))
        .with_inputs(|| {
            let mut buffer = BytesMut::with_capacity(1 + Receiver::frame_length(size));
            buffer.put_u8(0);
            receiver.borrow_mut().next_frame(size, &mut buffer);
            // Cut the buffer once before the measurement: only the first cut of a buffer allocates.
            drop(buffer.split_to(1));
            buffer
        })
        .bench_local_values(|mut buffer| {
            let bytes = receiver.borrow_mut().receive(&mut buffer);
            (buffer, bytes)
        });
}
