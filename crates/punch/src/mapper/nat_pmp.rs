//! NAT-PMP (RFC 6886): the external address of the router, and a UDP mapping.

use std::net::{Ipv4Addr, SocketAddr};

use super::Denied;
use super::types::{Answer, Granted};

const VERSION: u8 = 0;

const ADDRESS: u8 = 0;
const MAP_UDP: u8 = 1;

/// The bit of the opcode that marks a response.
const ANSWER: u8 = 128;

/// Encodes the request for the external address.
pub(super) fn address_request() -> Vec<u8> {
    vec![VERSION, ADDRESS]
}

/// Encodes the request to map a port, or with a lifetime of 0 to delete the mapping.
pub(super) fn request(port: u16, seconds: u32, wanted: Option<SocketAddr>) -> Vec<u8> {
    let wanted = match wanted {
        // The deletion of a mapping has no external port (RFC 6886 section 3.4).
        _ if seconds == 0 => 0,
        wanted => wanted.map_or(port, |outer| outer.port()),
    };
    let mut out = vec![VERSION, MAP_UDP, 0, 0];
    out.extend(port.to_be_bytes());
    out.extend(wanted.to_be_bytes());
    out.extend(seconds.to_be_bytes());
    out
}

/// Decodes the response to [`address_request`]. `None`: it is not such a response.
pub(super) fn address(bytes: &[u8]) -> Option<Result<Ipv4Addr, Denied>> {
    if let Some(denied) = denied(bytes, ADDRESS)? {
        return Some(Err(denied));
    }
    let ip: [u8; 4] = bytes.get(8..12)?.try_into().ok()?;
    Some(Ok(ip.into()))
}

/// Decodes the response to [`request`]; the router has the external address `outer`. `None`: it is
/// not such a response.
pub(super) fn answer(bytes: &[u8], port: u16, outer: Ipv4Addr) -> Option<Answer> {
    if let Some(denied) = denied(bytes, MAP_UDP)? {
        return Some(Answer::Denied(denied));
    }
    let bytes: &[u8; 16] = bytes.first_chunk()?;
    if bytes[8..10] != port.to_be_bytes() {
        return None;
    }
    let outer = SocketAddr::from((outer, u16::from_be_bytes([bytes[10], bytes[11]])));
    let seconds = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    Some(Answer::Granted(Granted { outer, seconds }))
}

/// The error in a response to `opcode`, if there is one. `None`: it is not such a response.
#[expect(clippy::option_option, reason = "no answer, an answer, an error in an answer")]
fn denied(bytes: &[u8], opcode: u8) -> Option<Option<Denied>> {
    let head: &[u8; 4] = bytes.first_chunk()?;
    if head[0] != VERSION || head[1] != opcode | ANSWER {
        return None;
    }
    Some(match u16::from_be_bytes([head[2], head[3]]) {
        0 => None,
        2 => Some(Denied::NotAuthorized),
        3 => Some(Denied::NoNetwork),
        4 => Some(Denied::Full),
        code => Some(Denied::Code(code)),
    })
}
