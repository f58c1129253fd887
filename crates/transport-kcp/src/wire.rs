//! The packets of the handshake, besides those of sessions (`kcp::own::wire`). Offset 1 of each
//! packet holds a connection id; in a packet to a server it is the server's id, whose first byte is
//! the worker (`net::udp` steers by it).
//!
//! ```text
//! Hello    0x40 | wanted worker 1, random 7 | version 1 | client id 8 | zeros to 1,200 bytes
//! Cookie   0x41 | client id 8 | version 1 | server id 8 | epoch 4 | proof 16
//! Opening  0x42 | server id 8 | client id 8 | epoch 4 | proof 16 | a bootstrap packet
//! Reset    0x43 | server id 8 | token 16
//! ```
//!
//! All integers are big endian. A Hello is longer than every response to it, so that a forged
//! source address causes no amplification. A client prefixes its bootstrap packets with an Opening
//! until it hears a bootstrap packet of the server. A Reset answers a sealed packet of a connection
//! that the server does not know; the client knows the token from the lane (`lane.rs`).

use kcp::own::wire::ConnectionId;

/// The version of the handshake and of the packets.
pub(crate) const VERSION: u8 = 1;

const KIND_HELLO: u8 = 0x40;
const KIND_COOKIE: u8 = 0x41;
const KIND_OPENING: u8 = 0x42;
const KIND_RESET: u8 = 0x43;

/// Bytes of a Hello: the smallest UDP payload that every path of QUIC carries as well (RFC 9000
/// section 14).
pub(crate) const HELLO: usize = 1_200;

/// Bytes of a Cookie.
pub(crate) const COOKIE: usize = 38;

/// Bytes of an Opening in front of the bootstrap packet.
pub(crate) const OPENING_HEAD: usize = 37;

/// Bytes of a Reset.
pub(crate) const RESET: usize = 25;

/// Bytes of a proof or a token.
pub(crate) const PROOF: usize = 16;

/// The proof that a client receives at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// The time, in steps of 10 s.
    pub(crate) epoch: u32,
    pub(crate) proof: [u8; PROOF],
}

/// A packet of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Hello {
        wanted: ConnectionId,
        version: u8,
        client: ConnectionId,
    },
    Cookie {
        client: ConnectionId,
        version: u8,
        server: ConnectionId,
        cookie: Cookie,
    },
    /// A bootstrap packet follows at [`OPENING_HEAD`].
    Opening {
        server: ConnectionId,
        client: ConnectionId,
        cookie: Cookie,
    },
    Reset {
        server: ConnectionId,
        token: [u8; PROOF],
    },
}

impl Packet {
    /// Appends the packet.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        match self {
            Self::Hello { wanted, version, client } => {
                to.push(KIND_HELLO);
                to.extend(wanted.0);
                to.push(*version);
                to.extend(client.0);
                to.resize(start + HELLO, 0);
            }
            Self::Cookie { client, version, server, cookie } => {
                to.push(KIND_COOKIE);
                to.extend(client.0);
                to.push(*version);
                to.extend(server.0);
                cookie.encode(to);
            }
            Self::Opening { server, client, cookie } => {
                to.push(KIND_OPENING);
                to.extend(server.0);
                to.extend(client.0);
                cookie.encode(to);
            }
            Self::Reset { server, token } => {
                to.push(KIND_RESET);
                to.extend(server.0);
                to.extend(token);
            }
        }
    }

    /// Reads a packet of the handshake. `None`: the datagram is another packet.
    pub(crate) fn decode(datagram: &[u8]) -> Option<Self> {
        let (kind, rest) = datagram.split_first()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let first = ConnectionId(*first);
        match *kind {
            KIND_HELLO if datagram.len() >= HELLO => {
                let (version, rest) = rest.split_first()?;
                let client = ConnectionId(*rest.first_chunk::<8>()?);
                Some(Self::Hello { wanted: first, version: *version, client })
            }
            KIND_COOKIE => {
                let (version, rest) = rest.split_first()?;
                let (server, rest) = rest.split_first_chunk::<8>()?;
                let (server, cookie) = (ConnectionId(*server), Cookie::decode(rest)?);
                Some(Self::Cookie { client: first, version: *version, server, cookie })
            }
            KIND_OPENING => {
                let (client, rest) = rest.split_first_chunk::<8>()?;
                let (client, cookie) = (ConnectionId(*client), Cookie::decode(rest)?);
                Some(Self::Opening { server: first, client, cookie })
            }
            KIND_RESET => Some(Self::Reset { server: first, token: *rest.first_chunk()? }),
            _ => None,
        }
    }
}

impl Cookie {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.epoch.to_be_bytes());
        to.extend(self.proof);
    }

    fn decode(from: &[u8]) -> Option<Self> {
        let (epoch, rest) = from.split_first_chunk::<4>()?;
        Some(Self { epoch: u32::from_be_bytes(*epoch), proof: *rest.first_chunk()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId([1, 2, 3, 4, 5, 6, 7, 8]);
    const OTHER: ConnectionId = ConnectionId([9; 8]);

    fn all() -> [(Packet, usize); 4] {
        let cookie = Cookie { epoch: 0xfedc_ba98, proof: [7; PROOF] };
        [
            (Packet::Hello { wanted: ONE, version: VERSION, client: OTHER }, HELLO),
            (Packet::Cookie { client: ONE, version: VERSION, server: OTHER, cookie }, COOKIE),
            (Packet::Opening { server: ONE, client: OTHER, cookie }, OPENING_HEAD),
            (Packet::Reset { server: ONE, token: [8; PROOF] }, RESET),
        ]
    }

    #[test]
    fn a_packet_is_read_as_it_was_written_and_a_shorter_one_is_none() {
        for (packet, length) in all() {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            assert_eq!(bytes.len(), length, "{packet:?}");
            assert_eq!(bytes[1..9], ONE.0, "the id stands at offset 1");
            assert_eq!(Packet::decode(&bytes), Some(packet));
            for short in 0..length {
                assert_eq!(Packet::decode(&bytes[..short]), None, "{packet:?}, {short} bytes");
            }
        }
    }

    #[test]
    fn no_answer_to_a_stranger_is_longer_than_what_it_answers() {
        const { assert!(COOKIE <= HELLO) }
        // A Reset answers a sealed packet: head, flags and tag.
        const { assert!(RESET <= kcp::own::wire::PACKET_HEAD + 1 + 16) }
    }
}
