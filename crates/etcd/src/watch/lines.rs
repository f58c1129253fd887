//! Lines out of pieces of any size. Each byte is looked at once, and a line is cut out without a
//! copy of what follows.

use bytes::{Bytes, BytesMut};

/// A line has more bytes than its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// The bytes of an answer that are not yet a line.
#[derive(Debug)]
pub(super) struct WatchLines {
    bytes: BytesMut,
    /// The number of bytes at the front that hold no end of a line.
    seen: usize,
    most: usize,
}

impl WatchLines {
    /// For lines of at most `most` bytes, without their end.
    pub(super) fn new(most: usize) -> Self {
        Self { bytes: BytesMut::new(), seen: 0, most }
    }

    /// The most bytes of a line.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Appends what was read. It is called when there is no further line.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next complete line without its end. Empty lines are none.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let fresh = self.bytes.get(self.seen..).unwrap_or_default();
            let Some(at) = fresh.iter().position(|byte| *byte == b'\n') else {
                self.seen = self.bytes.len();
                return if self.seen > self.most { Err(TooLong) } else { Ok(None) };
            };
            let length = self.seen + at;
            if length > self.most {
                return Err(TooLong);
            }
            let mut line = self.bytes.split_to(length + 1);
            self.seen = 0;
            line.truncate(length);
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
    }

    /// What is left at the end of the answer, if it is more than white space.
    pub(super) fn rest(&mut self) -> Option<Bytes> {
        self.seen = 0;
        let rest = std::mem::take(&mut self.bytes);
        (!rest.trim_ascii().is_empty()).then(|| rest.freeze())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_without_an_end_is_refused_at_its_bound() {
        let mut lines = WatchLines::new(10);
        lines.push(b"0123456789");
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"\n");
        assert_eq!(lines.next().unwrap().unwrap().len(), 10);
        lines.push(b"0123456789a");
        assert_eq!(lines.next(), Err(TooLong));
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_bytes_are_cut(
            text in vec(prop_oneof![Just(b'\n'), Just(b' '), any::<u8>()], 0..200),
            cuts in vec(1..20_usize, 1..50),
        ) {
            let mut lines = WatchLines::new(1000);
            let (mut found, mut rest, mut cuts) = (Vec::new(), &text[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                lines.push(piece);
                while let Some(line) = lines.next().unwrap() {
                    found.push(line.to_vec());
                }
                rest = after;
            }
            found.extend(lines.rest().map(|rest| rest.to_vec()));
            let all = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
            prop_assert_eq!(found, all.map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }
}
