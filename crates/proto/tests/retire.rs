//! The retirement of a link: until when each side may open streams, and when the link is over.

use proto::Side::{Client, Server};
use proto::{Event, GoAwayReason, LinkConfig, ResetCode, StreamId};
use testkit::netem::Conditions;
use testkit::pair::{Pair, open};

fn sent(pair: &Pair, reason: GoAwayReason) -> usize {
    pair.end(Client).times(|event| *event == Event::GoingAway(reason))
}

fn end_both_ways(pair: &mut Pair, id: StreamId) {
    for side in [Client, Server] {
        pair.finish(side, id);
    }
}

#[test]
fn both_open_streams_until_the_client_has_another_link() {
    let mut pair = Pair::connected(1);
    pair.end_mut(Server).link.go_away();
    pair.run();
    assert_eq!(sent(&pair, GoAwayReason::Retire), 1);
    let ids = [Client, Server].map(|side| pair.open(side, &open("x")));
    pair.run();
    assert!(ids.iter().all(|id| pair.seen(Client, *id).reset.is_none()));
    pair.end_mut(Client).link.go_away();
    // The OPEN crosses the client's GOAWAY and is accepted.
    let crossing = pair.open(Server, &open("x"));
    pair.write(Server, crossing, b"late");
    pair.run();
    assert_eq!(pair.seen(Client, crossing).got, b"late");
    for side in [Client, Server] {
        assert!(pair.try_open(side, &open("x")).is_none());
    }
    assert_eq!(sent(&pair, GoAwayReason::Done), 0, "three streams live");
}

#[test]
fn the_server_is_done_when_its_last_stream_is_not_when_the_client_has_none() {
    let mut pair = Pair::connected(1);
    let id = pair.open(Client, &open("x"));
    pair.write(Client, id, &[7; 1000]);
    pair.run();
    pair.end_mut(Client).link.go_away();
    end_both_ways(&mut pair, id);
    // A slow target: the server holds the last bytes while the client has forgotten the stream.
    let mut slow = Pair::connected(2);
    let held = slow.open(Client, &open("x"));
    slow.write(Client, held, b"x");
    slow.run();
    slow.end_mut(Server).streams.get_mut(&held.raw()).expect("seen").automatic = false;
    slow.write(Client, held, &[7; 1000]);
    slow.end_mut(Client).link.go_away();
    end_both_ways(&mut slow, held);
    for pair in [&mut pair, &mut slow] {
        pair.run();
    }
    assert_eq!(sent(&pair, GoAwayReason::Done), 1);
    assert_eq!(slow.end(Client).link.stream_count(), 0);
    assert_eq!(sent(&slow, GoAwayReason::Done), 0, "bytes wait for the target");
    slow.consume(Server, held, 1000);
    slow.run();
    assert_eq!(sent(&slow, GoAwayReason::Done), 1);
}

#[test]
fn what_was_said_is_said_again_when_the_carrier_dies_with_it() {
    // The client's GOAWAY or the server's reply may be lost.
    for after in 0..60 {
        let mut pair = Pair::connected(1);
        let id = pair.open(Client, &open("x"));
        pair.run();
        let late = pair.open(Client, &open("late"));
        pair.end_mut(Client).link.go_away();
        for id in [id, late] {
            end_both_ways(&mut pair, id);
        }
        for _ in 0..after {
            pair.step();
        }
        pair.kill();
        pair.reconnect();
        pair.run();
        for id in [id, late] {
            assert_eq!(pair.end(Client).streams[&id.raw()].reset, None, "after {after} steps");
        }
        pair.finish(Server, late);
        pair.run();
        assert!(sent(&pair, GoAwayReason::Done) >= 1, "after {after} steps");
    }
}

#[test]
fn ids_that_are_used_up_ask_for_another_link() {
    let config = LinkConfig { last_id: StreamId::new(8), ..LinkConfig::default() };
    for side in [Client, Server] {
        let mut pair = Pair::over(Conditions::default(), config, 1);
        let ids: Vec<_> = (0..4).map(|_| pair.open(side, &open("x"))).collect();
        assert!(pair.try_open(side, &open("x")).is_none());
        pair.run();
        assert_eq!(sent(&pair, GoAwayReason::Retire), 1, "{side:?}");
        // The other end still has ids, and uses them until the client has another link.
        let other = pair.open(side.peer(), &open("x"));
        pair.run();
        assert_eq!(pair.seen(side, other).reset, None);
        assert!(ids.iter().all(|id| pair.seen(side.peer(), *id).reset.is_none()));
        pair.end_mut(Client).link.go_away();
        pair.run();
        assert!(pair.try_open(side.peer(), &open("x")).is_none());
        for id in ids.into_iter().chain([other]) {
            pair.reset(Client, id, ResetCode::Aborted);
            pair.stop(Client, id, ResetCode::Aborted);
            pair.reset(Server, id, ResetCode::Aborted);
        }
        pair.run();
        assert_eq!(sent(&pair, GoAwayReason::Done), 1, "{side:?}");
    }
}

#[test]
fn nothing_follows_the_goodbye() {
    let mut pair = Pair::connected(1);
    let id = pair.open(Client, &open("x"));
    pair.run();
    pair.end_mut(Client).link.go_away();
    pair.run();
    pair.end_mut(Server).link.close();
    end_both_ways(&mut pair, id);
    pair.run();
    assert_eq!((sent(&pair, GoAwayReason::Closed), sent(&pair, GoAwayReason::Done)), (1, 0));
}
