//! The reply to a request (RFC 1928 section 6).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use proto::ResetCode;

use super::{IPV4, IPV6, VERSION};
use crate::proxy::Fault;

/// The outcome of a request, with the protocol's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Succeeded = 0,
    /// A general failure.
    Failure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    /// No answer in time.
    Expired = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl From<ResetCode> for Reply {
    fn from(code: ResetCode) -> Self {
        match code {
            ResetCode::Refused => Self::Refused,
            ResetCode::Unreachable => Self::HostUnreachable,
            ResetCode::Timeout => Self::Expired,
            ResetCode::Denied => Self::NotAllowed,
            // There is currently no link to the other side.
            ResetCode::Shutdown | ResetCode::Moved => Self::NetworkUnreachable,
            ResetCode::Aborted
            | ResetCode::Limit
            | ResetCode::Unknown
            | ResetCode::Internal
            | ResetCode::Other(_) => Self::Failure,
        }
    }
}

impl From<Fault> for Reply {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Command => Self::CommandNotSupported,
            Fault::AddressType => Self::AddressNotSupported,
            Fault::Target => Self::HostUnreachable,
            Fault::Denied | Fault::Busy | Fault::Unauthenticated | Fault::Method(_) => {
                Self::NotAllowed
            }
            Fault::Socks4
            | Fault::HttpAtSocks
            | Fault::SocksAtHttp
            | Fault::Protocol
            | Fault::Password
            | Fault::OriginForm
            | Fault::Https
            | Fault::Scheme
            | Fault::Address
            | Fault::Request(_)
            | Fault::Malformed
            | Fault::Size => Self::Failure,
        }
    }
}

/// Encodes a reply. `bound` is the address to which a program sends datagrams. For a connection the
/// address is `0.0.0.0:0`, because the socket is on the other side and no program needs its
/// address.
pub(crate) fn reply(reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
    let bound = bound.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into());
    let mut bytes = vec![VERSION, reply as u8, 0];
    match bound.ip() {
        IpAddr::V4(ip) => {
            bytes.push(IPV4);
            bytes.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes.push(IPV6);
            bytes.extend_from_slice(&ip.octets());
        }
    }
    bytes.extend_from_slice(&bound.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_tells_the_reason_and_the_address() {
        assert_eq!(reply(Reply::Succeeded, None), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let bound = "127.0.0.1:1080".parse().unwrap();
        assert_eq!(reply(Reply::Succeeded, Some(bound)), [5, 0, 0, 1, 127, 0, 0, 1, 4, 56]);
        let bound = "[::1]:256".parse().unwrap();
        let bytes = reply(Reply::Succeeded, Some(bound));
        assert_eq!((&bytes[..4], &bytes[19..]), (&[5, 0, 0, 4][..], &[1, 1, 0][..]));
        for (code, number) in [
            (ResetCode::Refused, 5),
            (ResetCode::Unreachable, 4),
            (ResetCode::Timeout, 6),
            (ResetCode::Denied, 2),
            (ResetCode::Shutdown, 3),
            (ResetCode::Limit, 1),
            (ResetCode::Other(77), 1),
        ] {
            assert_eq!(reply(code.into(), None)[1], number, "{code}");
        }
        assert_eq!(reply(Fault::Command.into(), None)[1], 7);
        assert_eq!(reply(Fault::AddressType.into(), None)[1], 8);
    }
}
