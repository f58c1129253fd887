//! The head of a packet, which is not encrypted.

use super::{ConnectionId, Malformed, PacketNumber};

/// Bytes of a head.
pub const PACKET_HEAD: usize = 17;

/// The type of a sealed packet: 0x50, and in the lowest bit the phase of its keys. Others are free
/// for the handshake.
const SEALED: u8 = 0x50;

/// The head of a sealed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// Changes with each update of the keys.
    pub phase: bool,
    /// The connection, as the receiver numbers it.
    pub connection: ConnectionId,
    /// The number, of which the nonce is made.
    pub number: PacketNumber,
}

impl PacketHead {
    /// Writes the head.
    #[must_use]
    pub fn encode(self) -> [u8; PACKET_HEAD] {
        let mut bytes = [0; PACKET_HEAD];
        bytes[0] = SEALED | u8::from(self.phase);
        bytes[1..9].copy_from_slice(&self.connection.0);
        bytes[9..].copy_from_slice(&self.number.0.to_be_bytes());
        bytes
    }

    /// Reads the head of a packet.
    ///
    /// # Errors
    ///
    /// The packet is not sealed, or shorter than a head.
    pub fn decode(packet: &[u8]) -> Result<Self, Malformed> {
        let (head, _) = packet.split_first_chunk::<PACKET_HEAD>().ok_or(Malformed)?;
        let [kind, c0, c1, c2, c3, c4, c5, c6, c7, number @ ..] = *head;
        if kind & !1 != SEALED {
            return Err(Malformed);
        }
        Ok(Self {
            phase: kind & 1 != 0,
            connection: ConnectionId([c0, c1, c2, c3, c4, c5, c6, c7]),
            number: PacketNumber(u64::from_be_bytes(number)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for phase in [false, true] {
            let connection = ConnectionId([1, 2, 3, 4, 5, 6, 7, 8]);
            let head = PacketHead { phase, connection, number: PacketNumber(u64::MAX - 7) };
            assert_eq!(PacketHead::decode(&head.encode()), Ok(head));
            assert_eq!(PacketHead::decode(&head.encode()[..16]), Err(Malformed));
        }
        assert_eq!(PacketHead::decode(&[0x40; 40]), Err(Malformed));
    }
}
