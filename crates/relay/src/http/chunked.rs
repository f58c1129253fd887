//! The end of a body in chunks (RFC 9112 section 7.1).
//!
//! Each byte of a line is looked at once, and the bytes of a chunk are counted. A line must end in
//! CRLF: parsers that accept less would see another boundary.

use crate::sniff::http::{Fault, is_token};

/// The longest line with the size of a chunk, extensions included.
const LINE: u16 = 256;

/// The largest trailer section.
const TRAILERS: u16 = 8 << 10;

/// The place in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size.
    Start,
    Size,
    /// White space after the size.
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a line of the trailer section.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
}

/// A body as far as it arrived.
#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    /// The bytes of the chunk that are still to come.
    left: u64,
    /// The length of the line or of the trailer section so far.
    line: u16,
}

/// The outcome of [`Chunked::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// All bytes belong to the body, and more follow.
    More,
    /// The body ends after so many bytes.
    End(usize),
    /// The byte after so many bytes makes the body malformed.
    Bad(usize, Fault),
}

impl Chunked {
    pub(super) const fn new() -> Self {
        Self { state: State::Start, left: 0, line: 0 }
    }

    /// Looks at the next bytes of the body.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Passed {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.state == State::Data {
                let rest = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX);
                let taken = self.left.min(rest);
                self.left -= taken;
                at += usize::try_from(taken).unwrap_or(bytes.len() - at);
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            match self.step(byte) {
                Ok(Some(state)) => self.state = state,
                Ok(None) => return Passed::End(at + 1),
                Err(fault) => return Passed::Bad(at, fault),
            }
            at += 1;
        }
        Passed::More
    }

    /// The state after `byte`. `None`: the body ends with it.
    fn step(&mut self, byte: u8) -> Result<Option<State>, Fault> {
        self.line += 1;
        let is_trailer = matches!(
            self.state,
            State::Trailer
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::LastLf
        );
        if self.line > if is_trailer { TRAILERS } else { LINE } {
            return Err(Fault::ChunkSize);
        }
        let is_text = !byte.is_ascii_control() || byte == b'\t';
        Ok(Some(match (self.state, byte) {
            (State::Start | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                let left =
                    self.left.checked_mul(16).and_then(|left| left.checked_add(digit.into()));
                self.left = left.ok_or(Fault::ChunkSize)?;
                State::Size
            }
            (State::Size | State::Blank, b' ' | b'\t') => State::Blank,
            (State::Size | State::Blank, b';') => State::Extension,
            (State::Size | State::Blank | State::Extension, b'\r') => State::SizeLf,
            (State::Extension, _) if is_text => State::Extension,
            (State::SizeLf, b'\n') => {
                self.line = 0;
                if self.left == 0 { State::Trailer } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.line = 0;
                State::Start
            }
            (State::Trailer, b'\r') => State::LastLf,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::Trailer | State::TrailerName, _) if is_token(byte) => State::TrailerName,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) if is_text => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::Trailer,
            (State::LastLf, b'\n') => return Ok(None),
            _ => return Err(Fault::Chunk),
        }))
    }
}
