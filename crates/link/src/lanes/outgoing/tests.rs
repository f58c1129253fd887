//! Which lane carries the payload of a stream.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, BytesMut};
use proto::{Attach, CarrierNumber, Link, LinkConfig, Side, Unlimited};
use testkit::pair::open;
use transport::RecvLane;

use super::*;

const CARRIER: CarrierNumber = CarrierNumber(1);

/// The number of further lanes that the peer allows.
#[derive(Clone, Debug, Default)]
struct Allowed(Arc<AtomicUsize>);

impl Lanes for Allowed {
    fn open(&mut self, _priority: Priority) -> io::Result<Option<Box<dyn SendLane>>> {
        let less = |count: usize| count.checked_sub(1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        Ok(taken.ok().map(|_| Box::new(Silent) as Box<dyn SendLane>))
    }

    fn poll_accept(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn RecvLane>>> {
        Poll::Pending
    }

    fn authenticated(&mut self, _bytes: u64) {}

    fn limit_unread(&mut self, _bytes: u64) {}

    fn allow(&mut self, _streams: usize) {}
}

/// A lane that takes no byte.
#[derive(Debug)]
struct Silent;

impl SendLane for Silent {
    fn poll_write(
        &mut self,
        _cx: &mut Context<'_>,
        _frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn finish(&mut self) {}
}

/// The link of a client whose frames go to a carrier of this peer.
struct Rig {
    link: Link,
    outgoing: Outlanes,
    allowed: Allowed,
}

impl Rig {
    fn new(lanes: usize) -> Self {
        let unlimited = Rc::new(Unlimited);
        let mut link = Link::new(Side::Client, LinkConfig::default(), unlimited, crate::now());
        link.attach(crate::now(), CARRIER, Attach::New);
        let rig = Self { link, outgoing: Outlanes::default(), allowed: Allowed::default() };
        rig.allow(lanes);
        rig
    }

    fn allow(&self, more: usize) {
        self.allowed.0.fetch_add(more, Ordering::Relaxed);
    }

    /// A stream with credit for all bytes of a test.
    fn open(&mut self) -> StreamKey {
        let key = self.link.open(&open("a")).unwrap();
        self.credit(key, 0);
        key
    }

    fn credit(&mut self, key: StreamKey, consumed: u64) {
        let mut frame = BytesMut::new();
        frame.put_slice(&[6, 0, 0, 16]);
        frame.put_u32(key.id().raw());
        frame.put_u64(1 << 24);
        frame.put_u64(consumed);
        assert_eq!(self.link.handle_input(crate::now(), CARRIER, &mut frame), Ok(None));
    }

    /// Payload of a stream: how many of its bytes left by the first lane, and by its own.
    fn send(&mut self, key: StreamKey, bytes: usize) -> (usize, usize) {
        for start in (0..bytes).step_by(1 << 10) {
            assert!(self.link.send_slice(key, &vec![7; (bytes - start).min(1 << 10)]));
        }
        self.transmit(key)
    }

    fn transmit(&mut self, key: StreamKey) -> (usize, usize) {
        let mut first = VecDeque::new();
        loop {
            let mut allowed = self.allowed.clone();
            let lanes = Further { lanes: &mut allowed, has_none: false };
            let outgoing = &mut self.outgoing;
            let mut batch = Batch { first: &mut first, lanes, outgoing };
            if self.link.poll_transmit(crate::now(), CARRIER, &mut batch) == 0 {
                break;
            }
        }
        let head = |frame: &Bytes| (frame[0] & 0x1f, frame[4..8].to_vec());
        let is_data = |frame: &&Bytes| head(frame) == (2, key.id().raw().to_be_bytes().into());
        let payload = |frame: &Bytes| frame.len() - proto::HEAD_ROOM;
        let own = self.outgoing.batch.drain(..).filter(|(of, ..)| *of == key);
        let own = own.map(|(_, frame, _)| payload(&frame)).sum();
        (first.iter().filter(is_data).map(payload).sum(), own)
    }
}

#[test]
fn a_stream_without_a_lane_has_one_as_soon_as_there_is_one_and_nothing_is_under_way() {
    let mut rig = Rig::new(1);
    let (a, b) = (rig.open(), rig.open());
    assert_eq!((rig.send(a, 10), rig.send(b, 10)), ((0, 10), (10, 0)), "there is one lane");
    rig.credit(b, 10);
    assert_eq!(rig.send(b, 10), (10, 0), "and still no other");
    rig.allow(1);
    assert_eq!(rig.send(b, 10), (10, 0), "now there is, but bytes are under way");
    rig.credit(b, 30);
    assert_eq!(rig.send(b, 10), (0, 10));
    assert_eq!(rig.send(b, 10), (0, 10), "from then on");
}

#[test]
fn a_stream_that_sends_without_pause_waits_once_for_its_lane() {
    let mut rig = Rig::new(0);
    let key = rig.open();
    let much = HELD_BACK_AFTER as usize;
    assert_eq!(rig.send(key, much), (much, 0));
    rig.allow(1);
    assert_eq!(rig.send(key, 10), (0, 0), "held back");
    rig.credit(key, HELD_BACK_AFTER - 1);
    assert_eq!(rig.transmit(key), (0, 0), "not all has arrived");
    rig.credit(key, HELD_BACK_AFTER);
    assert_eq!(rig.transmit(key), (0, 10));
}

#[test]
fn who_needs_no_lane_any_more_leaves_it_to_others() {
    let mut rig = Rig::new(0);
    let (a, b) = (rig.open(), rig.open());
    assert_eq!((rig.send(a, 10), rig.send(b, 10)), ((10, 0), (10, 0)));
    rig.link.finish(a);
    rig.credit(b, 10);
    rig.allow(1);
    assert_eq!((rig.transmit(a), rig.send(b, 10)), ((0, 0), (0, 10)));
}

#[test]
fn the_lane_of_a_stream_that_rests_ends_and_it_gets_another_when_it_speaks() {
    let mut rig = Rig::new(1);
    let key = rig.open();
    assert_eq!(rig.send(key, 10), (0, 10));
    let begun = crate::now();
    let mut round = 0;
    let mut rest = |rig: &mut Rig| {
        round += 1;
        assert!(!rig.outgoing.rest(&mut rig.link, begun + ROUND * round));
        rig.outgoing.slots[key.index()].is_none()
    };
    assert!(!rest(&mut rig), "it has just spoken");
    assert!(!rest(&mut rig), "and nobody has said that it was heard");
    rig.credit(key, 10);
    assert!(rest(&mut rig));
    assert_eq!(rig.send(key, 10), (10, 0), "this peer allows no other");
    rig.credit(key, 20);
    rig.allow(1);
    assert_eq!(rig.send(key, 10), (0, 10));
    rig.credit(key, 30);
    assert!(!rest(&mut rig), "it has just spoken");
    assert!(rest(&mut rig));
    // A stream that ends now ends on the first lane.
    rig.link.finish(key);
    assert_eq!(rig.transmit(key), (0, 0));
    assert!(rig.outgoing.batch.is_empty());
}

#[test]
fn many_lanes_are_put_to_rest_soon_and_in_several_turns() {
    let count = 2 * PER_TURN + 1;
    let mut rig = Rig::new(count);
    for _ in 0..count {
        let key = rig.open();
        rig.send(key, 1);
        rig.credit(key, 1);
    }
    // The first slot belongs to the control stream, which never has a lane of its own.
    let rests = |rig: &Rig| rig.outgoing.slots.iter().filter(|slot| slot.is_none()).count();
    let begun = crate::now();
    let turn = |rig: &mut Rig, at| (rig.outgoing.rest(&mut rig.link, at), rests(rig));
    let goes_on = [true, true, false];
    assert_eq!(goes_on.map(|_| turn(&mut rig, begun)), goes_on.map(|more| (more, 1)));
    let early = begun + ROUND_OF_MANY / 2;
    assert_eq!(turn(&mut rig, early), (false, 1), "too early for the next round");
    let expected = [(true, PER_TURN), (true, 2 * PER_TURN), (false, 1 + count)];
    assert_eq!(expected.map(|_| turn(&mut rig, begun + ROUND_OF_MANY)), expected);
}

#[test]
fn an_end_that_waits_to_be_written_keeps_its_lane() {
    let mut rig = Rig::new(1);
    let key = rig.open();
    rig.send(key, 10);
    rig.credit(key, 10);
    rig.link.finish(key);
    let mut first = VecDeque::new();
    let lanes = Further { lanes: &mut rig.allowed.clone(), has_none: false };
    let mut batch = Batch { first: &mut first, lanes, outgoing: &mut rig.outgoing };
    assert!(rig.link.poll_transmit(crate::now(), CARRIER, &mut batch) > 0);
    for round in 1..4 {
        rig.outgoing.rest(&mut rig.link, crate::now() + ROUND * round);
    }
    assert!(rig.outgoing.slots[key.index()].is_some());
}
