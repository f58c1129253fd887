//! Segments of a body: a run with consecutive numbers.

use super::Malformed;
use super::reader::Reader;
use crate::Sn;

/// Length of the header of a run, in bytes.
pub const RUN_HEAD: usize = 4;

/// Length of the header of the last segment of a packet without a fragment count, in bytes.
pub const SEGMENT_HEAD: usize = 1;

/// The bits of the form.
const HAS_LENGTH: u8 = 1;
const HAS_FRAGMENTS: u8 = 2;
const FIN: u8 = 4;
const PART: u8 = 8;

/// Length of the offset field of a part, in bytes.
pub const PART_HEAD: usize = 2;

/// The bit of the offset field that is set if more parts follow.
const FOLLOWS: u16 = 1 << 15;

/// The position of a part in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of the first byte, below 32,768.
    pub offset: u16,
    /// Whether more parts follow.
    pub follows: bool,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The number of the segment.
    pub sn: Sn,
    /// The number of segments of the same message that follow.
    pub fragments: u8,
    /// The stream ends here. Such a segment has no payload.
    pub is_fin: bool,
    /// The payload is a part of the payload of the segment.
    pub part: Option<Part>,
    /// The payload.
    pub payload: &'a [u8],
}

/// Appends a segment to a run, whose header has the number of its first segment. No segment can
/// follow the last segment.
pub fn put_segment(segment: &Segment<'_>, is_last: bool, to: &mut Vec<u8>) {
    let Segment { fragments, is_fin, part, payload, .. } = *segment;
    let has_fragments = if fragments > 0 { HAS_FRAGMENTS } else { 0 };
    let fin = if is_fin { FIN } else { 0 };
    let is_part = if part.is_some() { PART } else { 0 };
    to.push(has_fragments | fin | is_part | if is_last { 0 } else { HAS_LENGTH });
    if fragments > 0 {
        to.push(fragments);
    }
    if let Some(Part { offset, follows }) = part {
        let bit = if follows { FOLLOWS } else { 0 };
        to.extend((offset & !FOLLOWS | bit).to_be_bytes());
    }
    if !is_last {
        to.extend(u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes());
    }
    to.extend_from_slice(payload);
}

/// Reads the segments of a body. The iterator ends with the first malformed segment.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    next: Option<Sn>,
    rest: Reader<'a>,
}

impl<'a> Run<'a> {
    /// The segments of `body`.
    ///
    /// # Errors
    ///
    /// The body is shorter than the header of a run.
    pub fn new(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut rest = Reader(body);
        let first = Sn(u32::from_be_bytes(rest.array()?));
        Ok(Self { next: Some(first), rest })
    }

    fn read(&mut self, sn: Sn) -> Result<Segment<'a>, Malformed> {
        let form = self.rest.byte()?;
        if form & !(HAS_LENGTH | HAS_FRAGMENTS | FIN | PART) != 0 {
            return Err(Malformed);
        }
        let fragments = if form & HAS_FRAGMENTS != 0 { self.rest.byte()? } else { 0 };
        let mut part = None;
        if form & PART != 0 {
            let offset = u16::from_be_bytes(self.rest.array()?);
            part = Some(Part { offset: offset & !FOLLOWS, follows: offset & FOLLOWS != 0 });
        }
        let payload = if form & HAS_LENGTH != 0 {
            let length = u16::from_be_bytes(self.rest.array()?);
            self.next = Some(sn.plus(1));
            self.rest.bytes(length.into())?
        } else {
            self.rest.rest()
        };
        let is_fin = form & FIN != 0;
        // The segment that ends a stream has no bytes, and is not a part of a message.
        if is_fin && (fragments > 0 || part.is_some() || !payload.is_empty()) {
            return Err(Malformed);
        }
        Ok(Segment { sn, fragments, is_fin, part, payload })
    }
}

impl<'a> Iterator for Run<'a> {
    type Item = Result<Segment<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let sn = self.next.take()?;
        let segment = self.read(sn);
        if segment.is_err() {
            self.next = None;
        }
        Some(segment)
    }
}
