//! Two ends behind emulated NATs, and an end with a peer that violates the rules.

mod hostile;
mod many;
mod world;

use super::*;
use crate::{Decline, Kinds};
use world::{SERVER, Way, World};

/// Both ends behind a NAT each.
fn behind(visitor: Way, publisher: Way) -> World {
    let mut world = World::new();
    let (left, right) =
        (world.behind(0, visitor, "203.0.113.1"), world.behind(0, publisher, "203.0.113.2"));
    world.end(left, "10.0.0.2:5000", Settings::default());
    world.end(right, "10.0.1.2:6000", Settings::default());
    world
}

fn found(world: &World) -> Option<(Duration, Pair)> {
    world.ends[0].events.iter().find_map(|(at, event)| match event {
        Event::Found(pair) => Some((*at, *pair)),
        Event::Failed(_) | Event::Lost => None,
    })
}

fn failed(world: &World, index: usize) -> Option<(Duration, Why)> {
    world.ends[index].events.iter().find_map(|(at, event)| match event {
        Event::Failed(why) => Some((*at, *why)),
        Event::Found(_) | Event::Lost => None,
    })
}

#[test]
fn pairs_of_nats_that_can_meet_meet_within_two_seconds_and_others_say_why() {
    use Way::{Blocked, Cone, Moving, Plain};
    for (visitor, publisher, why) in [
        (Plain, Plain, None),
        (Plain, Cone, None),
        (Cone, Plain, None),
        (Cone, Cone, None),
        (Cone, Moving, None),
        (Moving, Cone, None),
        (Plain, Moving, Some((Why::MovesThere, Why::Moves))),
        (Moving, Plain, Some((Why::Moves, Why::MovesThere))),
        (Moving, Moving, Some((Why::BothMove, Why::BothMove))),
        (Blocked, Plain, Some((Why::Blocked, Why::BlockedThere))),
        (Plain, Blocked, Some((Why::BlockedThere, Why::Blocked))),
    ] {
        let mut world = behind(visitor, publisher);
        world.run(Duration::from_secs(20));
        let case = format!("{visitor:?} and {publisher:?}: {:?}", world.ends[0].events);
        match why {
            None => {
                let (at, _) = found(&world).expect(&case);
                assert!(at < Duration::from_secs(2), "{case}");
                assert!(world.attempt(1).pair().is_some(), "{case}");
                assert!(failed(&world, 1).is_none(), "{case}");
            }
            Some((ours, theirs)) => {
                assert_eq!(failed(&world, 0).map(|(_, why)| why), Some(ours), "{case}");
                assert_eq!(failed(&world, 1).map(|(_, why)| why), Some(theirs), "{case}");
                let (at, _) = failed(&world, 0).unwrap();
                assert_eq!(at, LIMIT, "{case}");
            }
        }
    }
}

#[test]
fn nats_that_take_what_arrives_unasked_meet_as_well() {
    use Way::{Cone, Deaf, Plain};
    let late = |visitor, publisher| [visitor, publisher].map(Duration::from_millis);
    for (visitor, publisher) in [(Deaf, Deaf), (Deaf, Plain), (Plain, Deaf), (Deaf, Cone)] {
        for routers in [1, 2, 3, 8] {
            for late in [late(0, 0), late(700, 0), late(0, 700), late(300, 1_000)] {
                let mut world = behind(visitor, publisher);
                (world.routers, world.late) = (routers, late);
                world.run(Duration::from_secs(12));
                let case = format!("{visitor:?} {publisher:?}, {routers} routers, {late:?}");
                let (at, pair) = found(&world).expect(&case);
                assert!(at < Duration::from_secs(3), "{case}: {at:?}");
                assert_eq!(pair.remote.0, Kind::Reflexive, "{case}");
            }
        }
    }
}

#[test]
fn behind_two_such_nats_in_a_row_ends_meet() {
    for (visitor, publisher) in [(2, 2), (1, 2), (2, 1), (3, 3)] {
        let mut world = World::new();
        world.routers = 3;
        for (end, depth) in [visitor, publisher].into_iter().enumerate() {
            let mut network = 0;
            for nat in 0..depth {
                let outer = if nat == 0 {
                    format!("203.0.113.{}", end + 1)
                } else {
                    format!("100.64.{nat}.{}", end + 2)
                };
                network = world.behind(network, Way::Deaf, &outer);
            }
            world.end(network, &format!("192.168.{end}.2:5000"), Settings::default());
        }
        world.run(Duration::from_secs(12));
        let (at, _) = found(&world).unwrap_or_else(|| panic!("{visitor} and {publisher}"));
        assert!(at < Duration::from_secs(3), "{visitor} and {publisher}: {at:?}");
    }
}

#[test]
fn checks_at_a_common_network_and_at_a_public_address_live_as_long_as_usual() {
    let visitor = "10.0.0.2:5000".parse().unwrap();
    for publisher in ["10.0.0.3:6000", "192.0.2.9:6000"] {
        let mut world = World::new();
        let inner = world.behind(0, Way::Deaf, "203.0.113.1");
        world.end(inner, "10.0.0.2:5000", Settings::default());
        let network = if publisher.starts_with("10.") { inner } else { 0 };
        world.end(network, publisher, Settings::default());
        world.run(Duration::from_secs(12));
        assert!(found(&world).unwrap().0 < Duration::from_millis(500), "{publisher}");
        let publisher = publisher.parse().unwrap();
        for end in &world.ends {
            let short = end.sent.iter().zip(&end.hops).filter(|(_, hops)| hops.is_some());
            let short: Vec<_> = short.map(|((at, to, _), _)| (*at, *to)).collect();
            assert!(short.iter().all(|(_, to)| ![visitor, publisher].contains(to)), "{short:?}");
            // An end detects its own NAT from the response of a STUN server.
            assert!(short.iter().all(|(at, _)| *at < Duration::from_millis(150)), "{short:?}");
        }
    }
}

#[test]
fn a_port_that_one_router_opens_suffices_for_a_direct_path() {
    use Way::{Moving, Plain};
    for (visitor, publisher) in [(Moving, Moving), (Plain, Moving), (Moving, Plain)] {
        for index in [0, 1] {
            let case = format!("{visitor:?} and {publisher:?}, {index} has a port");
            let mut world = behind(visitor, publisher);
            world.run(Duration::from_millis(500));
            assert!(found(&world).is_none(), "{case}");
            let outer = world.map(index);
            world.run(Duration::from_secs(20));
            let (at, pair) = found(&world).expect(&case);
            assert!(at < Duration::from_secs(2), "{case}: {at:?}");
            let [ours, theirs] = [pair.local.unwrap(), pair.remote];
            let mapped = [ours, theirs][index];
            assert_eq!(mapped, (Kind::Mapped, outer), "{case}");
            assert!(world.attempt(1).pair().is_some(), "{case}");
        }
    }
}

#[test]
fn a_router_with_a_port_is_not_blamed_for_what_fails() {
    let mut world = behind(Way::Moving, Way::Moving);
    world.run(Duration::from_millis(500));
    world.is_cut = true;
    world.map(0);
    world.run(Duration::from_secs(20));
    assert_eq!(failed(&world, 0).map(|(_, why)| why), Some(Why::Nothing));
    assert_eq!(failed(&world, 1).map(|(_, why)| why), Some(Why::Nothing));
}

#[test]
fn a_port_that_servers_saw_already_counts_as_mapped() {
    let mut world = behind(Way::Plain, Way::Plain);
    world.run(Duration::from_millis(60));
    let seen = world.candidates(0).iter().find(|one| one.kind == Kind::Reflexive).unwrap().address;
    let now = world.now;
    world.attempt(0).mapped(now, Some(seen));
    let of_seen: Vec<_> =
        world.candidates(0).into_iter().filter(|one| one.address == seen).collect();
    assert_eq!(of_seen.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::Mapped]);
}

#[test]
fn an_end_without_nat_is_reached_from_behind_any_nat() {
    for way in [Way::Plain, Way::Cone, Way::Moving] {
        for is_visitor in [true, false] {
            let mut world = World::new();
            let left = world.behind(0, way, "203.0.113.1");
            let ends = [(left, "10.0.0.2:5000"), (0, "192.0.2.9:6000")];
            let order = if is_visitor { [0, 1] } else { [1, 0] };
            for (network, address) in order.map(|index| ends[index]) {
                world.end(network, address, Settings::default());
            }
            world.run(Duration::from_secs(12));
            let (at, pair) = found(&world).unwrap_or_else(|| panic!("{way:?} {is_visitor}"));
            assert!(at < Duration::from_secs(2), "{way:?}: {at:?}");
            if is_visitor {
                assert_eq!(pair.remote, (Kind::Host, "192.0.2.9:6000".parse().unwrap()));
            }
        }
    }
}

#[test]
fn ends_without_a_common_family_say_so() {
    let mut world = World::new();
    let kinds = Kinds { reflexive: false, ..Kinds::default() };
    let settings = Settings { kinds, ..Settings::default() };
    world.end(0, "192.0.2.9:6000", settings);
    world.end(0, "[2001:db8::9]:6000", settings);
    world.run(Duration::from_secs(12));
    assert_eq!(failed(&world, 0), Some((LIMIT, Why::Families)));
}

#[test]
fn behind_two_nats_each_ends_meet() {
    let mut world = World::new();
    let outer = world.behind(0, Way::Plain, "203.0.113.1");
    let inner = world.behind(outer, Way::Plain, "100.64.0.2");
    let other = world.behind(0, Way::Plain, "203.0.113.2");
    world.end(inner, "192.168.1.2:5000", Settings::default());
    world.end(other, "192.168.1.3:6000", Settings::default());
    world.run(Duration::from_secs(12));
    let (at, pair) = found(&world).unwrap();
    assert!(at < Duration::from_secs(2));
    assert_eq!(pair.remote.0, Kind::Reflexive);
    assert_eq!(pair.local.unwrap().1.ip().to_string(), "203.0.113.1");
}

#[test]
fn behind_one_nat_the_inner_network_is_the_path_and_needs_no_permission() {
    for kinds in [Kinds::default(), Kinds { host: true, mapped: false, reflexive: false }] {
        let mut world = World::new();
        let inner = world.behind(0, Way::Plain, "203.0.113.1");
        world.end(inner, "10.0.0.2:5000", Settings { kinds, ..Settings::default() });
        world.end(inner, "10.0.0.3:6000", Settings::default());
        world.run(Duration::from_secs(12));
        let (_, pair) = found(&world).unwrap();
        assert_eq!(pair.remote, (Kind::Host, "10.0.0.3:6000".parse().unwrap()));
    }
    // The visitor announces no internal addresses and is behind the address of the publisher.
    let mut world = World::new();
    let inner = world.behind(0, Way::Plain, "203.0.113.1");
    let kinds = Kinds { host: false, ..Kinds::default() };
    world.end(inner, "10.0.0.2:5000", Settings { kinds, ..Settings::default() });
    world.end(inner, "10.0.0.3:6000", Settings::default());
    world.run(Duration::from_secs(12));
    assert_eq!(found(&world).unwrap().1.remote.0, Kind::Host);
    assert!(world.candidates(0).iter().all(|one| one.kind != Kind::Host), "a switch");
}

#[test]
fn private_addresses_of_a_stranger_elsewhere_are_not_tried_where_the_switch_is_off() {
    let mut world = behind(Way::Plain, Way::Plain);
    let kinds = Kinds { host: false, ..Kinds::default() };
    world.ends.clear();
    world.end(1, "10.0.0.2:5000", Settings { kinds, ..Settings::default() });
    world.end(2, "10.0.1.2:6000", Settings::default());
    world.run(Duration::from_secs(12));
    assert!(found(&world).is_some());
    assert!(world.ends[0].sent.iter().all(|(_, to, _)| !is_private(to.ip())));
    assert!(world.ends[1].sent.iter().all(|(_, to, _)| to.ip().to_string() != "10.0.0.2"));
}

#[test]
fn checks_are_paced_and_end_with_the_attempt() {
    let mut world = behind(Way::Moving, Way::Moving);
    world.run(Duration::from_secs(60));
    for end in &world.ends {
        let checks: Vec<_> =
            end.sent.iter().filter(|(_, to, _)| to.ip().to_string() != SERVER).collect();
        assert!(!checks.is_empty());
        assert!(checks.iter().all(|(at, ..)| *at <= LIMIT + Duration::from_millis(100)));
        assert!(checks.windows(2).all(|two| two[1].0 - two[0].0 >= PACE), "{checks:?}");
        assert!(end.sent.iter().all(|(_, _, bytes)| stun::is_stun(bytes)));
    }
    assert_eq!(world.attempt(0).poll_timeout(), None);
}

#[test]
fn a_path_that_does_not_answer_any_more_is_lost_after_thirty_seconds_and_nothing_is_sent() {
    let mut world = behind(Way::Plain, Way::Plain);
    world.run(Duration::from_secs(100));
    let (at, _) = found(&world).unwrap();
    assert_eq!(world.ends[0].events.len(), 1, "the path lives as long as it answers");
    let checks =
        |end: &world::End, after: Duration| end.sent.iter().filter(|(at, ..)| *at > after).count();
    // One check of consent in 5 s, and an answer to that of the peer; the time of the attempt has
    // some more.
    let kept = checks(&world.ends[0], at + LIMIT);
    assert!((30..60).contains(&kept), "{kept}");

    world.is_cut = true;
    world.run(Duration::from_secs(200));
    for end in &world.ends {
        let (lost, event) = end.events.last().unwrap();
        assert_eq!(*event, Event::Lost);
        let silence = *lost - Duration::from_secs(100);
        assert!(silence <= CONSENT && silence >= CONSENT - 2 * CONSENT_CHECK, "{silence:?}");
        assert_eq!(checks(end, *lost), 0);
    }
}

#[test]
fn a_peer_that_moves_is_found_again_by_its_checks() {
    let mut world = behind(Way::Plain, Way::Cone);
    world.run(Duration::from_secs(20));
    let before = world.attempt(1).pair().unwrap();
    world.forget_ports(0);
    world.run(Duration::from_secs(30));
    let moved = world.seen(0, before.local.unwrap().1).unwrap();
    assert_ne!(moved, before.remote.1);
    assert!(world.attempt(1).is_proven(moved), "the check came with the right password");
    let now = world.now;
    world.attempt(1).adopt(now, moved);
    world.run(Duration::from_secs(120));
    assert!(world.ends[1].events.is_empty(), "{:?}", world.ends[1].events);
}

#[test]
fn a_peer_that_declines_or_is_silent_ends_the_attempt() {
    let mut world = behind(Way::Plain, Way::Plain);
    world.run(Duration::from_millis(10));
    let now = world.now;
    let body = Body::Decline(Decline::Relay);
    let older = Signal { round: 0, body: body.clone() }.encode();
    world.attempt(0).handle_signal(now, &older).unwrap();
    assert_eq!(world.attempt(0).poll_event(), None, "of another attempt");
    world.attempt(0).handle_signal(now, &Signal { round: 1, body }.encode()).unwrap();
    let event = world.attempt(0).poll_event();
    assert_eq!(event, Some(Event::Failed(Why::Declined(Decline::Relay))));

    let mut alone = World::new();
    alone.end(0, "192.0.2.9:6000", Settings::default());
    alone.end(0, "192.0.2.10:6000", Settings::default());
    alone.lose_signals = true;
    alone.run(Duration::from_secs(20));
    assert_eq!(failed(&alone, 0), Some((LIMIT, Why::Silent)));
}
