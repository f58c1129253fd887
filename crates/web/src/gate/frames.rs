//! What the frames of an HTTP/2 visitor bring that h2 keeps: pure. h2 does not tell how much it
//! keeps, so the frames are counted on their way to it. Only their heads are read (RFC 9113 section
//! 4.1); h2 judges them.

use h1::PREFACE;

/// The length of the head of a frame.
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// The position in the bytes of a visitor.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the preface or of a frame that follow.
    rest: usize,
    head: [u8; HEAD],
    /// Bytes of `head` that arrived.
    have: usize,
    /// The highest stream that a request has.
    last: u32,
}

/// What some bytes brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    /// Bytes of bodies: of the frames that begin here, with the part that is yet to come.
    pub(super) bytes: u64,
    /// The number of these frames.
    pub(super) frames: u32,
    /// Heads of streams that have one already.
    pub(super) trailers: u32,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self { rest: PREFACE.len(), head: [0; HEAD], have: 0, last: 0 }
    }

    pub(super) fn look(&mut self, mut bytes: &[u8]) -> Brought {
        let mut brought = Brought::default();
        while !bytes.is_empty() {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            let part = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + part].copy_from_slice(&bytes[..part]);
            self.have += part;
            bytes = &bytes[part..];
            if self.have == HEAD {
                self.have = 0;
                self.begin(&mut brought);
            }
        }
        brought
    }

    fn begin(&mut self, brought: &mut Brought) {
        let [a, b, c, kind, _flags, s0, s1, s2, s3] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1);
        self.rest = length as usize;
        match kind {
            DATA if length > 0 => {
                brought.bytes += u64::from(length);
                brought.frames += 1;
            }
            HEADERS if stream > self.last => self.last = stream,
            HEADERS => brought.trailers += 1,
            _ => {}
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
    fn bodies_and_trailers_are_counted_however_the_bytes_are_cut() {
        let mut all = PREFACE.to_vec();
        for (kind, stream, length) in
            [(4, 0, 12), (HEADERS, 1, 30), (DATA, 1, 500), (HEADERS, 3, 4), (DATA, 3, 0)]
        {
            all.extend(frame(kind, stream, length));
        }
        all.extend(frame(DATA, 1, 7));
        all.extend(frame(HEADERS, 1, 9));
        let expected = Brought { bytes: 507, frames: 2, trailers: 1 };
        for size in [1, 2, 9, 10, 100, all.len()] {
            let mut frames = Frames::new();
            let mut sum = Brought::default();
            for piece in all.chunks(size) {
                let Brought { bytes, frames, trailers } = frames.look(piece);
                sum.bytes += bytes;
                sum.frames += frames;
                sum.trailers += trailers;
            }
            assert_eq!(sum, expected, "pieces of {size}");
        }
    }
}
