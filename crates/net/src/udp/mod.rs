//! UDP sockets: for QUIC, for KCP and for tunnelled flows. A server has one socket per worker on
//! one address, as [`crate::listen_group`] creates for TCP.
//!
//! `buffers` sets the socket buffer sizes, `route` determines the maximum datagram size. For QUIC
//! and KCP `steer` directs each connection to its worker in the kernel, `generations` shares a port
//! with the previous processes of an upgrade, and `fence` drops floods of first packets. For flows
//! `peers` directs each peer to its worker, and `flow` reads and writes in batches. `unsent` logs
//! that the system refuses to send.

pub(crate) mod buffers;
mod fence;
mod flow;
mod generations;
mod peers;
mod refused;
mod route;
mod steer;
mod unsent;

use std::io;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

pub use buffers::{Buffers, WANTED, granted, keep_joining, raise, take_joined, take_one_by_one};
pub use fence::Fence;
pub use flow::{Arrival, DetachedSocket, FlowSocket, Loss, Route, Tally, connect, dialling};
pub use generations::{
    CarrierGroup, Layout, SLOTS, SteeringSlot, carrier_group, former_ended, former_live, inherit,
    layout, most_processes, slot,
};
pub(crate) use generations::{forget_left, hand_over, is_of_carriers, serve};
pub use peers::{BUCKETS, Buckets, FlowGroup, Steering, bucket_of, flow_group};
pub use refused::refused;
pub use route::{dialled, local_address, payload_of_route, unspecified};
pub use steer::Form;
pub use unsent::unsent;

use steer::{Steered, steer};

/// The maximum number of sockets in a group: the number of values of the byte that names a worker.
pub const MAX_GROUP: usize = 256;

/// Creates `count` non-blocking sockets on `address`, at least one and at most [`MAX_GROUP`]. Port
/// 0 selects one free port for all of them. `[::]` also accepts IPv4, and only IPv4 if the kernel
/// has no IPv6 ([`crate::bindable`]). The first byte of the server's connection id, modulo the
/// number of sockets, is the index in the returned list of the socket that receives the datagrams
/// of the connection.
///
/// The first socket binds *without* `SO_REUSEPORT`. A port that another process holds is therefore
/// [`io::ErrorKind::AddrInUse`], even if the process belongs to the same user. Then the first
/// socket gets the option and the others join it. The kernel numbers the sockets of a group from 0
/// in the order in which they joined. When a socket closes, the last socket takes its index, so the
/// caller must close all sockets of a group together. A group of this address that the process has
/// [inherited](crate::inherited) is used instead.
pub fn udp_group(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    let group = share(address, count)?;
    steer_alone(&group, Form::Quic, 0);
    Ok(group)
}

/// Steers the datagrams of a group that no other process shares. Logs a warning if the kernel
/// cannot.
fn steer_alone(group: &[UdpSocket], form: Form, slot: u8) {
    let [first, _, ..] = group else { return };
    let slots = &[slot];
    let steered = Steered { form, workers: group.len(), slots, live: slots, serving: slot };
    if let Err(error) = steer(first, &steered) {
        let address = first.local_addr().map_or_else(|_| String::new(), |at| at.to_string());
        tracing::warn!(
            %error, %address,
            "the kernel does not steer the datagrams of {address} to workers by connection id: {error}; \
             a client whose address changes has to reconnect"
        );
    }
}

/// The sockets of a group, without steering.
fn share(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    if count > MAX_GROUP {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a UDP port is shared by at most {MAX_GROUP} workers, not {count}"),
        ));
    }
    let address = crate::bindable(address)?;
    if let Some(group) = crate::inherited::udp(address, count)? {
        return Ok(group);
    }
    let first = socket(address)?;
    first.bind(&address.into())?;
    if count < 2 {
        return Ok(vec![first.into()]);
    }
    first.set_reuse_port(true)?;
    let first = UdpSocket::from(first);
    let bound = first.local_addr()?;
    let mut group = vec![first];
    for _ in 1..count {
        let next = socket(bound)?;
        next.set_reuse_port(true)?;
        next.bind(&bound.into())?;
        group.push(next.into());
    }
    Ok(group)
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if let SocketAddr::V6(v6) = address {
        socket.set_only_v6(!v6.ip().is_unspecified())?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_group_shares_one_port() {
        let group = udp_group(local(0), 3).unwrap();
        let port = group[0].local_addr().unwrap().port();
        assert!(group.iter().all(|one| one.local_addr().unwrap().port() == port));
        assert_eq!(group.len(), 3);
    }

    #[test]
    fn a_port_taken_by_a_group_is_an_error() {
        for taken in [1, 2] {
            let group = udp_group(local(0), taken).unwrap();
            let address = group[0].local_addr().unwrap();
            for count in [1, 2] {
                let refused = udp_group(address, count).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            }
        }
    }

    #[test]
    fn the_unspecified_ipv6_address_takes_ipv4_too() {
        let Ok(group) = udp_group("[::]:0".parse().unwrap(), 1) else {
            return; // a machine without IPv6
        };
        let to = local(group[0].local_addr().unwrap().port());
        UdpSocket::bind(local(0)).unwrap().send_to(b"hi", to).unwrap();
        // Loopback delivers within the send call.
        assert_eq!(group[0].recv(&mut [0; 8]).unwrap(), 2);
    }

    #[test]
    fn a_group_larger_than_a_byte_can_name_is_refused() {
        let refused = udp_group(local(0), MAX_GROUP + 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
