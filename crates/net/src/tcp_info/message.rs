//! The encoding of a request to the kernel about one TCP connection, and of the reply:
//! `sock_diag(7)`, `struct inet_diag_req_v2` of `linux/inet_diag.h` after a netlink header, and
//! `struct tcp_info` of `linux/tcp.h` in an attribute of the reply.
//!
//! Integers are in host byte order, ports and addresses in network byte order. `tcp_info` only
//! grows at its end: fields that an older kernel lacks are absent.

use std::net::{IpAddr, SocketAddr};

use super::{Ends, Info};

/// The length of a netlink message header (netlink(7)): length, type, flags, sequence, port.
const HEAD: usize = 16;

/// The length of `struct inet_diag_msg`: family, state, two more bytes, both ends, five counters.
const REPLY: usize = 72;

/// The length of a request in bytes.
pub(super) const QUESTION: usize = HEAD + 8 + 48;

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `SOCK_DIAG_BY_FAMILY`, the type of a request and of its reply.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST` without a dump flag: the request is for one connection.
const REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// The attribute with `tcp_info`.
const INET_DIAG_INFO: u16 = 2;
/// `TCP_LISTEN`: for a closed connection the kernel finds the listening socket of its address.
const LISTENING: u8 = 10;

/// Encodes the request for the connection between `ends`.
pub(super) fn question(ends: Ends, sequence: u32) -> [u8; QUESTION] {
    let mut bytes = [0; QUESTION];
    let Ends { local, remote } = ends;
    let (near, far) = (local.ip().to_canonical(), remote.ip().to_canonical());
    // The kernel finds an IPv6 socket with an IPv4 connection by its IPv4 addresses.
    let is_v4 = near.is_ipv4() && far.is_ipv4();
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&u32::try_from(QUESTION).unwrap_or(u32::MAX).to_ne_bytes());
    put(&BY_FAMILY.to_ne_bytes());
    put(&REQUEST.to_ne_bytes());
    put(&sequence.to_ne_bytes());
    put(&[0; 4]);
    put(&[if is_v4 { AF_INET } else { AF_INET6 }, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    // The socket may be in any state.
    put(&u32::MAX.to_ne_bytes());
    put(&local.port().to_be_bytes());
    put(&remote.port().to_be_bytes());
    put(&address(if is_v4 { near } else { local.ip() }));
    put(&address(if is_v4 { far } else { remote.ip() }));
    // A link-local address requires its interface.
    put(&scope(local).to_ne_bytes());
    // Without a cookie any socket matches.
    put(&[0xff; 8]);
    bytes
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// A decoded reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The statistics of the connection. `cookie` is unique to this socket until the machine
    /// reboots.
    Reply { cookie: u64, info: Info },
    /// There is no such connection, or it is closed.
    Nothing,
    /// The kernel refused the request with this `errno`.
    Refused(i32),
    /// A reply to another request, or an invalid reply.
    Strange,
}

/// Decodes the reply to the request with this `sequence`. Any input is safe.
pub(super) fn answer(bytes: &[u8], ends: Ends, sequence: u32) -> Answer {
    read(bytes, ends, sequence).unwrap_or(Answer::Strange)
}

fn read(bytes: &[u8], ends: Ends, sequence: u32) -> Option<Answer> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let message = bytes.get(..length)?;
    if u32_at(message, 8)? != sequence {
        return None;
    }
    match u16_at(message, 4)? {
        ERROR => {
            let errno = i32::from_ne_bytes(message.get(HEAD..HEAD + 4)?.try_into().ok()?);
            Some(Answer::Refused(errno.checked_neg()?))
        }
        BY_FAMILY => {
            let reply = message.get(HEAD..HEAD + REPLY)?;
            let port =
                |at: usize| Some(u16::from_be_bytes(reply.get(at..at + 2)?.try_into().ok()?));
            let asked = (ends.local.port(), ends.remote.port());
            if reply.get(1) == Some(&LISTENING) || (port(4)?, port(6)?) != asked {
                return Some(Answer::Nothing);
            }
            let cookie = u64::from(u32_at(reply, 44)?) | u64::from(u32_at(reply, 48)?) << 32;
            let info = attribute(&message[HEAD + REPLY..], INET_DIAG_INFO);
            Some(info.map_or(Answer::Nothing, |info| Answer::Reply { cookie, info: decode(info) }))
        }
        _ => None,
    }
}

/// Returns the value of the attribute `kind` (`struct nlattr`: a length that includes these four
/// header bytes, then the kind). Attributes are padded to four bytes.
fn attribute(mut rest: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(4..length)?;
        if u16_at(rest, 2)? == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// Decodes `struct tcp_info` by offsets.
fn decode(info: &[u8]) -> Info {
    let small = |at| u32_at(info, at).map(u64::from);
    Info {
        unacked_segments: small(24),
        last_ack_millis: small(56),
        acked_bytes: u64_at(info, 120),
        lost_segments: small(32),
        rtt_micros: small(68).filter(|micros| *micros > 0),
        window_segments: small(80),
        retransmitted_segments: small(100),
        unsent_bytes: small(144),
        sent_segments: small(156),
        bytes_per_second: u64_at(info, 160).filter(|rate| *rate > 0),
        retransmitted_bytes: u64_at(info, 208),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
