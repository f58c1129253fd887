//! Violations by a peer, rule by rule, and floods whose cost stays bounded.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use proto::ViolationCode as Code;
use proto::{
    Attach, CarrierNumber, Event, Link, LinkConfig, Open, Priority, ResetCode, Side, Target,
    Unlimited, Violation, ViolationCode,
};
use testkit::pair::epoch;

const FIRST: CarrierNumber = CarrierNumber(1);

fn server() -> Link {
    let mut link = Link::new(Side::Server, LinkConfig::default(), Rc::new(Unlimited), epoch());
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

/// Reads everything. Returns the events, or the violation.
fn read(link: &mut Link, on: CarrierNumber, bytes: &[u8]) -> Result<usize, Violation> {
    let mut buf = BytesMut::from(bytes);
    let mut events = 0;
    while link.handle_input(epoch(), on, &mut buf)?.is_some() {
        events += 1;
    }
    Ok(events)
}

fn sent(link: &mut Link) -> Vec<u8> {
    let mut out = VecDeque::<Bytes>::new();
    while link.has_output(FIRST) && link.poll_transmit(epoch(), FIRST, &mut out) > 0 {}
    out.into_iter().flatten().collect()
}

#[test]
fn each_broken_rule_ends_the_link_with_its_code_and_nothing_but_goaway_is_sent() {
    let data = |offset: u32, n: usize| [&offset.to_be_bytes()[..], &vec![0; n]].concat();
    let credit = |limit: u64, consumed: u64| [limit.to_be_bytes(), consumed.to_be_bytes()].concat();
    let table: Vec<(&str, Vec<u8>, ViolationCode)> = vec![
        ("unknown kind", frame(31, 0, b""), Code::UnknownKind),
        ("DATAGRAM on the control stream", frame(7, 0, b"x"), Code::BadStream),
        ("short FIN", frame(3, 1, b"abc"), Code::BadLength),
        ("long PING", frame(8, 0, &[0; 9]), Code::BadLength),
        ("empty DATA", frame(2, 1, &[0; 4]), Code::BadLength),
        ("huge DATA", vec![2, 0xff, 0xff, 0xff, 0, 0, 0, 1], Code::BadLength),
        ("huge OPEN", vec![1, 0, 4, 1, 0, 0, 0, 1], Code::BadLength),
        ("short CREDIT", frame(6, 1, &[0; 8]), Code::BadLength),
        ("OPEN of our own id", open_frame(2), Code::BadStream),
        ("OPEN of the control stream", open_frame(0), Code::BadStream),
        ("OPEN past the last id", open_frame((1 << 30) + 1), Code::BadStream),
        ("DATA for no stream", frame(2, 99, &data(0, 1)), Code::BadStream),
        ("DATA on the control stream", frame(2, 0, &data(0, 1)), Code::BadStream),
        ("CONTROL on a stream", frame(12, 1, &data(0, 1)), Code::BadStream),
        ("FIN of the control stream", frame(3, 0, &[0; 4]), Code::BadStream),
        ("RESET of the control stream", frame(4, 0, &[0, 1]), Code::BadStream),
        ("STOP of the control stream", frame(5, 0, &[0, 1]), Code::BadStream),
        ("CREDIT for no stream", frame(6, 99, &credit(1, 0)), Code::BadStream),
        ("a gap", frame(2, 1, &data(1, 1)), Code::Gap),
        ("FIN behind a gap", frame(3, 1, &[0, 0, 0, 1]), Code::Gap),
        ("too much", frame(2, 1, &data(0, (256 << 10) + 1)), Code::Credit),
        ("consumed what was not sent", frame(6, 1, &credit(0, 1)), Code::Contradiction),
        ("RESUME on a live carrier", frame(10, 0, &[0; 4]), Code::BadResume),
    ];
    for (name, bytes, code) in table {
        let mut link = server();
        read(&mut link, FIRST, &open_frame(1)).expect(name);
        let violation = read(&mut link, FIRST, &bytes).expect_err(name);
        assert_eq!(violation, Violation::link(code), "{name}");
        link.abort(violation);
        let raw = code.raw().to_be_bytes();
        assert_eq!(sent(&mut link), frame(11, 0, &raw), "{name}");
        assert!(!link.has_output(FIRST), "{name}");
    }
}

#[test]
fn a_resume_in_which_something_is_missing_or_wrong_ends_the_link_without_a_panic() {
    let next = CarrierNumber(2);
    let entry = |id: u32, received: u8| {
        let mut entry = [0; 29];
        entry[..4].copy_from_slice(&id.to_be_bytes());
        entry[12] = received;
        entry.to_vec()
    };
    let table = [
        ("no control stream", [vec![0; 4], entry(2, 0)].concat(), Code::BadResume),
        ("torn entry", vec![0; 9], Code::BadLength),
        ("highest of the wrong opener", vec![0, 0, 0, 1], Code::BadStream),
        ("highest never opened", vec![0, 0, 0, 200], Code::BadStream),
        ("received what was not sent", [vec![0; 4], entry(2, 9)].concat(), Code::Contradiction),
    ];
    for (name, body, code) in table {
        let mut link = server();
        let target = Target::Service("x".into());
        let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
        let key = link.open(&open).expect(name);
        assert!(link.send_slice(key, b"hello"));
        link.attach(epoch(), next, Attach::Replaces(FIRST));
        let violation = read(&mut link, next, &frame(10, 0, &body)).expect_err(name);
        assert_eq!(violation.code, code, "{name}");
        assert!(link.room(key) > 0, "{name}");
        link.abort(violation);
        assert!(link.has_output(next), "{name}: GOAWAY leaves while resuming");
    }
}

/// An entry of RESUME for a stream of which nothing was received.
fn listed(id: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[0; 25]].concat()
}

/// A server that resumes on its second carrier. It has opened the stream 2, and the client the
/// stream 1.
fn resuming() -> (Link, CarrierNumber) {
    let mut link = server();
    let target = Target::Service("x".into());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    link.open(&open).expect("it opens");
    read(&mut link, FIRST, &open_frame(1)).expect("an OPEN is fine");
    let next = CarrierNumber(2);
    link.attach(epoch(), next, Attach::Replaces(FIRST));
    while link.poll_event().is_some() {}
    (link, next)
}

/// A frame of RESUME; the flag 0x40 means that the list continues.
fn resume(flags: u8, ids: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let entries = ids.into_iter().map(listed);
    let body: Vec<u8> = [vec![0; 4]].into_iter().chain(entries).flatten().collect();
    frame(10 | flags, 0, &body)
}

#[test]
fn a_carrier_brings_one_resume_that_names_each_stream_once() {
    let more = 0x40;
    let table = [
        ("a stream twice in a frame", resume(0, [0, 1, 1]), Code::Contradiction),
        (
            "a stream again in the next frame",
            [resume(more, [0, 2]), resume(0, [1, 2])].concat(),
            Code::Contradiction,
        ),
        ("a frame that continues and names nothing", resume(more, []), Code::BadResume),
        ("a stream that the reader never opened", resume(0, [0, 4]), Code::BadStream),
        ("a stream past the last id", resume(0, [0, (1 << 30) + 1]), Code::BadStream),
        ("a second RESUME", [resume(0, [0, 1, 2]), resume(0, [0, 1, 2])].concat(), Code::BadResume),
        (
            "a second RESUME, begun",
            [resume(0, [0, 1]), resume(more, [0])].concat(),
            Code::BadResume,
        ),
    ];
    for (name, bytes, code) in table {
        let (mut link, next) = resuming();
        let outcome = read(&mut link, next, &bytes).map_err(|violation| violation.code);
        assert_eq!(outcome, Err(code), "{name}");
    }
    // A list may take as many frames as it has entries, and name streams whose OPEN was lost.
    let (mut link, next) = resuming();
    let parts: Vec<u8> =
        (0..=9).filter(|id| id % 2 == 1).flat_map(|id| resume(more, [id])).collect();
    read(&mut link, next, &[resume(more, [0]), parts, resume(0, [2])].concat()).expect("a list");
    assert!(link.is_live());
}

#[test]
fn a_list_that_broke_off_with_its_carrier_may_be_sent_again_on_the_next() {
    let (mut link, next) = resuming();
    read(&mut link, next, &resume(0x40, [0, 1])).expect("a part");
    let third = CarrierNumber(3);
    link.attach(epoch(), third, Attach::Replaces(next));
    read(&mut link, third, &resume(0, [0, 1, 2])).expect("the whole");
    assert!(link.is_live());
}

#[test]
fn a_resume_ends_after_as_many_unknown_streams_as_a_link_can_have() {
    let (mut link, next) = resuming();
    let mut unknown = (3u32..).step_by(2);
    let mut many = |n: usize| {
        let ids: Vec<u32> = unknown.by_ref().take(n).collect();
        ids.chunks(512).flat_map(|ids| resume(0x40, ids.iter().copied())).collect::<Vec<u8>>()
    };
    let flood = many(1 << 20);
    assert_eq!(read(&mut link, next, &flood), Ok(0), "the peer may have opened that many");
    let outcome = read(&mut link, next, &many(1)).map_err(|violation| violation.code);
    assert_eq!(outcome, Err(Code::Flood));
}

#[test]
fn frames_on_a_standby_are_refused_and_unknown_ones_that_may_be_are_skipped() {
    let standby = CarrierNumber(2);
    let mut link = server();
    link.attach(epoch(), standby, Attach::Adds);
    assert_eq!(read(&mut link, standby, &frame(0x9f, 7, &[1; 70_000])), Ok(0));
    assert_eq!(read(&mut link, standby, &frame(8, 0, &[0; 8])), Ok(0));
    let violation = read(&mut link, standby, &open_frame(1)).expect_err("RESUME comes first");
    assert_eq!(violation.code, Code::BadResume);
}

#[test]
fn an_open_that_cannot_be_read_is_refused_and_nothing_else_is_touched() {
    let text = |bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("texts are short");
        [&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, length], bytes, &[0]].concat()
    };
    let mut kind = text(b"x");
    kind[9] = 4;
    let mut measurement = text(b"x");
    measurement[9] = 2;
    let table = [
        ("empty", Vec::new()),
        ("torn", text(b"x")[..12].to_vec()),
        ("not UTF-8", text(b"\xff")),
        ("unknown target kind", kind),
        ("unknown measurement", measurement),
        ("unknown address kind", [&text(b"x")[..13], &[5]].concat()),
        ("torn address", [&text(b"x")[..13], &[4, 127, 0]].concat()),
    ];
    for (name, body) in table {
        let mut link = server();
        sent(&mut link);
        let bytes = [open_frame(1), frame(1, 3, &body), frame(2, 3, &[0, 0, 0, 0, b'x'])].concat();
        assert_eq!(read(&mut link, FIRST, &bytes), Ok(1), "{name}: the first stream is opened");
        let unknown = [frame(4, 3, &[0, 7]), frame(5, 3, &[0, 7])].concat();
        let out = sent(&mut link);
        assert!(out.windows(20).any(|part| part == unknown), "{name}: RESET and STOP");
        assert_eq!(link.stream_count(), 1, "{name}");
        let data = frame(2, 1, &[0, 0, 0, 0, b'x']);
        assert_eq!(read(&mut link, FIRST, &data), Ok(1), "{name}: the link lives");
    }
}

#[test]
fn tiny_frames_are_bounded_by_credit_and_cost_no_answer_each() {
    // Read: a credit now and then, not one for each byte.
    let mut link = server();
    read(&mut link, FIRST, &open_frame(1)).expect("an OPEN is fine");
    sent(&mut link);
    let tiny = |at: u32| frame(2, 1, &[&at.to_be_bytes()[..], b"x"].concat());
    let mut buf = BytesMut::new();
    let mut answers = 0;
    for at in 0..1_000_000u32 {
        buf.extend_from_slice(&tiny(at));
        match link.handle_input(epoch(), FIRST, &mut buf) {
            Ok(Some(Event::Data { key, bytes })) => link.consume(epoch(), key, bytes.len()),
            other => panic!("{other:?}"),
        }
        answers += sent(&mut link).len();
    }
    assert!(answers <= 24 * 20, "{answers} bytes of CREDIT");

    // Sent again and again: dropped.
    let known = tiny(999_999).repeat(100_000);
    assert_eq!(read(&mut link, FIRST, &known), Ok(0));
    assert!(!link.has_output(FIRST));

    // Not read: no more than was granted.
    let mut link = server();
    read(&mut link, FIRST, &open_frame(1)).expect("an OPEN is fine");
    let flood: Vec<u8> = (0..(256 << 10) + 1).flat_map(tiny).collect();
    let violation = read(&mut link, FIRST, &flood).expect_err("more than was granted");
    assert_eq!(violation.code, Code::Credit);
}

#[test]
fn tiny_writes_are_kept_in_bounded_number() {
    let mut link = server();
    let target = Target::Service("x".into());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    let key = link.open(&open).expect("it opens");
    sent(&mut link);
    read(&mut link, FIRST, &frame(6, 2, &[(16u64 << 20).to_be_bytes(), [0; 8]].concat()))
        .expect("credit");
    let mut kept = 0u64;
    while link.room(key) > 0 {
        assert!(link.send_slice(key, b"x"));
        sent(&mut link);
        kept += 1;
        assert!(kept <= 4096, "a retained frame costs a hundred bytes, whatever it carries");
    }
    assert_eq!(link.retained(), kept);
    let consumed = [(16u64 << 20).to_be_bytes(), kept.to_be_bytes()].concat();
    read(&mut link, FIRST, &frame(6, 2, &consumed)).expect("credit");
    assert_eq!((link.poll_room(), link.retained()), (Some(key), 0));
}

#[test]
fn floods_are_cut_off_or_answered_once() {
    // PINGs: the newest is answered.
    let mut link = server();
    sent(&mut link);
    read(&mut link, FIRST, &frame(8, 0, &[0; 8]).repeat(100_000)).expect("pings are fine");
    assert_eq!(sent(&mut link).len(), 16);

    // OPENs beyond the limit: refused without end as long as the answers are read, and only then.
    let config = LinkConfig { streams_max: 10, ..LinkConfig::default() };
    let mut link = Link::new(Side::Server, config, Rc::new(Unlimited), epoch());
    link.attach(epoch(), FIRST, Attach::New);
    sent(&mut link);
    let burst = |from: u32| -> Vec<u8> {
        (from..from + 60_000).flat_map(|n| open_frame(n * 2 + 1)).collect()
    };
    for n in 0..3 {
        read(&mut link, FIRST, &burst(n * 60_000)).expect("a burst of visitors is no flood");
        let refused = if n == 0 { 60_000 - 10 } else { 60_000 };
        let accepted = if n == 0 { 10 * 24 } else { 0 };
        assert_eq!(sent(&mut link).len(), accepted + refused * 20, "a RESET and a STOP each");
        assert_eq!(link.stream_count(), 10);
    }
    read(&mut link, FIRST, &burst(180_000)).expect("not yet");
    assert_eq!(
        read(&mut link, FIRST, &burst(240_000)).map_err(|v| v.code),
        Err(Code::Flood),
        "a peer that reads no answer"
    );

    // The same for OPENs that the application refuses: nothing waits for an acknowledgement.
    let mut link = server();
    sent(&mut link);
    for n in 0..4 {
        let mut buf = BytesMut::from(&burst(n * 60_000)[..]);
        while let Some(event) = link.handle_input(epoch(), FIRST, &mut buf).expect("no flood") {
            if let Event::Opened { key, .. } = event {
                link.refuse(key, ResetCode::Unknown);
            }
        }
        assert_eq!((sent(&mut link).len(), link.stream_count()), (60_000 * 20, 0));
    }

    // FINs for a stream that is forgotten, while nothing is read.
    let mut link = server();
    let mut buf = BytesMut::from(&open_frame(1)[..]);
    let opened = link.handle_input(epoch(), FIRST, &mut buf).expect("an OPEN is fine");
    let Some(Event::Opened { key, .. }) = opened else { panic!("opened") };
    link.finish(key);
    sent(&mut link);
    let mut ends = frame(3, 1, &[0; 4]);
    ends.extend(frame(0x46, 1, &[0; 16]));
    read(&mut link, FIRST, &ends).expect("both ends");
    sent(&mut link);
    assert_eq!(link.stream_count(), 0);
    let flood = frame(3, 1, &[0; 4]).repeat(70_000);
    assert_eq!(read(&mut link, FIRST, &flood).map_err(|v| v.code), Err(Code::Flood));
}
