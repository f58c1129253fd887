//! Frames that are lost with a carrier, case by case.

use std::time::Duration;

use proto::Side::{Client, Server};
use proto::{Attach, Event, LinkConfig, ResetCode, StreamId};
use testkit::netem::Conditions;
use testkit::pair::{Pair, open};

use crate::kill_model::tight;

/// A stream open at both ends, nothing in flight.
fn opened() -> (Pair, StreamId) {
    let mut pair = Pair::over(Conditions::default(), tight(), 5);
    let id = pair.open(Client, &open("x"));
    pair.run();
    (pair, id)
}

fn lose_what_is_sent(pair: &mut Pair) {
    pair.pump();
    pair.kill();
    pair.reconnect();
}

#[test]
fn a_lost_open_is_sent_again_with_its_bytes() {
    let mut pair = Pair::over(Conditions::default(), tight(), 5);
    let id = pair.open(Client, &open("x"));
    pair.write(Client, id, b"early");
    lose_what_is_sent(&mut pair);
    pair.run();
    assert_eq!(pair.seen(Server, id).got, b"early");
}

#[test]
fn a_lost_credit_is_told_by_resume() {
    let (mut pair, id) = opened();
    pair.end_mut(Server).streams.get_mut(&id.raw()).unwrap().automatic = false;
    pair.write(Client, id, &[7; 40 << 10]);
    pair.run();
    assert_eq!(pair.seen(Server, id).count, 16 << 10, "credit has run out");
    pair.consume(Server, id, usize::MAX);
    lose_what_is_sent(&mut pair);
    pair.run();
    assert_eq!(pair.seen(Server, id).count, 32 << 10);
}

#[test]
fn a_lost_last_fin_is_sent_again() {
    let (mut pair, id) = opened();
    pair.finish(Server, id);
    pair.run();
    pair.finish(Client, id);
    lose_what_is_sent(&mut pair);
    pair.run();
    assert!(pair.seen(Server, id).finished);
    assert!(pair.seen(Server, id).closed && pair.seen(Client, id).closed);
}

#[test]
fn a_lost_acknowledgement_of_fin_is_repeated_for_a_forgotten_stream() {
    let (mut pair, id) = opened();
    pair.finish(Server, id);
    pair.run();
    pair.finish(Client, id);
    pair.pump();
    while pair.deliver(Server) {}
    // The server received the FIN, acknowledged it and forgot the stream; the acknowledgement is
    // lost with the carrier.
    pair.pump();
    assert!(pair.seen(Server, id).closed && !pair.seen(Client, id).closed);
    pair.kill();
    pair.reconnect();
    pair.run();
    assert!(pair.seen(Client, id).closed);
    assert_eq!(pair.seen(Client, id).reset, None);
}

/// A server that accepts no stream, and a client's stream that it has just refused.
fn refused() -> (Pair, StreamId) {
    let full = LinkConfig { streams_max: 0, ..tight() };
    let mut pair = Pair::over(Conditions::default(), full, 5);
    pair.run_for(Duration::from_millis(1));
    let id = pair.open(Client, &open("x"));
    pair.write(Client, id, b"early");
    pair.pump();
    (pair, id)
}

#[test]
fn a_refusal_that_is_lost_is_told_by_resume() {
    // The refusal is lost before it is sent, in flight as a whole, or between its RESET and its
    // STOP.
    for (sent, cut) in [(false, None), (true, None), (true, Some(10))] {
        let (mut pair, id) = refused();
        let before = pair.delivered(Client);
        cut.into_iter().for_each(|bytes| pair.cut_after(Client, before + bytes));
        while pair.deliver(Server) {}
        assert_eq!(pair.end(Server).link.stream_count(), 0, "a refused stream is no state");
        if sent {
            pair.pump();
        }
        if cut.is_some() {
            while pair.deliver(Client) {}
            assert_eq!(pair.delivered(Client), before + 10);
            assert_eq!(pair.seen(Client, id).reset, Some(ResetCode::Limit));
        }
        pair.kill();
        pair.reconnect();
        pair.run();
        let seen = pair.seen(Client, id);
        let code = if cut.is_some() { ResetCode::Limit } else { ResetCode::Shutdown };
        assert_eq!(seen.reset, Some(code), "{sent}, {cut:?}");
        assert_eq!(seen.stopped, Some(ResetCode::Shutdown), "{sent}, {cut:?}");
        assert!(seen.closed && pair.end(Client).link.retained() == 0, "{sent}, {cut:?}");
    }
}

#[test]
fn a_fin_that_crosses_the_refusal_is_acknowledged() {
    let (mut pair, id) = refused();
    pair.finish(Client, id);
    pair.run();
    let seen = pair.seen(Client, id);
    assert_eq!((seen.reset, seen.closed), (Some(ResetCode::Limit), true));
}

#[test]
fn a_resume_of_many_frames_that_is_cut_between_them_starts_anew() {
    for cut in [8, 5000, 16_390, 20_000, 33_000] {
        let mut pair = Pair::over(Conditions::default(), tight(), 5);
        let ids: Vec<StreamId> = (0..1500).map(|_| pair.open(Client, &open("x"))).collect();
        pair.run();
        for id in &ids {
            pair.write(Client, *id, b"x");
            pair.finish(Client, *id);
        }
        pair.kill();
        pair.reconnect();
        pair.cut_after(Server, cut);
        while pair.end(Server).link.active_carrier().is_some() {
            pair.step();
        }
        pair.reconnect();
        pair.run();
        for id in &ids {
            assert!(pair.seen(Server, *id).finished);
            pair.finish(Server, *id);
        }
        pair.run();
        assert_eq!(pair.end(Client).link.stream_count(), 0);
        assert_eq!(pair.end(Server).link.stream_count(), 0);
    }
}

#[test]
fn a_standby_takes_over_whichever_end_notices() {
    for side in [Client, Server] {
        let (mut pair, id) = opened();
        let old = pair.carrier();
        pair.add();
        pair.run();
        for writer in [Client, Server] {
            pair.write(writer, id, b"lost on its way, ");
        }
        pair.pump();
        pair.lose(side, old);
        for writer in [Client, Server] {
            pair.write(writer, id, b"and sent again");
            pair.finish(writer, id);
        }
        pair.run();
        for reader in [Client, Server] {
            assert_eq!(pair.seen(reader, id).got, b"lost on its way, and sent again");
            assert!(pair.seen(reader, id).closed);
            assert_eq!(pair.end(reader).times(|event| *event == Event::Resumed), 1);
        }
        let noticed = pair.end(side.peer()).times(|event| *event == Event::CarrierDead(old));
        assert_eq!(noticed, 1, "the other end learned it from RESUME");
    }
}

#[test]
fn ends_that_choose_different_standbys_find_together_or_lose_both_and_redial() {
    let (mut pair, id) = opened();
    let first = pair.carrier();
    let second = pair.add();
    let third = pair.wire();
    // The server has accepted a third carrier; the client does not know it yet when the first is
    // lost.
    pair.attach(Server, third, Attach::Adds);
    pair.lose(Client, first);
    pair.lose(Server, first);
    pair.attach(Client, third, Attach::Adds);
    pair.write(Client, id, b"still here");
    pair.run();
    if pair.seen(Server, id).got.is_empty() {
        for number in [second, third] {
            pair.kill_carrier(number);
        }
        pair.reconnect();
        pair.run();
    }
    assert_eq!(pair.seen(Server, id).got, b"still here");
    assert_eq!(pair.end(Client).violation, None);
    assert_eq!(pair.end(Server).violation, None);
}
