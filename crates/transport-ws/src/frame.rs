//! The heads of WebSocket frames (RFC 6455 section 5.2) and the status codes of Close (section
//! 7.4).

/// The longest head: two bytes, 64 bits of length, the masking key.
pub(crate) const HEAD_MAX: usize = 14;

/// The longest payload of a control frame (section 5.5).
pub(crate) const CONTROL_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    /// Whether a frame of this type may stand between the fragments of a message.
    pub(crate) const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// A status code that this end sends in a Close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The connection has served its purpose.
    Normal,
    /// The peer broke a rule of RFC 6455.
    Protocol,
    /// The peer sent a type of message that this end does not accept: text.
    Unsupported,
    /// The reason of a Close is not UTF-8.
    Invalid,
    /// A message is longer than the limit.
    TooBig,
}

impl Code {
    /// The number of the code (section 7.4.1).
    pub(crate) const fn number(self) -> u16 {
        match self {
            Self::Normal => 1000,
            Self::Protocol => 1002,
            Self::Unsupported => 1003,
            Self::Invalid => 1007,
            Self::TooBig => 1009,
        }
    }
}

/// Whether an endpoint may send this status code (section 7.4 and the registry of IANA).
pub(crate) const fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// The head of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The frame is the last of its message.
    pub(crate) fin: bool,
    pub(crate) opcode: Opcode,
    /// The length of the payload, in bytes.
    pub(crate) length: u64,
    /// The masking key.
    pub(crate) mask: Option<[u8; 4]>,
}

/// The bytes are no valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// A reserved bit is set, and no extension was agreed on.
    Reserved,
    Opcode(u8),
    /// The length is not in its shortest form, or its highest bit of 64 is set.
    Length,
}

impl Head {
    /// The length of the head that begins with `start`; at least 2 until the second byte is known.
    pub(crate) fn size(start: &[u8]) -> usize {
        let Some(&second) = start.get(1) else { return 2 };
        let length = match second & LENGTH {
            LENGTH_16 => 2,
            LENGTH_64 => 8,
            _ => 0,
        };
        2 + length + if second & MASKED == 0 { 0 } else { 4 }
    }

    /// Decodes a head of [`Head::size`] bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let [first, second, rest @ ..] = bytes else { return Err(Malformed::Length) };
        if first & RESERVED != 0 {
            return Err(Malformed::Reserved);
        }
        let bits = first & OPCODE;
        let opcode = Opcode::from_bits(bits).ok_or(Malformed::Opcode(bits))?;
        let (length, rest) = match second & LENGTH {
            LENGTH_16 => {
                let (length, rest) = rest.split_first_chunk().ok_or(Malformed::Length)?;
                let length = u64::from(u16::from_be_bytes(*length));
                (Some(length).filter(|&length| length > 125), rest)
            }
            LENGTH_64 => {
                let (length, rest) = rest.split_first_chunk().ok_or(Malformed::Length)?;
                let length = u64::from_be_bytes(*length);
                let is_shortest = length > u64::from(u16::MAX) && length >> 63 == 0;
                (Some(length).filter(|_| is_shortest), rest)
            }
            short => (Some(u64::from(short)), rest),
        };
        let mask = if second & MASKED == 0 { None } else { rest.first_chunk().copied() };
        let length = length.ok_or(Malformed::Length)?;
        Ok(Self { fin: first & FIN != 0, opcode, length, mask })
    }

    /// Encodes the head; returns a buffer and the number of bytes used in it.
    pub(crate) fn encode(&self) -> ([u8; HEAD_MAX], usize) {
        let mut bytes = [0; HEAD_MAX];
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        bytes[0] = if self.fin { FIN } else { 0 } | self.opcode.bits();
        let mut size = 2;
        if let Some(short) = u8::try_from(self.length).ok().filter(|&length| length <= 125) {
            bytes[1] = masked | short;
        } else if let Ok(length) = u16::try_from(self.length) {
            bytes[1] = masked | LENGTH_16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            size = 4;
        } else {
            bytes[1] = masked | LENGTH_64;
            bytes[2..10].copy_from_slice(&self.length.to_be_bytes());
            size = 10;
        }
        if let Some(mask) = self.mask {
            bytes[size..size + 4].copy_from_slice(&mask);
            size += 4;
        }
        (bytes, size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPCODES: [Opcode; 6] = [
        Opcode::Continuation,
        Opcode::Text,
        Opcode::Binary,
        Opcode::Close,
        Opcode::Ping,
        Opcode::Pong,
    ];

    proptest! {
        #[test]
        fn a_head_reads_back(fin: bool, opcode in 0_usize..6, bits in 0_u32..64, mask: Option<[u8; 4]>) {
            for length in [(1_u64 << bits) - 1, 1 << bits] {
                let length = length.min(u64::MAX >> 1);
                let head = Head { fin, opcode: OPCODES[opcode], length, mask };
                let (bytes, size) = head.encode();
                prop_assert_eq!(Head::size(&bytes), size);
                prop_assert_eq!(Head::decode(&bytes[..size]), Ok(head));
            }
        }

        #[test]
        fn no_bytes_panic(bytes: [u8; HEAD_MAX]) {
            let size = Head::size(&bytes);
            if let Ok(head) = Head::decode(&bytes[..size]) {
                let (again, length) = head.encode();
                prop_assert_eq!(&again[..length], &bytes[..size]);
            }
        }
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // Cases of section 5.7: a single-frame masked text, an unmasked ping, 256 bytes and 64 KiB
        // of binary data.
        let cases: [(&[u8], Opcode, u64, bool); 4] = [
            (&[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d], Opcode::Text, 5, true),
            (&[0x89, 0x05], Opcode::Ping, 5, false),
            (&[0x82, 0x7e, 0x01, 0x00], Opcode::Binary, 256, false),
            (&[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0], Opcode::Binary, 65_536, false),
        ];
        for (bytes, opcode, length, masked) in cases {
            let head = Head::decode(bytes).unwrap();
            assert_eq!((head.fin, head.opcode, head.length), (true, opcode, length));
            assert_eq!(head.mask.is_some(), masked);
        }
    }

    #[test]
    fn a_length_has_one_form() {
        for bytes in [&[0x82, 126, 0, 125][..], &[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff]] {
            assert_eq!(Head::decode(bytes), Err(Malformed::Length));
        }
        assert_eq!(Head::decode(&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed::Length));
    }
}
