//! The encrypted content of a packet.

use super::ack::Ack;
use super::reader::Reader;
use super::{Group, Malformed};
use crate::own::fec::{Load, SIZE};

/// Bytes of a data shard in front of its segments.
pub const SHARD_HEAD: usize = 3;

/// Bytes of a parity shard in front of the parity.
pub const PARITY_HEAD: usize = 4;

/// Padding after the flags of a padded packet, in bytes: with it a full data shard is as long as
/// its parity, because one system call sends packets of one length (UDP GSO).
pub const PAD: usize = PARITY_HEAD + SIZE - SHARD_HEAD;

/// The bits of the flags: three bits for the body, then bits for the parts in front of the body.
const BODY: u8 = 7;
const HAS_ACK: u8 = 8;
const ASKS: u8 = 16;
const HAS_CONGESTED: u8 = 32;
const PADDED: u8 = 64;

/// The values of the body.
const EMPTY: u8 = 0;
const SEGMENTS: u8 = 1;
const DATA: u8 = 2;
const PARITY: u8 = 3;
const DATAGRAM: u8 = 4;
const DATAGRAM_SHARD: u8 = 5;
const SIGNAL: u8 = 6;

/// The values of a signal.
const CHALLENGE: u8 = 0;
const ANSWER: u8 = 1;
const CLOSE: u8 = 2;
const PADDING: u8 = 3;

/// Maximum length of the reason in a close packet, in bytes.
pub const REASON: usize = 200;

/// The bit of `k` that ends a group.
const FINAL: u8 = 0x80;

/// The position of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The group.
    pub group: Group,
    /// The position among the data shards of the group, or among its parity shards.
    pub index: u8,
}

/// The last part of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Nothing.
    Empty,
    /// A datagram of the user that no group protects. It is not retransmitted.
    Datagram(&'a [u8]),
    /// Segments that no group protects.
    Segments(&'a [u8]),
    /// A data shard of a group: segments, or a datagram of the user, which is not retransmitted.
    Data(Shard, Load, &'a [u8]),
    /// Parity of the first `k` data shards of a group.
    Parity {
        /// The group, and the position among the parity shards.
        shard: Shard,
        /// The number of data shards in the sum.
        k: u8,
        /// No data shard follows in the group.
        is_final: bool,
        /// The sum.
        parity: &'a [u8],
    },
    /// The receiver answers with the same bytes, as in RFC 9000 section 8.2.
    Challenge([u8; 8]),
    /// The bytes of a challenge.
    Answer([u8; 8]),
    /// The connection is closed.
    Close {
        /// The machine-readable reason.
        code: u16,
        /// The human-readable reason: at most [`REASON`] bytes.
        reason: &'a [u8],
    },
    /// Padding of a packet to a size.
    Padding(&'a [u8]),
}

/// Requests of the sender in addition to the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The packet must be acknowledged at once, regardless of its body.
    pub asks: bool,
    /// The packet has [`PAD`] bytes of padding.
    pub is_padded: bool,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// The acknowledgement of packets that the receiver of this packet has sent.
    pub ack: Option<Ack>,
    /// The requests of the sender.
    pub control: Control,
    /// The body.
    pub body: Body<'a>,
}

impl<'a> Content<'a> {
    /// Appends the flags and all fields in front of the payload of the body. The caller appends the
    /// payload.
    pub fn put_head(ack: Option<&Ack>, control: Control, body: &Body<'_>, to: &mut Vec<u8>) {
        let kind = match body {
            Body::Empty => EMPTY,
            Body::Datagram(_) => DATAGRAM,
            Body::Segments(_) => SEGMENTS,
            Body::Data(_, Load::Segments, _) => DATA,
            Body::Data(_, Load::Datagram, _) => DATAGRAM_SHARD,
            Body::Parity { .. } => PARITY,
            Body::Challenge(_) | Body::Answer(_) | Body::Close { .. } | Body::Padding(_) => SIGNAL,
        };
        let has_ack = if ack.is_some() { HAS_ACK } else { 0 };
        let congested = ack.is_some_and(|ack| ack.congested.is_some());
        let has_congested = if congested { HAS_CONGESTED } else { 0 };
        let asks = if control.asks { ASKS } else { 0 };
        let padded = if control.is_padded { PADDED } else { 0 };
        to.push(kind | has_ack | has_congested | asks | padded);
        if control.is_padded {
            to.extend([0; PAD]);
        }
        if let Some(ack) = ack {
            ack.encode(to);
        }
        match body {
            Body::Empty | Body::Datagram(_) | Body::Segments(_) => {}
            Body::Data(shard, ..) => put_shard(*shard, to),
            Body::Parity { shard, k, is_final, .. } => {
                put_shard(*shard, to);
                to.push(*k | if *is_final { FINAL } else { 0 });
            }
            Body::Challenge(bytes) => put_signal(CHALLENGE, bytes, to),
            Body::Answer(bytes) => put_signal(ANSWER, bytes, to),
            Body::Padding(_) => put_signal(PADDING, &[], to),
            Body::Close { code, .. } => put_signal(CLOSE, &code.to_be_bytes(), to),
        }
    }

    /// Reads a content.
    ///
    /// # Errors
    ///
    /// The bytes are not a content.
    pub fn decode(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader(content);
        let flags = from.byte()?;
        let has_congested = flags & HAS_CONGESTED != 0;
        let has_ack = flags & HAS_ACK != 0;
        let known = BODY | HAS_ACK | ASKS | HAS_CONGESTED | PADDED;
        if flags & !known != 0 || (has_congested && !has_ack) {
            return Err(Malformed);
        }
        let control = Control { asks: flags & ASKS != 0, is_padded: flags & PADDED != 0 };
        if control.is_padded {
            from.bytes(PAD)?;
        }
        let ack = if has_ack { Some(Ack::decode(&mut from, has_congested)?) } else { None };
        let body = match flags & BODY {
            EMPTY if from.0.is_empty() => Body::Empty,
            DATAGRAM => Body::Datagram(from.rest()),
            SIGNAL => signal(&mut from)?,
            SEGMENTS => Body::Segments(from.rest()),
            DATA => Body::Data(shard(&mut from)?, Load::Segments, from.rest()),
            DATAGRAM_SHARD => Body::Data(shard(&mut from)?, Load::Datagram, from.rest()),
            PARITY => {
                let (shard, k) = (shard(&mut from)?, from.byte()?);
                let is_final = k & FINAL != 0;
                Body::Parity { shard, k: k & !FINAL, is_final, parity: from.rest() }
            }
            _ => return Err(Malformed),
        };
        Ok(Self { ack, control, body })
    }
}

impl Body<'_> {
    /// Whether this body requires an acknowledgement.
    #[must_use]
    pub const fn is_acknowledged(&self) -> bool {
        match self {
            Self::Empty
            | Self::Challenge(_)
            | Self::Answer(_)
            | Self::Close { .. }
            | Self::Padding(_) => false,
            Self::Datagram(_) | Self::Segments(_) | Self::Data(..) | Self::Parity { .. } => true,
        }
    }
}

fn put_signal(kind: u8, bytes: &[u8], to: &mut Vec<u8>) {
    to.push(kind);
    to.extend_from_slice(bytes);
}

fn signal<'a>(from: &mut Reader<'a>) -> Result<Body<'a>, Malformed> {
    let body = match from.byte()? {
        CHALLENGE => Body::Challenge(from.array()?),
        ANSWER => Body::Answer(from.array()?),
        PADDING => Body::Padding(from.rest()),
        CLOSE if from.0.len() <= 2 + REASON => {
            Body::Close { code: u16::from_be_bytes(from.array()?), reason: from.rest() }
        }
        _ => return Err(Malformed),
    };
    if from.0.is_empty() { Ok(body) } else { Err(Malformed) }
}

fn put_shard(shard: Shard, to: &mut Vec<u8>) {
    to.extend(shard.group.0.to_be_bytes());
    to.push(shard.index);
}

fn shard(from: &mut Reader<'_>) -> Result<Shard, Malformed> {
    Ok(Shard { group: Group(u16::from_be_bytes(from.array()?)), index: from.byte()? })
}

#[cfg(test)]
mod tests {
    use super::super::{PacketNumber, Part, Ranges, Run, Segment, put_segment};
    use super::*;
    use crate::Sn;

    fn ack() -> Ack {
        let (mut arrived, mut rebuilt) = (Ranges::default(), Ranges::default());
        for (gap, length) in [(0, 5), (1, 300), (70, 2)] {
            assert!(arrived.push(gap, length));
        }
        assert!(rebuilt.push(0, 1) && rebuilt.push(3, 2));
        Ack {
            largest: 7,
            delay: 99,
            una: Sn(u32::MAX),
            window: 9,
            arrived,
            rebuilt,
            congested: None,
        }
    }

    #[test]
    fn a_content_is_read_as_it_was_written() {
        let shard = Shard { group: Group(0xfffe), index: 63 };
        let bodies = [
            Body::Empty,
            Body::Datagram(b"hello"),
            Body::Segments(b"hello"),
            Body::Data(shard, Load::Segments, b"hello"),
            Body::Data(shard, Load::Datagram, b"hello"),
            Body::Parity { shard, k: 64, is_final: true, parity: b"hello" },
            Body::Parity { shard, k: 1, is_final: false, parity: b"hello" },
            Body::Challenge(*b"01234567"),
            Body::Answer(*b"01234567"),
            Body::Close { code: 0xfedc, reason: b"hello" },
            Body::Padding(b"hello"),
        ];
        for body in bodies {
            for ack in [None, Some(ack()), Some(Ack { congested: Some(70), ..ack() })] {
                let control = Control { asks: ack.is_none(), is_padded: ack.is_none() };
                let mut bytes = Vec::new();
                Content::put_head(ack.as_ref(), control, &body, &mut bytes);
                if !matches!(body, Body::Empty | Body::Challenge(_) | Body::Answer(_)) {
                    bytes.extend(b"hello");
                }
                assert_eq!(Content::decode(&bytes), Ok(Content { ack, control, body }));
            }
        }
    }

    #[test]
    fn an_acknowledgement_names_packets_and_rebuilt_segments_across_the_wrap() {
        let next = PacketNumber((1 << 32) + 100);
        let top = (1 << 32) + 7;
        let packets: Vec<_> = ack().packets(next).map(|(from, to)| (from.0, to.0)).collect();
        let second = top - 6;
        let third = second - 299 - 71;
        assert_eq!(packets, [(top - 4, top), (second - 299, second), (third - 1, third)]);
        assert_eq!(ack().packets(PacketNumber(8)).count(), 1, "no number is negative");
        assert_eq!(ack().packets(PacketNumber(7)).count(), 0, "7 was not sent yet");
        let segments: Vec<_> = ack().segments().collect();
        assert_eq!(segments, [(Sn(u32::MAX), 1), (Sn(3), 2)]);
    }

    /// The layout is that of the table of the module.
    #[test]
    fn acknowledgements_are_as_short_as_they_are_said_to_be() {
        let length = |ranges: &[(u32, u32)]| {
            let mut arrived = Ranges::default();
            assert!(ranges.iter().all(|(gap, length)| arrived.push(*gap, *length)));
            let rebuilt = Ranges::default();
            let (una, congested) = (Sn(9), None);
            let ack = Ack { largest: 99, delay: 60, una, window: 99, arrived, rebuilt, congested };
            let mut bytes = Vec::new();
            Content::put_head(Some(&ack), Control::default(), &Body::Empty, &mut bytes);
            bytes.len() + 33
        };
        assert_eq!(length(&[(0, 1)]), 49);
        let mut ranges = vec![(1, 9); 11];
        ranges[0] = (0, 9);
        assert_eq!(length(&ranges), 69);
    }

    #[test]
    fn segments_of_a_run_follow_each_other_and_the_last_ends_with_the_body() {
        let mut body = vec![0xff; 4];
        let segment = |sn, fragments, payload| Segment {
            sn: Sn(sn),
            fragments,
            is_fin: false,
            part: None,
            payload,
        };
        let part = |offset, follows| Some(Part { offset, follows });
        let fin = Segment { is_fin: true, ..segment(2, 0, b"") };
        let run =
            [segment(u32::MAX, 0, &b"one"[..]), segment(0, 2, b"two"), segment(1, 0, b"three")];
        let begin = Segment { part: part(0, true), ..run[2] };
        let end = Segment { part: part(0x7fff, false), fragments: 3, ..run[2] };
        for last in [run[2], Segment { sn: Sn(1), ..fin }, begin, end] {
            let mut body = body.clone();
            put_segment(&run[0], false, &mut body);
            put_segment(&run[1], false, &mut body);
            put_segment(&last, true, &mut body);
            let read: Vec<_> = Run::new(&body).unwrap().map(Result::unwrap).collect();
            assert_eq!(read, [run[0], run[1], last]);
        }
        for segment in &run {
            put_segment(segment, false, &mut body);
        }
        put_segment(&fin, true, &mut body);
        assert_eq!(Run::new(&body).unwrap().last(), Some(Ok(fin)));
        body.push(0);
        assert_eq!(Run::new(&body).unwrap().last(), Some(Err(Malformed)), "an end has no payload");
        let mut broken = body[..4].to_vec();
        broken.extend([1, 0xff, 0xff, 0]);
        assert_eq!(Run::new(&broken).unwrap().collect::<Vec<_>>(), [Err(Malformed)]);
    }
}
