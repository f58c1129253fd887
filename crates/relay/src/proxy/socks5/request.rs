//! The request: a command and an address (RFC 1928 sections 4 and 5).

use std::net::IpAddr;

use super::{IPV4, IPV6, NAME, VERSION};
use crate::proxy::{Decoded, Endpoint, Fault, Host};

/// The size of the longest address, in bytes: its type, the length of a name, a name, the port.
pub(crate) const ADDRESS_MAX: usize = 1 + 1 + 255 + 2;

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Connect,
    Associate,
    /// BIND, or an unknown command.
    Other,
}

/// An address, or why it is not usable as a destination.
pub(crate) type Asked = Result<Endpoint, Fault>;

/// A request. The address of a complete request may be unusable: then the request gets a reply with
/// the error, like an unknown command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) address: Asked,
}

/// Decodes a request. The reserved byte may have any value.
pub(crate) fn request(bytes: &[u8]) -> Decoded<Request> {
    let command = match bytes {
        [] | [VERSION] => return Decoded::More,
        [VERSION, 1, ..] => Command::Connect,
        [VERSION, 3, ..] => Command::Associate,
        [VERSION, ..] => Command::Other,
        _ => return Decoded::Bad(Fault::Protocol),
    };
    match address(bytes.get(3..).unwrap_or_default()) {
        Decoded::More => Decoded::More,
        Decoded::Done(address, length) => Decoded::Done(Request { command, address }, 3 + length),
        // The length of an address of unknown type is unknown. The request is the last message of
        // the handshake.
        Decoded::Bad(fault) => Decoded::Done(Request { command, address: Err(fault) }, bytes.len()),
    }
}

/// The length of an address, from its type to its port.
pub(super) fn span(bytes: &[u8]) -> Decoded<()> {
    let length = match bytes {
        [] | [NAME] => return Decoded::More,
        [IPV4, ..] => 1 + 4 + 2,
        [IPV6, ..] => 1 + 16 + 2,
        [NAME, length, ..] => 2 + usize::from(*length) + 2,
        _ => return Decoded::Bad(Fault::AddressType),
    };
    if bytes.len() < length { Decoded::More } else { Decoded::Done((), length) }
}

/// Decodes an address, from its type to its port.
pub(super) fn address(bytes: &[u8]) -> Decoded<Asked> {
    let length = match span(bytes) {
        Decoded::Done((), length) => length,
        Decoded::More => return Decoded::More,
        Decoded::Bad(fault) => return Decoded::Bad(fault),
    };
    let endpoint = match &bytes[..length] {
        [NAME, _, host @ .., high, low] => Endpoint::new(host, u16::from_be_bytes([*high, *low])),
        [_, host @ .., high, low] => ip(host)
            .map(|ip| Endpoint { host: Host::Ip(ip), port: u16::from_be_bytes([*high, *low]) }),
        _ => None,
    };
    Decoded::Done(endpoint.ok_or(Fault::Target), length)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Encodes an address, from its type to its port.
#[cfg(test)]
pub(crate) fn put_endpoint(out: &mut Vec<u8>, endpoint: &Endpoint) {
    match &endpoint.host {
        Host::Ip(IpAddr::V4(ip)) => {
            out.push(IPV4);
            out.extend_from_slice(&ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            out.push(IPV6);
            out.extend_from_slice(&ip.octets());
        }
        Host::Name(name) => {
            // A name has at most 254 bytes.
            let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
            out.extend_from_slice(&[NAME, length]);
            out.extend_from_slice(&name.as_bytes()[..usize::from(length)]);
        }
    }
    out.extend_from_slice(&endpoint.port.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint() -> impl Strategy<Value = Endpoint> {
        let name = "[a-z0-9]([a-z0-9_-]{0,60}[a-z]\\.){0,3}[a-z]{1,20}";
        let host = prop_oneof![any::<IpAddr>().prop_map(Host::Ip), name.prop_map(Host::Name)];
        (host, any::<u16>()).prop_map(|(host, port)| Endpoint { host, port })
    }

    proptest! {
        #[test]
        fn a_request_is_known_with_its_last_byte_and_not_before(
            endpoint in endpoint(), command in 1_u8..=3, reserved: u8
        ) {
            let mut bytes = vec![VERSION, command, reserved];
            put_endpoint(&mut bytes, &endpoint);
            for length in 0..bytes.len() {
                prop_assert_eq!(request(&bytes[..length]), Decoded::More);
            }
            let length = bytes.len();
            prop_assert!(length <= 3 + ADDRESS_MAX);
            let command = match command {
                1 => Command::Connect,
                3 => Command::Associate,
                _ => Command::Other,
            };
            let expected = Decoded::Done(Request { command, address: Ok(endpoint) }, length);
            prop_assert_eq!(&request(&bytes), &expected);
            bytes.extend_from_slice(b"rest");
            prop_assert_eq!(request(&bytes), expected);
        }

        #[test]
        fn no_bytes_are_more_than_a_request(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Decoded::Done(_, length) = request(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }

    #[test]
    fn an_address_in_text_is_an_address() {
        let mut bytes = vec![VERSION, 1, 0, NAME, 9];
        bytes.extend_from_slice(b"127.0.0.1\x00\x50");
        let Decoded::Done(request, 16) = request(&bytes) else { panic!("no request") };
        assert_eq!(request.address.unwrap().to_string(), "127.0.0.1:80");
    }

    #[test]
    fn an_unusable_address_still_gets_a_reply() {
        let bad = |bytes: &[u8]| match request(bytes) {
            Decoded::Done(request, length) => (request.address.unwrap_err(), length),
            other @ (Decoded::More | Decoded::Bad(_)) => panic!("{other:?}"),
        };
        assert_eq!(bad(&[5, 1, 0, 2]), (Fault::AddressType, 4));
        assert_eq!(bad(b"\x05\x01\x00\x03\x03a b\x00\x50"), (Fault::Target, 10));
        assert_eq!(bad(b"\x05\x01\x00\x03\x00\x00\x50"), (Fault::Target, 7));
        assert_eq!(request(&[1, 1, 0]), Decoded::Bad(Fault::Protocol));
    }
}
