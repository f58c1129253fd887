//! The header of a datagram between a program and this end (RFC 1928 section 7).

use super::request::{Asked, address, span};
use crate::proxy::{Decoded, Fault};

/// The number of bytes before the address: two reserved bytes and the fragment number.
const FRONT: usize = 3;

/// A datagram of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    /// The encoded address, from its type to its port. Replies carry the same bytes, by which the
    /// program identifies its peer. (For a name the RFC requires the peer's address, which only the
    /// other side knows.)
    pub(crate) address: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl Datagram<'_> {
    /// The requested address.
    pub(crate) fn asked(&self) -> Asked {
        match address(self.address) {
            Decoded::Done(asked, _) => asked,
            Decoded::More => Err(Fault::Target),
            Decoded::Bad(fault) => Err(fault),
        }
    }
}

/// Decodes a datagram. `None`: it is no SOCKS5 datagram, or a fragment. An implementation without
/// fragments must drop them.
pub(crate) fn datagram(bytes: &[u8]) -> Option<Datagram<'_>> {
    let [_, _, fragment, rest @ ..] = bytes else { return None };
    if *fragment != 0 {
        return None;
    }
    match span(rest) {
        Decoded::Done((), length) => {
            let (address, payload) = rest.split_at(length);
            Some(Datagram { address, payload })
        }
        Decoded::More | Decoded::Bad(_) => None,
    }
}

/// Appends the header of a datagram from `address` to `out`, before the payload.
pub(crate) fn put_header(out: &mut Vec<u8>, address: &[u8]) {
    out.extend_from_slice(&[0; FRONT]);
    out.extend_from_slice(address);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_taken_off_and_put_back_unchanged() {
        for bytes in [
            &b"\0\0\0\x01\x7f\0\0\x01\0\x35payload"[..],
            b"\0\0\0\x03\x0bexample.com\0\x35",
            b"\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbbx",
        ] {
            let decoded = datagram(bytes).unwrap();
            let mut again = Vec::new();
            put_header(&mut again, decoded.address);
            again.extend_from_slice(decoded.payload);
            assert_eq!(again, bytes);
        }
        let decoded = datagram(b"\0\0\0\x03\x0bexample.com\0\x35hello").unwrap();
        assert_eq!(decoded.asked().unwrap().to_string(), "example.com:53");
        assert_eq!(decoded.payload, b"hello");
    }

    #[test]
    fn fragments_and_cut_headers_are_dropped() {
        let whole = b"\0\0\0\x03\x0bexample.com\0\x35";
        for length in 0..whole.len() {
            assert_eq!(datagram(&whole[..length]), None, "{length}");
        }
        assert!(datagram(whole).is_some());
        assert_eq!(datagram(b"\0\0\x01\x01\x7f\0\0\x01\0\x35x"), None);
        assert_eq!(datagram(b"\0\0\0\x02\x7f\0\0\x01\0\x35x"), None);
    }
}
