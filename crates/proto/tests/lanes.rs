//! The frames that are allowed on a stream's own lane, and lanes that overtake the first lane.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use proto::ViolationCode as Code;
use proto::{
    Attach, CarrierNumber, Event, LaneInput, Link, LinkConfig, Open, Outgoing, Priority, ResetCode,
    Side, StreamKey, Unlimited, Violation,
};
use testkit::pair::{epoch, open};

const FIRST: CarrierNumber = CarrierNumber(1);
const SECOND: CarrierNumber = CarrierNumber(2);

fn link(side: Side) -> Link {
    let mut link = Link::new(side, LinkConfig::default(), Rc::new(Unlimited), epoch());
    link.attach(epoch(), FIRST, Attach::New);
    link
}

fn frame(first: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("bodies are small").to_be_bytes();
    [&[first], &length[1..], &stream.to_be_bytes(), body].concat()
}

fn open_frame(stream: u32) -> Vec<u8> {
    frame(1, stream, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, b'x', 0])
}

fn data(stream: u32, offset: u32, payload: &[u8]) -> Vec<u8> {
    frame(2, stream, &[&offset.to_be_bytes(), payload].concat())
}

fn fin(stream: u32, offset: u32) -> Vec<u8> {
    frame(3, stream, &offset.to_be_bytes())
}

/// Reads from the first lane, and returns the events.
fn read(link: &mut Link, on: CarrierNumber, bytes: &[u8]) -> Vec<Event> {
    let mut buf = BytesMut::from(bytes);
    std::iter::from_fn(|| link.handle_input(epoch(), on, &mut buf).expect("it is allowed"))
        .collect()
}

/// A lane and its bytes that were not consumed.
#[derive(Default)]
struct Lane(LaneInput, BytesMut);

impl Lane {
    fn read(&mut self, link: &mut Link, bytes: &[u8]) -> Result<Vec<Event>, Violation> {
        self.read_on(link, FIRST, bytes)
    }

    fn read_on(
        &mut self,
        link: &mut Link,
        on: CarrierNumber,
        bytes: &[u8],
    ) -> Result<Vec<Event>, Violation> {
        self.1.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(event) = link.handle_lane(epoch(), on, &mut self.0, &mut self.1)? {
            events.push(event);
        }
        Ok(events)
    }
}

/// The output of a link, by lane.
#[derive(Debug, Default)]
struct Sent {
    first: Vec<u8>,
    own: Vec<(StreamKey, &'static str, Bytes)>,
    refuses_payload: bool,
    /// Whether streams are held back until none of their bytes are in flight, and the calls of
    /// `holds_back`.
    holds: bool,
    asked: Vec<(StreamKey, u64)>,
}

impl Outgoing for Sent {
    const LANES: bool = true;

    fn push(&mut self, frame: Bytes) {
        self.first.extend_from_slice(&frame);
    }

    fn push_payload(&mut self, key: StreamKey, _priority: Priority, frame: Bytes) {
        self.own.push((key, "payload", frame));
    }

    fn push_fin(&mut self, key: StreamKey, frame: Bytes) {
        self.own.push((key, "fin", frame));
    }

    fn abort(&mut self, key: StreamKey) {
        self.own.push((key, "abort", Bytes::new()));
    }

    fn holds_back(&mut self, key: StreamKey, _priority: Priority, under_way: u64) -> bool {
        self.asked.push((key, under_way));
        self.holds && under_way > 0
    }

    fn takes_payload(&self) -> bool {
        !self.refuses_payload
    }
}

#[test]
fn payload_and_its_end_come_on_a_stream_s_own_lane() {
    let mut link = link(Side::Server);
    let opened = read(&mut link, FIRST, &open_frame(1));
    let [Event::Opened { key, .. }] = opened[..] else { panic!("{opened:?}") };
    let mut lane = Lane::default();
    // One byte at a time.
    let bytes = [data(1, 0, b"hello "), data(1, 6, b"lane"), fin(1, 10)].concat();
    let mut got = Vec::new();
    let mut ended = false;
    for byte in bytes {
        for event in lane.read(&mut link, &[byte]).expect("it is allowed") {
            if let Event::Data { bytes, .. } = event {
                got.extend_from_slice(&bytes);
            } else {
                assert_eq!(event, Event::Finished { key });
                ended = true;
            }
        }
        assert!(!lane.0.waits());
    }
    assert_eq!((&got[..], ended), (&b"hello lane"[..], true));
}

#[test]
fn a_lane_ahead_of_its_open_waits_for_it() {
    let mut link = link(Side::Server);
    let mut lane = Lane::default();
    assert_eq!(lane.read(&mut link, &data(3, 0, b"early")).expect("it may be early"), []);
    assert!(lane.0.waits());
    read(&mut link, FIRST, &open_frame(1));
    assert_eq!(lane.read(&mut link, &[]).expect("not yet"), []);
    assert!(lane.0.waits(), "another stream was opened");
    read(&mut link, FIRST, &open_frame(3));
    let events = lane.read(&mut link, &[]).expect("it is open");
    assert!(matches!(&events[..], [Event::Data { bytes, .. }] if &bytes[..] == b"early"));
    assert!(!lane.0.waits());
}

#[test]
fn no_lane_is_read_before_the_carrier_has_resumed() {
    let mut link = link(Side::Server);
    read(&mut link, FIRST, &open_frame(1));
    link.attach(epoch(), SECOND, Attach::Replaces(FIRST));
    assert_eq!(link.poll_event(), Some(Event::CarrierDead(FIRST)));
    let mut lane = Lane::default();
    let early = lane.read_on(&mut link, SECOND, &data(1, 0, b"again")).expect("it may be early");
    assert_eq!((early, lane.0.waits()), (vec![], true));
    // RESUME: the highest id of our streams that the peer has seen, then the peer's state of
    // streams 0 and 1.
    let entry = |id: u32, limit: u64| {
        [&id.to_be_bytes()[..], &[0], &[0; 16], &limit.to_be_bytes()].concat()
    };
    let resume = [vec![0; 4], entry(0, 2 << 20), entry(1, 16 << 10)].concat();
    let events = read(&mut link, SECOND, &frame(10, 0, &resume));
    assert!(events.contains(&Event::Resumed), "{events:?}");
    let events = lane.read_on(&mut link, SECOND, &[]).expect("it is live");
    assert!(matches!(&events[..], [Event::Data { bytes, .. }] if &bytes[..] == b"again"));
}

#[test]
fn what_comes_after_a_reset_is_skipped() {
    let mut link = link(Side::Server);
    read(&mut link, FIRST, &open_frame(1));
    let events = read(&mut link, FIRST, &frame(4, 1, &[0, 1]));
    assert!(matches!(events[..], [Event::Reset { .. }]), "{events:?}");
    let late = [data(1, 0, b"late"), fin(1, 4)].concat();
    assert_eq!(Lane::default().read(&mut link, &late), Ok(vec![]));
}

#[test]
fn a_lane_brings_one_stream_and_nothing_but_its_bytes() {
    let table: Vec<(&str, Vec<u8>, Result<usize, Code>)> = vec![
        ("OPEN", open_frame(3), Err(Code::UnknownKind)),
        ("CREDIT", frame(6, 1, &[0; 16]), Err(Code::UnknownKind)),
        ("RESET", frame(4, 1, &[0, 1]), Err(Code::UnknownKind)),
        ("PING", frame(8, 0, &[0; 8]), Err(Code::UnknownKind)),
        ("unknown", frame(31, 1, b"x"), Err(Code::UnknownKind)),
        ("unknown and ignorable", frame(0x9f, 1, b"xyz"), Ok(0)),
        ("empty DATA", frame(2, 1, &[0; 4]), Err(Code::BadLength)),
        ("the control stream", data(0, 0, b"x"), Err(Code::BadStream)),
        ("a stream of ours that we never opened", data(2, 0, b"x"), Err(Code::BadStream)),
        ("an id that cannot be", data(u32::MAX, 0, b"x"), Err(Code::BadStream)),
        ("two streams", [data(1, 0, b"x"), data(3, 0, b"y")].concat(), Err(Code::BadStream)),
        ("a gap", data(1, 5, b"x"), Err(Code::Gap)),
        ("more than was granted", data(1, 0, &[0; 300 << 10]), Err(Code::Credit)),
        ("DATA twice", [data(1, 0, b"x"), data(1, 0, b"x")].concat(), Ok(1)),
    ];
    for (name, bytes, expected) in table {
        let mut link = link(Side::Server);
        read(&mut link, FIRST, &[open_frame(1), open_frame(3)].concat());
        let outcome = Lane::default().read(&mut link, &bytes);
        let outcome = outcome.map(|events| events.len()).map_err(|violation| violation.code);
        assert_eq!(outcome, expected, "{name}");
    }
}

#[test]
fn payload_fin_and_abort_name_their_stream_and_the_rest_leaves_by_the_first_lane() {
    let mut link = link(Side::Client);
    let [a, b] = ["a", "b"].map(|name| link.open(&open(name)).expect("it opens"));
    assert!(link.send_slice(a, b"for a") && link.send_slice(b, b"for b"));
    assert!(link.send_control(b"control"));
    link.finish(a);
    let mut sent = Sent { refuses_payload: true, ..Sent::default() };
    link.poll_transmit(epoch(), FIRST, &mut sent);
    let kinds = |bytes: &[u8]| {
        let mut kinds = Vec::new();
        let mut rest = bytes;
        while let [kind, l0, l1, l2, tail @ ..] = rest {
            kinds.push(kind & 0x1f);
            rest = &tail[4 + u32::from_be_bytes([0, *l0, *l1, *l2]) as usize..];
        }
        kinds
    };
    assert_eq!((kinds(&sent.first), &sent.own[..]), (vec![8, 1, 1], &[][..]), "PING and OPENs");
    sent.refuses_payload = false;
    while link.poll_transmit(epoch(), FIRST, &mut sent) > 0 {}
    assert_eq!(kinds(&sent.first), [8, 1, 1, 12]);
    let own: Vec<_> = sent.own.iter().map(|(key, what, _)| (*key, *what)).collect();
    assert_eq!(own, [(a, "payload"), (a, "fin"), (b, "payload")]);
    assert!(sent.own.iter().all(|(key, _, frame)| frame[4..8] == key.id().raw().to_be_bytes()));
    link.reset(b, ResetCode::Aborted);
    link.poll_transmit(epoch(), FIRST, &mut sent);
    assert_eq!(sent.own.last().map(|(key, what, _)| (*key, *what)), Some((b, "abort")));
    assert_eq!(kinds(&sent.first).last(), Some(&4), "RESET by the first lane");
}

/// CREDIT for a stream: limit and consumed.
fn credit(stream: u32, consumed: u32) -> Vec<u8> {
    frame(
        6,
        stream,
        &[&(1u64 << 20).to_be_bytes()[..], &u64::from(consumed).to_be_bytes()].concat(),
    )
}

#[test]
fn a_stream_that_is_held_back_goes_on_when_nothing_of_it_is_under_way() {
    let mut link = link(Side::Client);
    let mut sent = Sent::default();
    let mut transmit = |link: &mut Link, holds: bool| {
        sent.holds = holds;
        while link.poll_transmit(epoch(), FIRST, &mut sent) > 0 {}
        (std::mem::take(&mut sent.asked), sent.own.len())
    };
    let key = link.open(&open("a")).expect("it opens");
    assert!(link.send_slice(key, b"first"));
    assert_eq!(transmit(&mut link, true), (vec![(key, 0)], 1));
    assert!(link.send_slice(key, b"second"));
    assert_eq!(transmit(&mut link, true), (vec![(key, 5)], 1), "held back");
    assert!(!link.has_output(FIRST), "and nobody asks for it");
    read(&mut link, FIRST, &credit(1, 3));
    assert_eq!(transmit(&mut link, true), (vec![(key, 2)], 1), "not all has arrived");
    read(&mut link, FIRST, &credit(1, 5));
    assert!(link.has_output(FIRST));
    assert_eq!(transmit(&mut link, true), (vec![(key, 0)], 2));
    // An end without payload before it waits for nothing.
    link.finish(key);
    assert_eq!(transmit(&mut link, true), (vec![], 3));
}

#[test]
fn a_stream_that_is_held_back_goes_on_over_the_next_carrier() {
    let mut link = link(Side::Client);
    let mut sent = Sent { holds: true, ..Sent::default() };
    let key = link.open(&open("a")).expect("it opens");
    for part in [&b"first"[..], b"second"] {
        assert!(link.send_slice(key, part));
        while link.poll_transmit(epoch(), FIRST, &mut sent) > 0 {}
    }
    assert_eq!(sent.own.len(), 1, "the second is held back");
    link.attach(epoch(), SECOND, Attach::Replaces(FIRST));
    let entry =
        |id: u32| [&id.to_be_bytes()[..], &[0], &[0; 16], &(1u64 << 20).to_be_bytes()].concat();
    let resume = [1u32.to_be_bytes().to_vec(), entry(0), entry(1)].concat();
    let events = read(&mut link, SECOND, &frame(10, 0, &resume));
    assert!(events.contains(&Event::Resumed), "{events:?}");
    while link.poll_transmit(epoch(), SECOND, &mut sent) > 0 {}
    assert_eq!(sent.own.len(), 3, "both, as nothing is under way there");
}

#[test]
fn a_stream_that_is_held_back_is_in_no_other_s_way() {
    let mut link = link(Side::Client);
    let mut sent = Sent { holds: true, ..Sent::default() };
    let opened = [Priority::Interactive, Priority::Bulk]
        .map(|priority| link.open(&Open { priority, ..open("a") }).expect("it opens"));
    let [urgent, bulk] = opened;
    assert!(link.send_slice(urgent, b"first"));
    while link.poll_transmit(epoch(), FIRST, &mut sent) > 0 {}
    assert!(link.send_slice(urgent, b"second") && link.send_slice(bulk, b"bulk"));
    assert!(link.poll_transmit(epoch(), FIRST, &mut sent) > 0, "who writes stops at 0");
    let own: Vec<_> = sent.own.iter().map(|(key, ..)| *key).collect();
    assert_eq!(own, [urgent, bulk]);
}
