//! The creation of the sockets of flows.

use std::cell::OnceCell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo, UdpGroSegment};
use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::family::unreachable;
use crate::options::SocketOptions;
use crate::udp::buffers::{Buffers, WANTED, ask, keep_joining};

/// The buffers of the socket of one target, in bytes: eight of the largest datagrams. There are
/// thousands of such sockets.
const OF_TARGET: Buffers = Buffers { receive: 512 << 10, send: 512 << 10 };

/// The batched system calls that this kernel supports.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) state: UdpSocketState,
    /// Whether the kernel segments a send into datagrams (UDP_SEGMENT). quinn-udp disables this
    /// permanently after one refusal, which may concern only one path; `send` handles refusals
    /// itself.
    pub(super) has_segments: bool,
}

thread_local! {
    /// quinn-udp creates two sockets to detect the features of the kernel, so the sockets of a
    /// thread share the result.
    static CALLS: OnceCell<Rc<Calls>> = const { OnceCell::new() };
}

/// The batched system calls of this thread.
pub(super) fn calls() -> io::Result<Rc<Calls>> {
    CALLS.with(|calls| {
        if let Some(calls) = calls.get() {
            return Ok(Rc::clone(calls));
        }
        keep_joining();
        // quinn-udp sets options that forbid fragmentation. They are set on this probe socket.
        let probe = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP));
        let probe =
            probe.or_else(|_| Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)))?;
        let state = UdpSocketState::new(UdpSockRef::from(&probe))?;
        let has_segments = state.max_gso_segments() > 1;
        Ok(Rc::clone(calls.get_or_init(|| Rc::new(Calls { state, has_segments }))))
    })
}

/// Creates a socket for one target, not yet connected. The caller checks its descriptor number and
/// passes it to [`super::FlowSocket::connect`].
///
/// # Errors
/// No descriptor is left, or the machine lacks the family of `target`.
pub fn dialling(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP));
    Ok(socket.map_err(unreachable)?.into())
}

/// Prepares the socket of a listener: large buffers, and the local destination address with each
/// datagram.
pub(super) fn prepare_listener(socket: &UdpSocket) -> io::Result<()> {
    keep_joining();
    let is_v6 = prepare(socket)?;
    if is_v6 {
        // IPv4 packets report it in the same form, as mapped addresses.
        setsockopt(socket, Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(socket, Ipv4PacketInfo, &true)?;
    }
    SocketOptions::with_buffers(WANTED).at_bind(socket, Some(&SocketOptions::UNSET))
}

/// Prepares the socket of a target.
pub(super) fn prepare_target(socket: &UdpSocket) -> io::Result<()> {
    keep_joining();
    prepare(socket)?;
    ask(socket, OF_TARGET)
}

/// Enables coalesced reads, and fragmentation of datagrams that exceed the path MTU, because a
/// tunnelled program cannot learn the MTU. Returns whether the socket is IPv6.
fn prepare(socket: &UdpSocket) -> io::Result<bool> {
    socket.set_nonblocking(true)?;
    // On failure each datagram is a separate message.
    let _ = setsockopt(socket, UdpGroSegment, &true);
    let is_v6 = socket.local_addr()?.is_ipv6();
    if is_v6 {
        set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DONT)?;
    }
    // Also for the IPv4 packets of an IPv6 socket; an IPv6-only socket may refuse it.
    match set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DONT) {
        Err(error) if !is_v6 => Err(error.into()),
        Ok(()) | Err(_) => Ok(is_v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_out_once_what_the_kernel_can_do() {
        assert!(Rc::ptr_eq(&calls().unwrap(), &calls().unwrap()));
    }

    #[test]
    fn a_target_of_either_family_gets_a_socket() {
        let socket = dialling("192.0.2.1:53".parse().unwrap()).unwrap();
        prepare_target(&socket).unwrap();
        if let Ok(socket) = dialling("[2001:db8::1]:53".parse().unwrap()) {
            prepare_target(&socket).unwrap();
        }
    }
}
