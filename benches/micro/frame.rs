//! Heads, and the decoding of DATA by a link that has nothing else to do.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use bytes::{BufMut as _, BytesMut};
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use proto::{
    Attach, CarrierNumber, Event, Head, Kind, Link, LinkConfig, Open, Priority, Side, StreamId,
    Target, Unlimited,
};

const CARRIER: CarrierNumber = CarrierNumber(1);

/// Far more than a run brings: no CREDIT is needed.
const WINDOW: u64 = 1 << 50;

#[divan::bench]
fn head_encode() -> [u8; 8] {
    black_box(Head::new(Kind::Data, 0, black_box(65_540), StreamId::new(black_box(7)))).encode()
}

#[divan::bench]
fn head_decode() -> Head {
    Head::decode(black_box([2, 1, 0, 4, 0, 0, 0, 7]))
}

/// One DATA frame, head and payload in one buffer, from the bytes to the event and its consumption.
#[divan::bench(args = [64, 4 << 10, 64 << 10])]
fn data_decode(bencher: Bencher<'_, '_>, size: usize) {
    let now = Instant::now();
    let (mut sender, receiver) = (link(Side::Server, now), RefCell::new(link(Side::Client, now)));
    let open =
        Open { target: Target::Service("web".into()), visitor: None, priority: Priority::Normal };
    let id = sender.open(&open).expect("a new link has ids").id();
    let mut frames = VecDeque::new();
    sender.poll_transmit(now, CARRIER, &mut frames);
    for frame in frames {
        let event =
            receiver.borrow_mut().handle_input(now, CARRIER, &mut BytesMut::from(&frame[..]));
        assert!(matches!(event, Ok(Some(Event::Opened { .. }))), "{event:?}");
    }
    let mut offset = 0u64;
    bencher
        .counter(BytesCount::new(size))
        .with_inputs(|| {
            let mut buffer = BytesMut::with_capacity(size + 13);
            buffer.put_u8(0);
            buffer.put_slice(&Head::new(Kind::Data, 0, size + 4, id).encode());
            // The low half of the offset is what travels.
            buffer.put_u32((offset & 0xffff_ffff) as u32);
            buffer.put_bytes(7, size);
            offset += size as u64;
            // A reader's buffer was cut before: the first cut is what allocates.
            drop(buffer.split_to(1));
            buffer
        })
        .bench_local_values(|mut buffer| {
            let mut receiver = receiver.borrow_mut();
            let event = receiver.handle_input(now, CARRIER, &mut buffer);
            let Ok(Some(Event::Data { key, bytes })) = event else { panic!("{event:?}") };
            receiver.consume(now, key, bytes.len());
            (buffer, bytes)
        });
}

fn link(side: Side, now: Instant) -> Link {
    let config = LinkConfig { window_initial: WINDOW, window_max: WINDOW, ..LinkConfig::default() };
    let mut link = Link::new(side, config, Rc::new(Unlimited), now);
    link.attach(now, CARRIER, Attach::New);
    link
}
