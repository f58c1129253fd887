//! The header of a packet, which is not encrypted.

use super::{ConnectionId, Malformed, PacketNumber};

/// Length of the header, in bytes.
pub const PACKET_HEAD: usize = 17;

/// The type of a sealed packet; the lowest bit is the phase of its keys.
const SEALED: u8 = 0x50;

/// The type of a bootstrap packet. Other values are available for the cookie exchange.
const BOOTSTRAP: u8 = 0x52;

/// The session of a connection to which a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// The session that carries the TLS handshake.
    Bootstrap,
    /// The session that the keys of the handshake protect.
    Sealed,
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// The session of the connection.
    pub kind: PacketKind,
    /// Changes with each key update; `false` in a bootstrap packet.
    pub phase: bool,
    /// The connection id that the receiver has chosen.
    pub connection: ConnectionId,
    /// The packet number, from which the nonce is computed.
    pub number: PacketNumber,
}

impl PacketHead {
    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_HEAD] {
        let mut bytes = [0; PACKET_HEAD];
        bytes[0] = match self.kind {
            PacketKind::Bootstrap => BOOTSTRAP,
            PacketKind::Sealed => SEALED | u8::from(self.phase),
        };
        bytes[1..9].copy_from_slice(&self.connection.0);
        bytes[9..].copy_from_slice(&self.number.0.to_be_bytes());
        bytes
    }

    /// Decodes the header of a packet.
    ///
    /// # Errors
    ///
    /// The packet has an unknown kind, or is shorter than a header.
    pub fn decode(packet: &[u8]) -> Result<Self, Malformed> {
        let (head, _) = packet.split_first_chunk::<PACKET_HEAD>().ok_or(Malformed)?;
        let [kind, c0, c1, c2, c3, c4, c5, c6, c7, number @ ..] = *head;
        let (kind, phase) = match kind {
            BOOTSTRAP => (PacketKind::Bootstrap, false),
            _ if kind & !1 == SEALED => (PacketKind::Sealed, kind & 1 != 0),
            _ => return Err(Malformed),
        };
        Ok(Self {
            kind,
            phase,
            connection: ConnectionId([c0, c1, c2, c3, c4, c5, c6, c7]),
            number: PacketNumber(u64::from_be_bytes(number)),
        })
    }
}

/// The kind and the connection of a packet, by which a demultiplexer finds the session. `None` if
/// the datagram is not a packet of this project.
#[must_use]
pub fn peek(datagram: &[u8]) -> Option<(PacketKind, ConnectionId)> {
    PacketHead::decode(datagram).ok().map(|head| (head.kind, head.connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let connection = ConnectionId([1, 2, 3, 4, 5, 6, 7, 8]);
        let kinds = [
            (PacketKind::Sealed, false),
            (PacketKind::Sealed, true),
            (PacketKind::Bootstrap, false),
        ];
        for (kind, phase) in kinds {
            let head = PacketHead { kind, phase, connection, number: PacketNumber(u64::MAX - 7) };
            assert_eq!(PacketHead::decode(&head.encode()), Ok(head));
            assert_eq!(PacketHead::decode(&head.encode()[..16]), Err(Malformed));
            assert_eq!(peek(&head.encode()), Some((kind, connection)));
            assert_eq!(peek(&head.encode()[..16]), None);
        }
        for other in [0x40, 0x53, 0xd0, 0] {
            assert_eq!(peek(&[other; 40]), None);
        }
    }
}
