//! Peers that break the rules, and rules of the descriptions that the traces do not show.

use super::*;
use crate::wire::Conversation;

const CONVERSATION: Conversation = Conversation(7);
const NOW: Millis = Millis(1_000);

fn session(config: Config) -> Classic {
    let defaults = Config { conversation: CONVERSATION, is_controlled: false, ..config };
    Classic::new(defaults)
}

const fn head(command: Command) -> Head {
    Head {
        conversation: CONVERSATION,
        command,
        fragments: 0,
        window: 32,
        timestamp: NOW,
        sn: Sn(0),
        una: Sn(0),
    }
}

fn segment(head: Head, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&head.encode(length)[..], payload].concat()
}

/// The sent segments, one by one.
fn input(session: &mut Classic, datagram: &[u8]) -> Vec<Head> {
    let mut sent = Vec::new();
    let mut sink = |datagram: &[u8]| sent.extend(heads(datagram));
    session.input(NOW, Packet::Regular, false, datagram, &mut sink).unwrap();
    sent
}

fn flush(session: &mut Classic) -> Vec<Head> {
    let mut sent = Vec::new();
    session.flush(NOW, Flush::Full, &mut |datagram| sent.extend(heads(datagram)));
    sent
}

fn heads(datagram: &[u8]) -> Vec<Head> {
    Segments::new(CONVERSATION, datagram).map(|segment| segment.unwrap().head).collect()
}

#[test]
fn an_una_that_was_never_sent_is_ignored() {
    let mut end = session(Config::default());
    end.send(b"abc").unwrap();
    assert_eq!(flush(&mut end).len(), 1);
    for una in [2, 1 << 30, u32::MAX >> 1, u32::MAX] {
        input(&mut end, &segment(Head { una: Sn(una), ..head(Command::TellWindow) }, &[]));
        let counters = end.counters();
        assert_eq!((counters.flying, counters.send_una), (1, Sn(0)), "{una}");
    }
    input(&mut end, &segment(Head { una: Sn(1), ..head(Command::TellWindow) }, &[]));
    assert_eq!((end.counters().flying, end.counters().send_una), (0, Sn(1)));
}

#[test]
fn acknowledgements_of_what_was_never_sent_change_nothing() {
    let mut end = session(Config { resend: 1, ..Config::default() });
    end.send(b"abc").unwrap();
    flush(&mut end);
    for sn in [1, 1 << 31, u32::MAX] {
        let sent = input(&mut end, &segment(Head { sn: Sn(sn), ..head(Command::Ack) }, &[]));
        assert_eq!((sent, end.counters().flying), (vec![], 1), "{sn}");
    }
}

#[test]
fn a_message_of_no_bytes_does_not_block_the_reader() {
    let mut end = session(Config::default());
    input(&mut end, &segment(head(Command::Push), &[]));
    input(&mut end, &segment(Head { sn: Sn(1), ..head(Command::Push) }, b"abc"));
    let mut buffer = [0; 8];
    assert_eq!((end.peek(), end.recv(&mut buffer)), (Some(0), Ok(0)));
    assert_eq!((end.recv(&mut buffer), &buffer[..3]), (Ok(3), &b"abc"[..]));
    assert_eq!(end.recv(&mut buffer), Err(ReceiveError::Empty));
}

#[test]
fn the_queues_of_a_receiver_hold_a_window_each_whatever_comes() {
    let mut end = session(Config { receive_window: 8, ..Config::default() });
    for step in [1, 0x1000_0001, 0x7fff_ffff, u32::MAX] {
        for sn in (0..100_u32).rev() {
            let sn = Sn(sn.wrapping_mul(step));
            input(&mut end, &segment(Head { sn, fragments: 255, ..head(Command::Push) }, b"a"));
            let counters = end.counters();
            assert!(counters.ready <= 8 && counters.ahead <= 8, "{counters:?}");
            assert!(counters.owed < 1_400 / HEAD, "{counters:?}");
        }
    }
    assert_eq!(end.peek(), None, "the message has more fragments than the window");
    assert_eq!(end.counters().receive_next, Sn(8));
}

#[test]
fn a_message_longer_than_255_segments_is_refused() {
    let mut end = session(Config { mtu: 25, ..Config::default() });
    assert_eq!(end.send(&[]), Err(SendError::Empty));
    assert_eq!(end.send(&[0; 256]), Err(SendError::TooLong));
    assert_eq!(end.backlog(), 0);
    end.send(&[0; 255]).unwrap();
    assert_eq!(end.backlog(), 255);
}

#[test]
fn a_write_beyond_the_window_is_taken_whole_and_the_next_is_not() {
    let mut end = session(Config { send_window: 2, ..Config::default() });
    assert!(end.write(NOW, &[0; 10_000], &mut |_| {}));
    assert_eq!((end.backlog(), end.counters().flying), (8, 2));
    assert!(!end.write(NOW, &[0], &mut |_| {}));
    assert_eq!(end.backlog(), 8);
}

#[test]
fn settings_out_of_their_range_are_brought_into_it() {
    let odd =
        Config { mtu: 0, interval: 1, send_window: 0, receive_window: 0, ..Config::default() };
    let mut end = session(odd);
    end.send(b"ab").unwrap();
    assert_eq!(end.backlog(), 2, "a segment holds one byte");
    assert_eq!(end.flush(NOW, Flush::AcksOnly, &mut |_| {}), 10);
    assert_eq!(flush(&mut end)[0].window, 32);
}
