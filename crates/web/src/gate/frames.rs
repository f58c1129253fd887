//! The frames of an HTTP/2 visitor on their way to h2, without I/O. h2 does not report how much a
//! stream holds, and has one window size for all streams, so the gate parses frame headers (RFC
//! 9113 section 4.1). h2 validates the frames.

use h1::PREFACE;

/// The length of a frame header, in bytes.
pub(super) const HEAD: usize = 9;
pub(crate) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
/// The flag of SETTINGS that acknowledges SETTINGS.
pub(super) const ACK: u8 = 1;

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The length of the payload.
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    pub(super) const fn parse(bytes: [u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1),
        }
    }
}

/// The parser of the frame boundaries in the bytes of a visitor or a target.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The remaining bytes of the preface or of a payload.
    rest: usize,
    head: [u8; HEAD],
    /// The number of received bytes of `head`.
    have: usize,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self { rest: PREFACE.len(), head: [0; HEAD], have: 0 }
    }

    /// The parser for a target, whose preface is only its SETTINGS.
    pub(crate) const fn of_target() -> Self {
        Self { rest: 0, head: [0; HEAD], have: 0 }
    }

    /// Calls `complete` for each frame whose last byte is among these bytes.
    pub(crate) fn look(&mut self, mut bytes: &[u8], mut complete: impl FnMut(Head)) {
        while !bytes.is_empty() {
            if self.have < HEAD && self.rest == 0 {
                let part = (HEAD - self.have).min(bytes.len());
                self.head[self.have..self.have + part].copy_from_slice(&bytes[..part]);
                self.have += part;
                bytes = &bytes[part..];
                if self.have < HEAD {
                    return;
                }
                self.rest = Head::parse(self.head).length as usize;
            }
            let part = self.rest.min(bytes.len());
            self.rest -= part;
            bytes = &bytes[part..];
            if self.rest == 0 && self.have == HEAD {
                self.have = 0;
                complete(Head::parse(self.head));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, length: usize) -> Vec<u8> {
        let size = u32::try_from(length).unwrap().to_be_bytes();
        let mut frame = vec![size[1], size[2], size[3], kind, 0];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.resize(HEAD + length, b'x');
        frame
    }

    #[test]
    fn frames_are_seen_at_their_end_however_the_bytes_are_cut() {
        let list =
            [(SETTINGS, 0, 12), (HEADERS, 1, 30), (DATA, 1, 500), (DATA, 3, 0), (DATA, 1, 7)];
        let mut all = PREFACE.to_vec();
        for (kind, stream, length) in list {
            all.extend(frame(kind, stream, length));
        }
        let expected: Vec<_> =
            list.iter().map(|&(kind, stream, length)| (kind, stream, length as u32)).collect();
        for size in [1, 2, 9, 10, 100, all.len()] {
            let mut frames = Frames::new();
            let mut seen = Vec::new();
            for piece in all.chunks(size) {
                frames.look(piece, |head| seen.push((head.kind, head.stream, head.length)));
            }
            assert_eq!(seen, expected, "pieces of {size}");
        }
        let mut frames = Frames::new();
        frames.look(&all[..all.len() - 1], |head| assert!(head.length != 7, "an incomplete frame"));
    }
}
