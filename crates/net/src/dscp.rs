//! The differentiated services code point (DSCP, RFC 2474) of a socket's packets: the upper six
//! bits of the field that is called type of service in IPv4 and traffic class in IPv6. The lower
//! two bits are ECN (RFC 3168), and are preserved.
//!
//! TCP packets, and datagrams sent without control messages, have the mark of their socket.
//! quinn-udp sets the ECN bits of each datagram by a control message, which replaces the whole
//! field; [`send`] puts the mark into the same message.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use nix::libc;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::{ip_tos, ipv6_tclass, set_ip_tos, set_ipv6_tclass, socket_domain};
use socket2::{MsgHdr, SockAddr, SockRef};

/// The ECN bits of the field.
const ECN: u8 = 3;

/// Marks the packets of a socket with the code point `dscp`, 0 to 63; 0 is best effort. A
/// dual-stack socket is marked for both families. Connections accepted by a TCP listener inherit
/// the mark.
///
/// # Errors
/// Those of setsockopt(2).
pub(crate) fn mark(socket: &impl AsFd, dscp: u8) -> io::Result<()> {
    let field = dscp << 2;
    let is_v6 = socket_domain(socket)? == AddressFamily::INET6;
    if is_v6 {
        let ecn = u32::from(ECN) & ipv6_tclass(socket)?;
        set_ipv6_tclass(socket, u32::from(field) | ecn)?;
    }
    let of_v4 = || set_ip_tos(socket, field | ip_tos(socket)? & ECN);
    match of_v4() {
        // An IPv6-only socket may not have the option.
        Err(_) if is_v6 => Ok(()),
        outcome => outcome.map_err(io::Error::from),
    }
}

/// The code point of the packets of a socket, 0 to 63; 0 if it cannot be read.
pub fn of(socket: &impl AsFd) -> u8 {
    let field = match socket_domain(socket) {
        Ok(AddressFamily::INET6) => {
            ipv6_tclass(socket).ok().and_then(|field| u8::try_from(field).ok())
        }
        Ok(_) => ip_tos(socket).ok(),
        Err(_) => None,
    };
    field.unwrap_or_default() >> 2
}

/// Sends as [`UdpSocketState::try_send`] does, with the code point `dscp`, 0 to 63. Does not
/// allocate.
///
/// # Errors
/// Those of sendmsg(2).
pub fn send(
    state: &UdpSocketState,
    socket: &impl AsFd,
    transmit: &Transmit<'_>,
    dscp: u8,
) -> io::Result<()> {
    if dscp == 0 {
        return state.try_send(UdpSockRef::from(socket), transmit);
    }
    let (to, contents) = (SockAddr::from(transmit.destination), [IoSlice::new(transmit.contents)]);
    let control = Control::of(transmit, dscp);
    let message = MsgHdr::new().with_addr(&to).with_buffers(&contents);
    let message = message.with_control(control.bytes());
    loop {
        let Err(error) = SockRef::from(socket).sendmsg(&message, 0) else { return Ok(()) };
        match Errno::from_io_error(&error) {
            Some(Errno::INTR) => {}
            // A device that cannot segment a batch: `state` detects this by its own call, which
            // fails for the same reason.
            Some(Errno::IO | Errno::INVAL) if transmit.segment_size.is_some() => {
                return state.try_send(UdpSockRef::from(socket), transmit);
            }
            _ => return Err(error),
        }
    }
}

/// Sends one datagram from the address `src_ip` of this machine, with a hop limit of `hops` and the
/// code point `dscp`: it opens the NATs near this machine without reaching the far end.
///
/// # Errors
/// Those of sendmsg(2).
pub fn send_within(
    socket: &impl AsFd,
    (to, src_ip): (SocketAddr, Option<IpAddr>),
    contents: &[u8],
    (dscp, hops): (u8, u8),
) -> io::Result<()> {
    let one = Transmit { destination: to, ecn: None, contents, segment_size: None, src_ip };
    let mut control = Control::of(&one, dscp);
    let hops = libc::c_int::from(hops).to_ne_bytes();
    if to.ip().to_canonical().is_ipv4() {
        control.put(libc::IPPROTO_IP, libc::IP_TTL, &hops);
    } else {
        control.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
    }
    let (to, contents) = (SockAddr::from(to), [IoSlice::new(contents)]);
    let message = MsgHdr::new().with_addr(&to).with_buffers(&contents);
    let message = message.with_control(control.bytes());
    loop {
        let Err(error) = SockRef::from(socket).sendmsg(&message, 0) else { return Ok(()) };
        if Errno::from_io_error(&error) != Some(Errno::INTR) {
            return Err(error);
        }
    }
}

/// The header length of a control message: `size_t cmsg_len`, `int cmsg_level`, `int cmsg_type`
/// (cmsg(3)).
const HEAD: usize = size_of::<usize>() + 2 * size_of::<libc::c_int>();

/// The size of a control message with `data` bytes of data.
const fn space(data: usize) -> usize {
    HEAD + data.next_multiple_of(size_of::<usize>())
}

/// The space for the field, the segment size or the hop limit, and the address of this machine
/// (`in6_pktinfo`).
const ROOM: usize = space(size_of::<libc::c_int>()) + space(size_of::<libc::c_int>()) + space(20);

/// The control messages of a datagram, in the form of the kernel.
#[repr(align(8))]
struct Control {
    bytes: [u8; ROOM],
    used: usize,
}

impl Control {
    fn of(transmit: &Transmit<'_>, dscp: u8) -> Self {
        let mut control = Self { bytes: [0; ROOM], used: 0 };
        let ecn = transmit.ecn.map_or(0, |ecn| ecn as u8);
        let field = libc::c_int::from(dscp << 2 | ecn & ECN).to_ne_bytes();
        if transmit.destination.ip().to_canonical().is_ipv4() {
            control.put(libc::IPPROTO_IP, libc::IP_TOS, &field);
        } else {
            control.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &field);
        }
        // As in quinn-udp: some drivers refuse a batch of one datagram.
        let segment = transmit.segment_size.filter(|size| *size < transmit.contents.len());
        if let Some(segment) = segment.and_then(|size| u16::try_from(size).ok()) {
            control.put(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        match transmit.src_ip {
            // `in_pktinfo`: the interface, the address, and an address that only the kernel fills
            // in.
            Some(IpAddr::V4(ip)) => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&ip.octets());
                control.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // `in6_pktinfo`: the address and the interface.
            Some(IpAddr::V6(ip)) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                control.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            None => {}
        }
        control
    }

    /// Appends a control message. The three messages of a datagram fit.
    fn put(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let end = self.used + space(data.len());
        let Some(place) = self.bytes.get_mut(self.used..end) else { return };
        let length = (HEAD + data.len()).to_ne_bytes();
        let parts = [&length[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), data];
        let mut place = place.iter_mut();
        for byte in parts.into_iter().flatten() {
            place.next().into_iter().for_each(|to| *to = *byte);
        }
        self.used = end;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::time::Duration;

    use nix::sys::socket::setsockopt;
    use nix::sys::socket::sockopt::{IpRecvTos, Ipv6RecvTClass};
    use quinn_udp::EcnCodepoint;

    use super::*;
    use crate::no_check::NoCheck;

    /// A bound socket that reads datagrams with their ECN bits; `None` if the machine lacks the
    /// family.
    fn bound(ip: IpAddr) -> Option<(UdpSocket, UdpSocketState)> {
        let socket = UdpSocket::bind((ip, 0)).ok()?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket)).unwrap();
        socket.set_nonblocking(false).unwrap();
        Some((socket, state))
    }

    /// The field of the next datagram, from the control message of the kernel.
    fn arrived(socket: &UdpSocket) -> u8 {
        use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
        use std::os::fd::AsRawFd;
        let mut data = [0; 4_000];
        let mut iov = [io::IoSliceMut::new(&mut data)];
        let mut space = vec![0; 256];
        let flags = MsgFlags::empty();
        let got = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags);
        let field = got.unwrap().cmsgs().unwrap().find_map(|message| {
            if let ControlMessageOwned::Ipv4Tos(field) = message {
                return Some(field);
            }
            let ControlMessageOwned::Ipv6TClass(field) = message else { return None };
            u8::try_from(field).ok()
        });
        field.unwrap()
    }

    #[test]
    fn a_datagram_has_the_mark_and_its_ecn_bits_in_either_family() {
        let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
        let dual = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        for (from, to) in [(v4, v4), (v6, v6), (dual, v6), (dual, v4)] {
            // The receiver has no state, which would let the kernel coalesce the datagrams of a
            // batch.
            let (Some((sender, state)), Ok(receiver)) = (bound(from), UdpSocket::bind((to, 0)))
            else {
                continue;
            };
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            if to.is_ipv4() {
                setsockopt(&receiver, IpRecvTos, &true).unwrap();
            } else {
                setsockopt(&receiver, Ipv6RecvTClass, &true).unwrap();
            }
            let port = receiver.local_addr().unwrap().port();
            let mapped = |ip: Ipv4Addr| IpAddr::from(ip.to_ipv6_mapped());
            let destination = match to {
                IpAddr::V4(ip) if from.is_ipv6() => SocketAddr::new(mapped(ip), port),
                IpAddr::V4(_) | IpAddr::V6(_) => SocketAddr::new(to, port),
            };
            for (dscp, ecn) in
                [(46, None), (46, Some(EcnCodepoint::Ect0)), (63, Some(EcnCodepoint::Ect1))]
            {
                for src_ip in [None, Some(destination.ip())] {
                    let contents = &[7; 1_000];
                    let transmit =
                        Transmit { destination, ecn, contents, segment_size: None, src_ip };
                    send(&state, &sender, &transmit, dscp).unwrap();
                    let wanted = dscp << 2 | ecn.map_or(0, |ecn| ecn as u8);
                    assert_eq!(arrived(&receiver), wanted, "{from} to {to}, {src_ip:?}");
                    // A batch of three, and the short rest.
                    let batch =
                        Transmit { contents: &[7; 700], segment_size: Some(200), ..transmit };
                    send(&state, &sender, &batch, dscp).unwrap();
                    let fields: Vec<_> = (0..4).map(|_| arrived(&receiver)).collect();
                    assert_eq!(fields, [wanted; 4], "{from} to {to}, {src_ip:?}");
                }
            }
        }
    }

    #[test]
    fn a_datagram_has_its_hops_in_either_family() {
        use nix::sys::socket::sockopt::{Ipv4RecvTtl, Ipv6RecvHopLimit};
        use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
        use std::os::fd::AsRawFd;
        let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
        let dual = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        for (from, to) in [(v4, v4), (v6, v6), (dual, v6), (dual, v4)] {
            let (Some((sender, state)), Ok(receiver)) = (bound(from), UdpSocket::bind((to, 0)))
            else {
                continue;
            };
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            if to.is_ipv4() {
                setsockopt(&receiver, Ipv4RecvTtl, &true).unwrap();
            } else {
                setsockopt(&receiver, Ipv6RecvHopLimit, &true).unwrap();
            }
            let port = receiver.local_addr().unwrap().port();
            let destination = match to {
                IpAddr::V4(ip) if from.is_ipv6() => (ip.to_ipv6_mapped(), port).into(),
                IpAddr::V4(_) | IpAddr::V6(_) => SocketAddr::new(to, port),
            };
            let hops = || {
                let mut data = [0; 100];
                let mut iov = [io::IoSliceMut::new(&mut data)];
                let mut space = vec![0; 256];
                let flags = MsgFlags::empty();
                let got = recvmsg::<SockaddrStorage>(
                    receiver.as_raw_fd(),
                    &mut iov,
                    Some(&mut space),
                    flags,
                );
                let hops = got.unwrap().cmsgs().unwrap().find_map(|message| {
                    if let ControlMessageOwned::Ipv4Ttl(hops) = message {
                        return Some(hops);
                    }
                    let ControlMessageOwned::Ipv6HopLimit(hops) = message else { return None };
                    Some(hops)
                });
                hops.unwrap()
            };
            for src_ip in [None, Some(destination.ip())] {
                let contents = &[7; 20];
                let transmit =
                    Transmit { destination, ecn: None, contents, segment_size: None, src_ip };
                for dscp in [0, 46] {
                    send_within(&sender, (destination, src_ip), contents, (dscp, 3)).unwrap();
                    assert_eq!(hops(), 3, "{from} to {to}, {src_ip:?}");
                    send(&state, &sender, &transmit, dscp).unwrap();
                    assert!(hops() > 30, "the next one lives as long as usual");
                }
            }
        }
    }

    #[test]
    fn a_socket_keeps_the_bits_of_ecn() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Some((socket, _)) = bound(ip) else { continue };
            let ecn = || match ip {
                IpAddr::V4(_) => ip_tos(&socket).unwrap() & ECN,
                IpAddr::V6(_) => ipv6_tclass(&socket).unwrap() as u8 & ECN,
            };
            match ip {
                IpAddr::V4(_) => set_ip_tos(&socket, 2).unwrap(),
                IpAddr::V6(_) => set_ipv6_tclass(&socket, 2).unwrap(),
            }
            for dscp in [46, 63, 0] {
                mark(&socket, dscp).unwrap();
                assert_eq!((of(&socket), ecn()), (dscp, 2), "{ip}");
            }
        }
    }

    #[test]
    fn what_a_listener_accepts_has_its_mark() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(group) = crate::listen_group(address.parse().unwrap(), 1) else { continue };
            mark(&group[0], 34).unwrap();
            group[0].set_nonblocking(false).unwrap();
            let port = group[0].local_addr().unwrap().port();
            let host = if address.starts_with("[::1]") { "::1" } else { "127.0.0.1" };
            let _visitor = std::net::TcpStream::connect((host, port)).unwrap();
            let (accepted, peer) = group[0].accept().unwrap();
            // IPv4 packets of an IPv6 socket have the IPv4 field.
            let field = match peer.ip().to_canonical() {
                IpAddr::V4(_) => ip_tos(&accepted).unwrap(),
                IpAddr::V6(_) => ipv6_tclass(&accepted).unwrap() as u8,
            };
            assert_eq!(field >> 2, 34, "{address}");
        }
    }

    #[test]
    fn a_batch_that_the_kernel_refuses_is_told_to_the_state() {
        let Some((sender, state)) = bound(Ipv4Addr::LOCALHOST.into()) else { return };
        if state.max_gso_segments() < 2 {
            return;
        }
        setsockopt(&sender, NoCheck, &true).unwrap();
        let destination = sender.local_addr().unwrap();
        let contents = &[7; 400];
        let transmit =
            Transmit { destination, ecn: None, contents, segment_size: Some(200), src_ip: None };
        assert!(send(&state, &sender, &transmit, 46).is_err());
        assert_eq!(state.max_gso_segments(), 1);
    }
}
