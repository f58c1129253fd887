//! Arbitrary datagrams for the reader of segments and for the classic machine.

use crate::classic::{Classic, Config, Counters, Flush, Packet};
use crate::wire::{Content, Conversation, Millis, Segments};

const CONVERSATION: Conversation = Conversation(0x0102_0304);

/// A small window, so that few segments fill it.
const WINDOW: u16 = 4;

/// Segments must be written as they were read, and a machine must stay within its bounds whatever
/// it gets. Each datagram of the input begins with three bytes: the actions before and after the
/// datagram, and its length in units of 1 and of 256.
pub fn segments(data: &[u8]) {
    let mut machine = Classic::new(Config {
        conversation: CONVERSATION,
        mtu: 200,
        send_window: WINDOW,
        receive_window: WINDOW,
        is_controlled: data.first().is_some_and(|first| first & 1 == 0),
        resend: u32::from(data.len().is_multiple_of(3)),
        ..Config::default()
    });
    let (mut now, mut rest) = (Millis(1_000), data);
    while let Some((&[act, low, high], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (datagram, after) = after.split_at(length);
        rest = after;
        read(datagram);
        now = now.plus(u32::from(act) << 4);
        feed(&mut machine, now, act, datagram);
    }
}

/// A segment that was read is written with the same bytes.
fn read(datagram: &[u8]) {
    let _ = Content::of(datagram);
    let mut at = 0;
    for segment in Segments::new(CONVERSATION, datagram).map_while(Result::ok) {
        let length = u32::try_from(segment.payload.len()).unwrap_or(u32::MAX);
        let written = [&segment.head.encode(length)[..], segment.payload].concat();
        assert_eq!(written, datagram[at..at + written.len()]);
        at += written.len();
    }
    assert!(at <= datagram.len());
}

fn feed(machine: &mut Classic, now: Millis, act: u8, datagram: &[u8]) {
    let mut sink = |sent: &[u8]| {
        assert!(!sent.is_empty() && sent.len() <= 200, "{} bytes", sent.len());
        let all: Result<Vec<_>, _> = Segments::new(CONVERSATION, sent).collect();
        assert!(all.is_ok(), "own segments can be read");
    };
    if act & 2 != 0 {
        machine.write(now, &[act; 300], &mut sink);
    }
    let before = machine.counters();
    let packet = if act & 4 == 0 { Packet::Regular } else { Packet::Recovered };
    let outcome = machine.input(now, packet, act & 8 != 0, datagram, &mut sink);
    check(&before, &machine.counters());
    if outcome.is_ok() && act & 16 != 0 {
        let mut buffer = [0; 4_096];
        while machine.recv(&mut buffer).is_ok() {}
    }
    let next = machine.flush(now, Flush::Full, &mut sink);
    assert!((1..=100).contains(&next), "{next} ms");
    check(&before, &machine.counters());
}

/// The invariants after each datagram.
fn check(before: &Counters, after: &Counters) {
    let window = usize::from(WINDOW);
    assert!(after.flying <= window && after.ready <= window && after.ahead <= window, "{after:?}");
    let in_flight = after.send_next.since(after.send_una);
    assert_eq!(usize::try_from(in_flight), Ok(after.flying), "numbers in flight have no holes");
    assert!(!after.send_una.is_before(before.send_una), "{before:?} {after:?}");
    assert!(!after.receive_next.is_before(before.receive_next), "{before:?} {after:?}");
    assert!(after.timeout <= 60_000 && after.probe_wait <= 120_000, "{after:?}");
}
