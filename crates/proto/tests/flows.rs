//! Flows: datagrams arrive whole or not at all, however carriers are lost and replaced.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;
use proto::Side::{Client, Server};
use proto::{
    CarrierNumber, DATAGRAM_MAX, Event, FlowId, GoAwayReason, Head, Kind, LinkConfig, Priority,
    ResetCode, Side, StreamId, ViolationCode,
};
use testkit::netem::Conditions;
use testkit::pair::{Pair, open, open_as};

const SIDES: [Side; 2] = [Client, Server];

fn slow() -> Conditions {
    Conditions { delay: Duration::from_millis(20), ..Conditions::default() }
}

/// Pairs over frames and over a carrier with native datagrams.
fn pairs() -> [Pair; 2] {
    [false, true].map(|laned| Pair::over_lanes(laned, slow(), LinkConfig::default(), 1))
}

fn numbered(n: u32) -> Vec<u8> {
    n.to_be_bytes().repeat(295)
}

/// The numbers of the datagrams that arrived, each of which must be whole.
fn numbers(pair: &Pair, side: Side, id: FlowId) -> Vec<u32> {
    let got = &pair.conversation(side, id).got;
    let number = |bytes: &bytes::Bytes| {
        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        assert_eq!(*bytes, numbered(number), "cut or mixed");
        number
    };
    got.iter().map(number).collect()
}

#[test]
fn datagrams_of_every_size_arrive_whole_in_both_directions() {
    for mut pair in pairs() {
        for side in SIDES {
            let id = pair.open_flow(side, &open("dns"));
            let sizes = [0, 1, 511, 512, 1_188, 1_189, 1_196, 1_197, 9_000, 65_506, DATAGRAM_MAX];
            for size in sizes {
                let payload: Vec<u8> = (0..size).map(|n| n as u8).collect();
                assert_eq!(pair.send_datagram(side, id, &payload), 0);
                pair.run();
                assert_eq!(pair.send_datagram(side.peer(), id, &payload), 0);
                pair.run();
                for at in SIDES {
                    let got = &pair.conversation(at, id).got;
                    assert_eq!(got.last().map(|bytes| &bytes[..]), Some(&payload[..]), "{size}");
                }
            }
            assert_eq!(pair.conversation(side.peer(), id).open, Some(open("dns")));
            assert_eq!(pair.send_datagram(side, id, &vec![0; DATAGRAM_MAX + 1]), 1);
        }
    }
}

#[test]
fn a_burst_that_begins_a_flow_arrives_whole() {
    for mut pair in pairs() {
        let id = pair.open_flow(Client, &open("dns"));
        for n in 0..100 {
            assert_eq!(pair.send_datagram(Client, id, &numbered(n)), 0);
        }
        pair.run();
        let mut got = numbers(&pair, Server, id);
        got.sort_unstable();
        assert_eq!(got, (0..100).collect::<Vec<_>>());
        assert_eq!(pair.end(Server).link.flow_drops(), proto::FlowDrops::default());
    }
}

#[test]
fn a_burst_that_is_too_large_loses_its_end_and_nothing_of_another_flow() {
    for mut pair in pairs() {
        let [busy, quiet] = [0, 1].map(|_| pair.open_flow(Client, &open("x")));
        assert_eq!(pair.send_datagram(Client, quiet, &numbered(7)), 0);
        let mut send = |n| pair.send_datagram(Client, busy, &numbered(n));
        assert_eq!((0..3_000).map(&mut send).sum::<usize>(), 0);
        let dropped: usize = (3_000..6_000).map(&mut send).sum();
        assert!((2_500..3_000).contains(&dropped), "{dropped}");
        pair.run();
        let kept = 6_000 - u32::try_from(dropped).unwrap();
        let mut got = numbers(&pair, Server, busy);
        got.sort_unstable();
        assert_eq!(got, (0..kept).collect::<Vec<_>>());
        assert_eq!(numbers(&pair, Server, quiet), [7]);
    }
}

#[test]
fn old_datagrams_make_way_for_new_ones() {
    for mut pair in pairs() {
        let [busy, quiet] = [0, 1].map(|_| pair.open_flow(Client, &open("x")));
        assert_eq!(pair.send_datagram(Client, quiet, &numbered(7)), 0);
        assert_eq!(
            (0..800).map(|n| pair.send_datagram(Client, busy, &numbered(n))).sum::<usize>(),
            0
        );
        // The carrier takes nothing meanwhile.
        pair.now += Duration::from_millis(25);
        let dropped: usize =
            (800..802).map(|n| pair.send_datagram(Client, busy, &numbered(n))).sum();
        assert!((590..600).contains(&dropped), "{dropped}");
        pair.run();
        let first = u32::try_from(dropped).unwrap();
        let mut got = numbers(&pair, Server, busy);
        got.sort_unstable();
        assert_eq!(got, (first..802).collect::<Vec<_>>());
        assert_eq!(numbers(&pair, Server, quiet), [7]);
    }
}

#[test]
fn few_datagrams_wait_for_the_next_carrier() {
    for mut pair in pairs() {
        let id = pair.open_flow(Client, &open("game"));
        pair.run();
        pair.kill();
        let dropped: usize = (0..100).map(|n| pair.send_datagram(Client, id, &numbered(n))).sum();
        assert_eq!(dropped, 92);
        pair.reconnect();
        pair.run();
        let mut got = numbers(&pair, Server, id);
        got.sort_unstable();
        assert_eq!(got, (92..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_flow_survives_the_death_of_its_carrier_at_every_step() {
    for laned in [false, true] {
        for killed in 0..60 {
            let mut pair = Pair::over_lanes(laned, slow(), LinkConfig::default(), killed);
            let ids = [
                (Client, pair.open_flow(Client, &open("a"))),
                (Server, pair.open_flow(Server, &open("b"))),
            ];
            let mut sent = 0;
            for step in 0..40 {
                for (side, id) in ids {
                    let _ = pair.send_datagram(side, id, &numbered(sent));
                    let known = pair.end(side.peer()).flows.contains_key(&id.raw());
                    if known {
                        let _ = pair.send_datagram(side.peer(), id, &numbered(sent));
                    }
                }
                sent += 1;
                if step == killed {
                    pair.kill();
                    pair.reconnect();
                }
                pair.step();
            }
            pair.run();
            for (opener, id) in ids {
                for side in SIDES {
                    let of = pair.conversation(side, id);
                    assert_eq!(of.closed, None, "the flow goes on");
                    let got = numbers(&pair, side, id);
                    let distinct: BTreeSet<_> = got.iter().collect();
                    assert_eq!(distinct.len(), got.len(), "nothing is doubled");
                    assert!(side == opener || got.len() >= 8, "{got:?}");
                }
                let last = numbered(sent);
                assert_eq!(pair.send_datagram(opener, id, &last), 0);
                pair.run();
                assert_eq!(pair.conversation(opener.peer(), id).got.last().unwrap()[..], last);
            }
            for side in SIDES {
                assert_eq!(pair.end(side).violation, None);
            }
        }
    }
}

#[test]
fn either_end_closes_a_flow_and_both_may_at_once() {
    for mut pair in pairs() {
        let all = [0, 1, 2].map(|_| pair.open_flow(Client, &open("x")));
        pair.run();
        let close = |pair: &mut Pair, side: Side, id: FlowId| {
            let key = pair.conversation(side, id).key;
            pair.end_mut(side).link.close_flow(key, ResetCode::Timeout);
        };
        close(&mut pair, Client, all[0]);
        close(&mut pair, Server, all[1]);
        close(&mut pair, Client, all[2]);
        close(&mut pair, Server, all[2]);
        pair.run();
        let closed = |side: Side, id: FlowId| pair.conversation(side, id).closed;
        let (own, others) = (Some((ResetCode::Timeout, false)), Some((ResetCode::Timeout, true)));
        assert_eq!([closed(Client, all[0]), closed(Server, all[0])], [own, others]);
        assert_eq!([closed(Client, all[1]), closed(Server, all[1])], [others, own]);
        assert_eq!([closed(Client, all[2]), closed(Server, all[2])], [own, own]);
        assert_eq!(SIDES.map(|side| pair.end(side).link.flow_count()), [0, 0]);
    }
}

#[test]
fn datagrams_of_a_closed_flow_are_counted_and_no_violation() {
    for mut pair in pairs() {
        let id = pair.open_flow(Client, &open("x"));
        let _ = pair.send_datagram(Client, id, b"first");
        pair.run();
        for n in 0..5 {
            let _ = pair.send_datagram(Client, id, &numbered(n));
        }
        pair.pump();
        let key = pair.conversation(Server, id).key;
        pair.end_mut(Server).link.close_flow(key, ResetCode::Limit);
        pair.run();
        assert_eq!(pair.end(Server).link.flow_drops().late, 5);
        assert_eq!(pair.end(Server).violation, None);
        assert_eq!(pair.conversation(Client, id).closed, Some((ResetCode::Limit, true)));
    }
}

#[test]
fn a_flow_beyond_the_limit_is_refused_with_its_reason() {
    let config = LinkConfig { flows_max: 2, ..LinkConfig::default() };
    let mut pair = Pair::over(slow(), config, 1);
    let mine = [0, 1].map(|_| pair.open_flow(Client, &open("x")));
    assert_eq!(pair.end_mut(Client).link.open_flow(&open("x")), None);
    // Both ends count the flows of both ends: these cross.
    let theirs = pair.open_flow(Server, &open("y"));
    pair.run();
    let refused = Some((ResetCode::Limit, true));
    let outcomes = [mine[0], mine[1]].map(|id| pair.conversation(Client, id).closed);
    assert_eq!(outcomes, [None, refused]);
    assert_eq!(pair.conversation(Server, theirs).closed, refused);
}

#[test]
fn a_peer_without_flows_gets_none_and_may_send_none() {
    let config = LinkConfig { flows_max: 0, ..LinkConfig::default() };
    let mut pair = Pair::over(slow(), config, 1);
    assert_eq!(pair.end_mut(Client).link.open_flow(&open("x")), None);
    let now = pair.now;
    let link = &mut pair.end_mut(Server).link;
    let head = Head::new(Kind::Datagram, 0, 0, StreamId::new(1)).encode();
    let refused = link.handle_input(now, CarrierNumber(1), &mut BytesMut::from(&head[..]));
    assert_eq!(refused.unwrap_err().code, ViolationCode::UnknownKind);
}

#[test]
fn a_datagram_of_an_impossible_flow_ends_the_link() {
    // Id 0, an id that only this end could have opened but did not, and ids beyond the last.
    for id in [0, 2, (1 << 30) + 1, u32::MAX] {
        let mut pair = Pair::connected(1);
        let now = pair.now;
        let link = &mut pair.end_mut(Server).link;
        let head = Head::new(Kind::Datagram, 0, 0, StreamId::new(id)).encode();
        let refused = link.handle_input(now, CarrierNumber(1), &mut BytesMut::from(&head[..]));
        assert_eq!(refused.unwrap_err().code, ViolationCode::BadStream, "{id}");
    }
}

#[test]
fn a_link_that_retires_keeps_its_flows_until_they_are_closed() {
    let mut pair = Pair::over(slow(), LinkConfig::default(), 1);
    let id = pair.open_flow(Client, &open("x"));
    pair.run();
    pair.end_mut(Server).link.go_away();
    pair.run();
    pair.end_mut(Client).link.go_away();
    pair.run();
    let done = |pair: &Pair| {
        pair.end(Client).times(|event| *event == Event::GoingAway(GoAwayReason::Done))
    };
    assert_eq!(pair.end_mut(Client).link.open_flow(&open("x")), None);
    assert_eq!(pair.send_datagram(Client, id, &numbered(1)), 0);
    pair.run();
    assert_eq!((numbers(&pair, Server, id), done(&pair)), (vec![1], 0));
    let key = pair.conversation(Client, id).key;
    pair.end_mut(Client).link.close_flow(key, ResetCode::Timeout);
    pair.run();
    assert_eq!(done(&pair), 1);
}

#[test]
fn datagrams_and_streams_take_turns_and_a_higher_class_goes_first() {
    let conditions = Conditions { rate: Some(1_000_000), queue: 64 << 10, ..slow() };
    let mut pair = Pair::over(conditions, LinkConfig::default(), 1);
    let stream = pair.open(Client, &open("bulk"));
    let classes = [Priority::Bulk, Priority::Interactive];
    let flows = classes.map(|class| pair.open_flow(Client, &open_as("x", class)));
    pair.feed(Client, stream, 100 << 20);
    pair.run_for(Duration::from_secs(2));
    let before = pair.seen(Server, stream).count;
    for sent in 0..2_000 {
        for flow in flows {
            let _ = pair.send_datagram(Client, flow, &numbered(sent));
        }
        pair.run_for(Duration::from_millis(1));
    }
    let streamed = pair.seen(Server, stream).count - before;
    let [low, high] = flows.map(|flow| numbers(&pair, Server, flow).len() * 1_188);
    // 2 MB in 2 s: a half for the stream, the other for the flow of the higher class.
    assert!((800_000..1_300_000).contains(&streamed), "{streamed}");
    assert!((700_000..1_200_000).contains(&high), "{high}");
    assert!(low < 200_000, "{low}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// An oracle that knows only what was sent: whatever arrives was sent on that flow, once, and
    /// in the end both sides have the same flows.
    #[test]
    fn nothing_is_doubled_or_misdelivered_under_random_deaths(
        laned: bool, ops in proptest::collection::vec((0_u8..12, any::<u16>()), 1..150),
    ) {
        let mut pair = Pair::over_lanes(laned, slow(), LinkConfig::default(), 3);
        let mut flows: Vec<(Side, FlowId)> = Vec::new();
        let mut sent = 0_u32;
        for (op, n) in ops {
            let side = SIDES[usize::from(n) % 2];
            let flow = flows.get(usize::from(n) % flows.len().max(1)).copied();
            match (op, flow) {
                (0 | 1, _) => flows.push((side, pair.open_flow(side, &open("x")))),
                (2, Some((_, id))) => {
                    if let Some(of) = pair.end(side).flows.get(&id.raw()) {
                        let key = of.key;
                        pair.end_mut(side).link.close_flow(key, ResetCode::Timeout);
                        let now = pair.now;
                        pair.run_for(Duration::from_millis(1));
                        prop_assert!(pair.now >= now);
                    }
                }
                (3, _) => {
                    pair.kill();
                    pair.reconnect();
                }
                (4, _) => pair.run_for(Duration::from_millis(u64::from(n) % 60)),
                (_, Some((_, id))) => {
                    if pair.end(side).flows.get(&id.raw()).is_some_and(|of| of.closed.is_none()) {
                        // The payload contains its flow and direction; some datagrams are
                        // fragmented.
                        let tag = [id.raw(), u32::from(side == Client), sent];
                        let head: Vec<u8> = tag.iter().flat_map(|n| n.to_be_bytes()).collect();
                        let size = 12 + usize::from(n) % 4_000;
                        let payload: Vec<u8> = head.iter().copied().cycle().take(size).collect();
                        let _ = pair.send_datagram(side, id, &payload);
                        sent += 1;
                    }
                }
                (_, None) => {}
            }
            pair.step();
        }
        pair.run();
        for side in SIDES {
            prop_assert_eq!(pair.end(side).violation, None);
            let mut seen = BTreeSet::new();
            for (id, of) in &pair.end(side).flows {
                for bytes in &of.got {
                    prop_assert_eq!(&bytes[..4], &id.to_be_bytes()[..], "another flow's");
                    prop_assert_eq!(bytes[7] == 1, side == Server, "this side's own");
                    prop_assert!(seen.insert(bytes[8..12].to_vec()), "doubled");
                    let whole = bytes.iter().enumerate().all(|(at, byte)| *byte == bytes[at % 12]);
                    prop_assert!(whole, "mixed");
                }
            }
        }
        let open_at = |side: Side| -> BTreeSet<u32> {
            let flows = pair.end(side).flows.iter();
            flows.filter(|(_, of)| of.closed.is_none()).map(|(id, _)| *id).collect()
        };
        prop_assert_eq!(open_at(Client), open_at(Server));
    }
}
