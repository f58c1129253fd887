//! Segments: a head of 24 bytes, and after PUSH a payload.
//!
//! ```text
//! conversation 4, command 1, fragments 1, window 2, timestamp 4, sn 4, una 4, length 4
//! ```

use super::{Conversation, Millis, Sn, bytes};

/// The length of a segment's head, in bytes.
pub const HEAD: usize = 24;

/// The command of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The segment carries payload.
    Push,
    /// The segment acknowledges the segment `sn`, which was sent at `timestamp`.
    Ack,
    /// The segment asks for the receiver's window.
    AskWindow,
    /// The segment reports the window, as every segment does.
    TellWindow,
}

impl Command {
    const fn number(self) -> u8 {
        match self {
            Self::Push => 81,
            Self::Ack => 82,
            Self::AskWindow => 83,
            Self::TellWindow => 84,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            81 => Some(Self::Push),
            82 => Some(Self::Ack),
            83 => Some(Self::AskWindow),
            84 => Some(Self::TellWindow),
            _ => None,
        }
    }
}

/// The head of a segment without the length of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The session.
    pub conversation: Conversation,
    /// The command.
    pub command: Command,
    /// Fragments of the same message that follow. Sessions of kcp-go always send 0.
    pub fragments: u8,
    /// The number of segments for which the sender's receive queue has room.
    pub window: u16,
    /// PUSH: the time when it was sent. ACK: the timestamp of the PUSH.
    pub timestamp: Millis,
    /// PUSH: the number of the segment. ACK: the number of the PUSH.
    pub sn: Sn,
    /// All segments before this number have arrived.
    pub una: Sn,
}

impl Head {
    /// The bytes of the head in front of a payload of `length` bytes.
    #[must_use]
    pub fn encode(&self, length: u32) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0..4].copy_from_slice(&self.conversation.0.to_le_bytes());
        head[4] = self.command.number();
        head[5] = self.fragments;
        head[6..8].copy_from_slice(&self.window.to_le_bytes());
        head[8..12].copy_from_slice(&self.timestamp.0.to_le_bytes());
        head[12..16].copy_from_slice(&self.sn.0.to_le_bytes());
        head[16..20].copy_from_slice(&self.una.0.to_le_bytes());
        head[20..24].copy_from_slice(&length.to_le_bytes());
        head
    }
}

/// A segment inside a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The head.
    pub head: Head,
    /// The bytes after the head. They have a meaning for PUSH alone.
    pub payload: &'a [u8],
}

/// Why a datagram is not read to its end. Earlier segments count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The datagram is shorter than a head, or belongs to another conversation.
    #[error("a segment of another conversation, or no segment at all")]
    Foreign,
    /// A payload exceeds the end of the datagram.
    #[error("a segment is longer than its datagram")]
    Length,
    /// A command is unknown.
    #[error("a segment has an unknown command")]
    Command,
}

/// The segments of a datagram, one after the other. The iterator ends after the first malformed
/// segment. Up to 23 bytes at the end of the datagram are ignored, as kcp-go ignores them.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    conversation: Conversation,
    rest: &'a [u8],
    is_first: bool,
}

impl<'a> Segments<'a> {
    /// The segments of `conversation` in `datagram`.
    #[must_use]
    pub const fn new(conversation: Conversation, datagram: &'a [u8]) -> Self {
        Self { conversation, rest: datagram, is_first: true }
    }

    fn read(&mut self) -> Result<Segment<'a>, Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<HEAD>().ok_or(Malformed::Foreign)?;
        let word = |at| bytes(head, at).map_or(0, u32::from_le_bytes);
        if word(0) != self.conversation.0 {
            return Err(Malformed::Foreign);
        }
        let length = usize::try_from(word(20)).map_err(|_| Malformed::Length)?;
        let (payload, rest) = rest.split_at_checked(length).ok_or(Malformed::Length)?;
        let head = Head {
            conversation: self.conversation,
            command: Command::of(head[4]).ok_or(Malformed::Command)?,
            fragments: head[5],
            window: u16::from_le_bytes([head[6], head[7]]),
            timestamp: Millis(word(8)),
            sn: Sn(word(12)),
            una: Sn(word(16)),
        };
        self.rest = rest;
        Ok(Segment { head, payload })
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Result<Segment<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < HEAD && !self.is_first {
            return None;
        }
        self.is_first = false;
        let segment = self.read();
        if segment.is_err() {
            self.rest = &[];
        }
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_OF_PUSH: Head = Head {
        conversation: Conversation(0x0102_0304),
        command: Command::Push,
        fragments: 2,
        window: 0x0506,
        timestamp: Millis(0x0708_090a),
        sn: Sn(0x0b0c_0d0e),
        una: Sn(0x0f10_1112),
    };

    fn read(datagram: &[u8]) -> Vec<Result<Segment<'_>, Malformed>> {
        Segments::new(HEAD_OF_PUSH.conversation, datagram).collect()
    }

    #[test]
    fn segments_stand_back_to_back() {
        let ask = Head { command: Command::AskWindow, fragments: 0, ..HEAD_OF_PUSH };
        let mut datagram = HEAD_OF_PUSH.encode(3).to_vec();
        assert_eq!(datagram[..8], [4, 3, 2, 1, 81, 2, 6, 5]);
        datagram.extend(b"abc");
        datagram.extend(ask.encode(0));
        datagram.extend([0; HEAD - 1]);
        let segments = read(&datagram);
        let expected = [
            Ok(Segment { head: HEAD_OF_PUSH, payload: &b"abc"[..] }),
            Ok(Segment { head: ask, payload: &[] }),
        ];
        assert_eq!(segments, expected, "the end of the datagram is ignored");
    }

    #[test]
    fn what_is_malformed_ends_the_datagram() {
        let good = HEAD_OF_PUSH.encode(0).to_vec();
        let mut other = good.clone();
        other[0] = 0;
        let mut unknown = good.clone();
        unknown[4] = 80;
        let long = HEAD_OF_PUSH.encode(u32::MAX).to_vec();
        for (bad, why) in
            [(other, Malformed::Foreign), (unknown, Malformed::Command), (long, Malformed::Length)]
        {
            assert_eq!(read(&bad), [Err(why)]);
            let all = [good.clone(), bad, good.clone()].concat();
            let segments = read(&all);
            assert!(segments[0].is_ok() && segments[1] == Err(why) && segments.len() == 2);
        }
        assert_eq!(read(&good[1..]), [Err(Malformed::Foreign)]);
        assert_eq!(read(&[]), [Err(Malformed::Foreign)]);
    }
}
