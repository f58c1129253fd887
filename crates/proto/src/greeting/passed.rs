//! A greeting that one node of a cluster has begun and another node continues.
//!
//! A client behind a balancer that has lost a carrier may reach a node without its link. That node
//! has sent its nonce, has authenticated the client, and then passes the connection on to the node
//! with the link, as the bytes of a stream. The nonce and the channel binding enter the proofs of
//! both ends, so the other node needs both: it verifies everything itself, and signs what the
//! client expects.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{Binding, NONCE_LENGTH};
use crate::wire::Reader;

const FLAG_BOUND: u8 = 1;
const FLAG_CERTIFICATE: u8 = 2;

/// The longest name of a transport, in bytes.
const TRANSPORT_MAX: usize = 16;

/// What precedes the bytes of the client in the stream: `length u16`, then flags u8, nonce,
/// exporter (if bound), `length u8 | name` of the transport. Further bytes are of a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedGreeting {
    /// The nonce that was sent to the client.
    pub nonce: [u8; NONCE_LENGTH],
    /// The TLS session of the connection of the client.
    pub binding: Binding,
    /// Whether the client has shown a verified certificate with its name.
    pub certificate: bool,
    /// The scheme of the transport of the client, of at most 16 bytes.
    pub transport: String,
}

impl PassedGreeting {
    /// The length of the length.
    pub const HEAD: usize = 2;

    /// The most bytes behind the length.
    pub const MAX: usize = 512;

    /// The bytes with their length. `None`: the name of the transport is too long.
    #[must_use]
    pub fn encode(&self) -> Option<Bytes> {
        let flag = |set, bit| if set { bit } else { 0 };
        let mut body = BytesMut::new();
        let certificate = flag(self.certificate, FLAG_CERTIFICATE);
        body.put_u8(flag(self.binding.is_bound(), FLAG_BOUND) | certificate);
        body.put_slice(&self.nonce);
        if let Binding::Exporter(exporter) = &self.binding {
            body.put_slice(exporter);
        }
        let name = self.transport.as_bytes();
        body.put_u8(u8::try_from(name.len()).ok().filter(|_| name.len() <= TRANSPORT_MAX)?);
        body.put_slice(name);
        let mut out = BytesMut::new();
        out.put_u16(u16::try_from(body.len()).ok()?);
        out.unsplit(body);
        Some(out.freeze())
    }

    /// The length that precedes the bytes. `None`: more than [`PassedGreeting::MAX`] bytes.
    #[must_use]
    pub fn length(head: [u8; Self::HEAD]) -> Option<usize> {
        Some(usize::from(u16::from_be_bytes(head))).filter(|length| *length <= Self::MAX)
    }

    /// Reads the bytes behind the length. `None`: they are malformed.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<Self> {
        let mut body = Reader::new(body);
        let flags = body.u8().ok()?;
        let nonce = body.array().ok()?;
        let binding = if flags & FLAG_BOUND == 0 {
            Binding::None
        } else {
            Binding::Exporter(body.array().ok()?)
        };
        let length = body.u8().ok()?;
        let transport = Reader::new(body.take(length.into()).ok()?);
        let transport = transport.text(TRANSPORT_MAX).ok()?.to_owned();
        Some(Self { nonce, binding, certificate: flags & FLAG_CERTIFICATE != 0, transport })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(binding: Binding) -> PassedGreeting {
        let transport = "wss".to_owned();
        PassedGreeting { nonce: [5; 32], binding, certificate: true, transport }
    }

    #[test]
    fn what_is_passed_is_read_again_and_bytes_of_a_newer_version_are_skipped() {
        for binding in [Binding::None, Binding::Exporter([7; 32])] {
            let passed = passed(binding);
            let bytes = passed.encode().unwrap();
            let (head, body) = bytes.split_first_chunk().unwrap();
            assert_eq!(PassedGreeting::length(*head), Some(body.len()));
            assert_eq!(PassedGreeting::decode(body).as_ref(), Some(&passed));
            let newer = [body, &[9; 20]].concat();
            assert_eq!(PassedGreeting::decode(&newer).as_ref(), Some(&passed));
            for cut in 0..body.len() {
                assert_eq!(PassedGreeting::decode(&body[..cut]), None, "{cut}");
            }
        }
    }

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(PassedGreeting::length([2, 0]), Some(512));
        assert_eq!(PassedGreeting::length([2, 1]), None);
        let long = PassedGreeting { transport: "x".repeat(17), ..passed(Binding::None) };
        assert_eq!(long.encode(), None);
        let mut body = passed(Binding::None).encode().unwrap()[2..].to_vec();
        body[33] = 17;
        body.extend([b'x'; 17]);
        assert_eq!(PassedGreeting::decode(&body), None);
    }
}
