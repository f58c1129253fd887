//! PCP (RFC 6887): the request MAP and its response.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Denied;
use super::types::{Answer, Granted};

/// The version of PCP. A response of version 0 comes from a router that supports only NAT-PMP (RFC
/// 6887 section 9).
const VERSION: u8 = 2;

const MAP: u8 = 1;

/// The bit of the opcode byte that marks a response.
const ANSWER: u8 = 0x80;

/// The protocol UDP.
const UDP: u8 = 17;

/// Length of a request, and of a response without options, in bytes.
const LENGTH: usize = 60;

/// A number that only the owner of the mapping knows.
pub(super) type Nonce = [u8; 12];

/// Encodes the request to map the port of `own`, or with a lifetime of 0 to delete the mapping.
/// `wanted` is the suggested external address, if there is one.
pub(super) fn request(
    own: (Ipv4Addr, u16),
    nonce: &Nonce,
    seconds: u32,
    wanted: Option<SocketAddr>,
) -> Vec<u8> {
    let (ip, port) = own;
    let (outer, outer_port) = match wanted {
        Some(SocketAddr::V4(outer)) => (*outer.ip(), outer.port()),
        Some(SocketAddr::V6(_)) | None => {
            (Ipv4Addr::UNSPECIFIED, if seconds == 0 { 0 } else { port })
        }
    };
    let mut out = Vec::with_capacity(LENGTH);
    out.extend([VERSION, MAP, 0, 0]);
    out.extend(seconds.to_be_bytes());
    out.extend(ip.to_ipv6_mapped().octets());
    out.extend(nonce);
    out.extend([UDP, 0, 0, 0]);
    out.extend(port.to_be_bytes());
    out.extend(outer_port.to_be_bytes());
    out.extend(outer.to_ipv6_mapped().octets());
    out
}

/// Decodes a response to [`request`]. `None`: it is not such a response.
pub(super) fn answer(bytes: &[u8], port: u16, nonce: &Nonce) -> Option<Answer> {
    let (&version, &kind) = (bytes.first()?, bytes.get(1)?);
    if version != VERSION {
        // A router of another version does not echo the request.
        return (version == 0 && kind & ANSWER != 0).then_some(Answer::Unknown);
    }
    let is_ours = bytes.len() >= LENGTH
        && kind == MAP | ANSWER
        && bytes[24..36] == *nonce
        && bytes[36] == UDP
        && bytes[40..42] == port.to_be_bytes();
    if !is_ours {
        return None;
    }
    Some(match bytes[3] {
        0 => {
            let outer = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[44..60]).ok()?);
            let outer_port = u16::from_be_bytes([bytes[42], bytes[43]]);
            Answer::Granted(Granted {
                outer: SocketAddr::new(IpAddr::V6(outer).to_canonical(), outer_port),
                seconds: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            })
        }
        2 => Answer::Denied(Denied::NotAuthorized),
        7 => Answer::Denied(Denied::NoNetwork),
        8 | 10 => Answer::Denied(Denied::Full),
        code => Answer::Denied(Denied::Code(code.into())),
    })
}
