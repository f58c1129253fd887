//! Sockets of a port of carriers that several generations of a daemon read: each datagram reaches
//! the generation and the worker that its id names. The state of generations belongs to a process,
//! so this test has a program of its own and plays all generations.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;

use net::handover;
use net::inherited::Inherited;
use net::udp::{CarrierGroup, Form, carrier_group, former_ended, inherit, layout};

/// Clients whose addresses a hash would spread.
const CLIENTS: u8 = 16;

/// A packet of a connection that has an id of a server.
fn known(form: Form, id: u8) -> Vec<Vec<u8>> {
    let short = |first: u8| [&[first, id][..], &[0xAA; 30]].concat();
    match form {
        // Also the first byte that a Hello of `kcp://` has, and the Handshake packet.
        Form::Quic => {
            let long = [&[0xE3, 0, 0, 0, 1, 8, id][..], &[0xAA; 30]].concat();
            vec![short(0x43), short(0x40), long]
        }
        Form::Kcp => vec![short(0x42), short(0x00), short(0x81)],
    }
}

/// The first packet of a client, and others of strangers.
fn first(form: Form, id: u8) -> Vec<Vec<u8>> {
    match form {
        Form::Quic => {
            let initial = [&[0xC3, 0, 0, 0, 1, 20, id][..], &[0xAA; 30]].concat();
            let stun = [&[0x00, 0x01][..], &[0xAA; 30]].concat();
            vec![initial, stun, vec![0x43, id]]
        }
        Form::Kcp => vec![[&[0x40, id][..], &[0xAA; 30]].concat()],
    }
}

/// The generation and the worker that get a datagram. Loopback delivers within the call that sends.
fn taker(groups: &[CarrierGroup], datagram: &[u8]) -> (usize, usize) {
    let to = groups[0].sockets[0].local_addr().unwrap();
    let client = UdpSocket::bind((to.ip(), 0)).unwrap();
    client.send_to(datagram, to).unwrap();
    let mut got = Vec::new();
    for (generation, group) in groups.iter().enumerate() {
        for (worker, socket) in group.sockets.iter().enumerate() {
            let read = socket.recv(&mut [0; 64]);
            if read.is_ok_and(|length| length == datagram.len()) {
                got.push((generation, worker));
            }
        }
    }
    assert_eq!(got.len(), 1, "one socket gets {datagram:?}: {got:?}");
    got[0]
}

/// Leaves all sockets to the next generation, and binds the port there.
fn next(form: Form, groups: &mut Vec<CarrierGroup>) {
    let address = groups[0].sockets[0].local_addr().unwrap();
    let count = groups[0].sockets.len();
    let (ours, theirs) = UnixStream::pair().unwrap();
    handover::give(&ours).unwrap();
    drop(ours);
    let left = layout();
    Inherited::receive(&theirs).unwrap().offer();
    inherit(left);
    groups.push(carrier_group(address, count, form).unwrap());
}

fn clients_reach(generation: usize, form: Form, groups: &[CarrierGroup]) {
    for client in 0..CLIENTS {
        for datagram in first(form, client) {
            assert_eq!(taker(groups, &datagram).0, generation, "{form:?}, {datagram:?}");
        }
        let workers = groups[0].sockets.len();
        let worker = taker(groups, &first(form, client)[0]).1;
        assert_eq!(worker, usize::from(client) % workers, "the client chooses the worker");
    }
}

fn connections_stay(generations: &[usize], form: Form, groups: &[CarrierGroup]) {
    for &generation in generations {
        for worker in 0..groups[generation].sockets.len() {
            let id = groups[generation].steering_slot(worker).unwrap().byte();
            for client in 0..CLIENTS {
                let packets = known(form, id);
                let packet = &packets[usize::from(client) % packets.len()];
                assert_eq!(taker(groups, packet), (generation, worker), "{form:?}, {packet:?}");
            }
        }
    }
}

fn upgrades(form: Form, localhost: IpAddr, workers: usize) {
    inherit(Default::default());
    let at = SocketAddr::from((localhost, 0));
    if carrier_group(at, workers, form).is_err() {
        return;
    }
    // `tls://` beside `quic://`, at the same port. Another program may use the number for TCP.
    let both = || {
        let bound = carrier_group(at, workers, form).unwrap();
        let beside = net::listen_group(bound.sockets[0].local_addr().unwrap(), workers).ok()?;
        Some((bound, beside))
    };
    let found = (0..100).find_map(|_| both());
    let (bound, _beside) = found.expect("a port of TCP with the same number");
    let mut groups = vec![bound];
    clients_reach(0, form, &groups);
    next(form, &mut groups);
    let slots = [0, 1].map(|generation: usize| groups[generation].steering_slot(0).unwrap());
    assert_eq!(slots.map(|steering_slot| usize::from(steering_slot.byte())), [0, workers]);
    // The former generation serves until the next one does.
    clients_reach(0, form, &groups);
    connections_stay(&[0, 1], form, &groups);
    handover::serve();
    clients_reach(1, form, &groups);
    connections_stay(&[0, 1], form, &groups);
    assert!(slots[1].is_of_other(0), "only the former generation may end its connections");

    next(form, &mut groups);
    handover::serve();
    clients_reach(2, form, &groups);
    connections_stay(&[0, 1, 2], form, &groups);

    // The sockets of the ended generations are still there, so the others keep their numbers.
    let last = groups.pop().unwrap();
    drop(groups);
    former_ended();
    let mut groups = vec![last];
    assert!(!groups[0].steering_slot(0).unwrap().is_of_other(0), "nobody else tells its clients");
    clients_reach(0, form, &groups);
    connections_stay(&[0], form, &groups);
    assert_eq!(taker(&groups, &known(form, 0)[0]).0, 0, "a packet for an ended generation");

    // The next generation takes the slot and the sockets of an ended one.
    next(form, &mut groups);
    assert_eq!(groups[1].steering_slot(0).unwrap().byte(), 0);
    clients_reach(0, form, &groups);
    handover::serve();
    clients_reach(1, form, &groups);
    connections_stay(&[0, 1], form, &groups);
    let other = carrier_group(groups[0].sockets[0].local_addr().unwrap(), workers, form);
    assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::AddrInUse, "for strangers");
}

#[test]
fn each_datagram_reaches_the_generation_and_the_worker_of_its_connection() {
    for form in [Form::Quic, Form::Kcp] {
        for localhost in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            for workers in [1, 2, 5] {
                upgrades(form, localhost, workers);
            }
        }
    }
}
