//! Machines with more addresses than are announced.

use super::*;
use crate::testing::epoch;

/// An address in a network of 24 bits.
fn host(ip: &str) -> OwnAddress {
    let address = SocketAddr::new(ip.parse().unwrap(), 5_000);
    OwnAddress { address, network: address.ip(), prefix: 24 }
}

fn bridges(count: u8) -> impl Iterator<Item = OwnAddress> {
    (0..count).map(|n| host(&format!("172.{}.0.1", 17 + n)))
}

/// Two ends in one network, each with an address in another network and bridges that are listed
/// before the common network.
fn neighbours(bridges_of: [u8; 2]) -> World {
    let mut world = World::new();
    let lan = world.behind(0, Way::Blocked, "203.0.113.1");
    world.end(lan, "192.168.7.1:5000", Settings::default());
    world.end(lan, "192.168.7.2:6000", Settings::default());
    for (n, end) in world.ends.iter_mut().enumerate() {
        end.further.push(host(&format!("10.8{n}.0.1")));
        end.further.extend(bridges(bridges_of[n]));
    }
    world
}

#[test]
fn bridges_that_both_machines_have_do_not_hide_a_common_network() {
    for bridges_of in [[10, 10], [10, 0], [0, 10], [14, 14]] {
        let mut world = neighbours(bridges_of);
        world.run(Duration::from_secs(12));
        let (at, pair) = found(&world).unwrap_or_else(|| panic!("{bridges_of:?}"));
        assert!(at < Duration::from_secs(2), "{bridges_of:?}: {at:?}");
        assert_eq!(pair.remote.1, "192.168.7.2:6000".parse().unwrap());
        for end in &world.ends {
            let of_both = |to: &SocketAddr| to.ip().to_string().starts_with("172.");
            let count = end.sent.iter().filter(|(_, to, _)| of_both(to)).count();
            assert!(bridges_of[0] != bridges_of[1] || count == 0, "{bridges_of:?}: {count}");
        }
    }
}

#[test]
fn ends_on_one_machine_meet_at_the_addresses_that_both_have() {
    let mut world = World::new();
    let lan = world.behind(0, Way::Blocked, "203.0.113.1");
    for port in [5_000, 6_000] {
        world.end(lan, &format!("192.168.7.1:{port}"), Settings::default());
        world.ends.last_mut().unwrap().further.extend(bridges(5));
    }
    world.run(Duration::from_secs(12));
    assert_eq!(found(&world).unwrap().1.remote.1, "192.168.7.1:6000".parse().unwrap());
}

#[test]
fn addresses_of_interfaces_and_of_servers_leave_a_place_for_a_port_of_the_router() {
    let now = epoch();
    let hosts: Vec<_> = (1..60).map(|n| host(&format!("10.1.{n}.1"))).collect();
    let servers: Vec<SocketAddr> =
        (1..=8).map(|n| SocketAddr::from(([198, 51, 100, n], 9))).collect();
    let addresses = (&hosts[..], &servers[..], true);
    let mut attempt =
        Attempt::new(now, (Role::Visitor, 1), Settings::default(), addresses, &mut |bytes| {
            bytes.fill(7)
        });
    let mut at = now;
    let mut port = 40_000;
    while port < 40_008 {
        while let Some(question) = attempt.poll_datagram() {
            port += 1;
            let seen = SocketAddr::from(([203, 0, 113, 1], port));
            let answer = stun::answer(&question.bytes, seen).unwrap();
            attempt.handle_datagram(at, (question.to, None), answer.bytes());
        }
        at = attempt.poll_timeout().unwrap();
        attempt.handle_timeout(at);
    }
    attempt.mapped(at, Some("203.0.113.1:50000".parse().unwrap()));
    let count = |attempt: &Attempt, kind| {
        attempt.candidates().iter().filter(|one| one.kind == kind).count()
    };
    assert_eq!(count(&attempt, Kind::Host), HOSTS);
    assert_eq!(count(&attempt, Kind::Reflexive), REFLEXIVE);
    assert_eq!(count(&attempt, Kind::Mapped), 1);
    const { assert!(HOSTS + NEAR + 2 * REFLEXIVE < CANDIDATES) };
    // A later address in the network of the peer is announced as well.
    let neighbour = [Candidate::new(Kind::Host, "10.1.50.9:9".parse().unwrap(), 0)];
    attempt.handle_signal(at, &hostile::offer_of(neighbour.to_vec())).unwrap();
    let near = attempt.candidates().iter().find(|one| one.address.ip().to_string() == "10.1.50.1");
    let best = attempt.candidates().iter().map(|one| one.priority).max();
    assert_eq!(near.map(|one| one.priority), best);
}

#[test]
fn a_neighbour_is_checked_first_whatever_its_peer_says_of_it() {
    let now = epoch();
    let hosts = [host("10.1.1.1"), host("192.168.7.1")];
    let addresses: (&[OwnAddress], &[SocketAddr], bool) = (&hosts, &[], false);
    let mut attempt =
        Attempt::new(now, (Role::Visitor, 1), Settings::default(), addresses, &mut |bytes| {
            bytes.fill(7)
        });
    let useless = (0..15).map(|n| SocketAddr::from(([10, 9, n, 1], 9)));
    let neighbour: SocketAddr = "192.168.7.2:9".parse().unwrap();
    let all = useless.chain([neighbour]).enumerate();
    let all = all.map(|(n, at)| Candidate::new(Kind::Host, at, n)).collect();
    attempt.handle_signal(now, &hostile::offer_of(all)).unwrap();
    assert_eq!(hostile::sent_first(&mut attempt, now).1.to, neighbour);
}
