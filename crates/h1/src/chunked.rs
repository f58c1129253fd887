//! Finds the end of a body in chunks (RFC 9112 section 7.1).
//!
//! Each byte of a line is examined once, and the bytes of a chunk are only counted. A line must end
//! in CRLF: parsers that accept other line ends would see a different boundary.

use crate::lines::is_token;
use crate::requests::take;
use crate::{BodyPart, Fault};

/// The longest chunk size line, including extensions.
const LINE: u16 = 256;

/// The largest number of digits of a size: they fit into signed 64 bits, which parsers use.
const DIGITS: u8 = 15;

/// The largest trailer section.
const TRAILERS: u16 = 8 << 10;

/// The position in a body.
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

/// A body, as far as it has arrived.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    /// The number of bytes of the chunk that are still to come.
    left: u64,
    digits: u8,
    /// The length of the line or of the trailer section so far.
    line: u16,
    /// White space may follow a size. Old servers pad sizes with it, and every parser that the
    /// oracles compare skips it. No client sends it.
    may_pad: bool,
}

/// The outcome of [`Chunked::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// All bytes belong to the body, and more follow.
    More,
    /// The body ends after this number of bytes.
    End(usize),
    /// The byte after this number of bytes makes the body malformed.
    Bad(usize, Fault),
}

impl Chunked {
    pub(crate) const fn of_request() -> Self {
        Self { state: State::Start, left: 0, digits: 0, line: 0, may_pad: false }
    }

    pub(crate) const fn of_response() -> Self {
        Self { may_pad: true, ..Self::of_request() }
    }

    /// Examines the next bytes of the body. `seen` receives the data and the trailer section.
    pub(crate) fn pass(&mut self, bytes: &[u8], mut seen: impl FnMut(BodyPart<'_>)) -> Passed {
        let mut at = 0;
        let mut trailers = self.is_in_trailers().then_some(0);
        let outcome = loop {
            let Some(&byte) = bytes.get(at) else { break Passed::More };
            if self.state == State::Data {
                let Some(length) = take(&mut self.left, &bytes[at..]) else {
                    seen(BodyPart::Data(&bytes[at..]));
                    return Passed::More;
                };
                seen(BodyPart::Data(&bytes[at..at + length]));
                (at, self.state) = (at + length, State::DataCr);
                continue;
            }
            match self.step(byte) {
                Ok(Some(state)) => self.state = state,
                Ok(None) => break Passed::End(at + 1),
                Err(fault) => break Passed::Bad(at, fault),
            }
            at += 1;
            if self.state == State::Trailer && trailers.is_none() {
                trailers = Some(at);
            }
        };
        let end = match outcome {
            Passed::More => bytes.len(),
            Passed::End(end) | Passed::Bad(end, _) => end,
        };
        if let Some(trailers) = trailers.and_then(|from| bytes.get(from..end))
            && !trailers.is_empty()
        {
            seen(BodyPart::Trailers(trailers));
        }
        outcome
    }

    /// Whether the next byte belongs to the trailer section, or to the line end after it.
    const fn is_in_trailers(&self) -> bool {
        matches!(
            self.state,
            State::Trailer
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::LastLf
        )
    }

    /// The state after `byte`. `None`: the body ends with it.
    fn step(&mut self, byte: u8) -> Result<Option<State>, Fault> {
        self.line += 1;
        if self.line > if self.is_in_trailers() { TRAILERS } else { LINE } {
            return Err(Fault::ChunkSize);
        }
        let is_text = !byte.is_ascii_control() || byte == b'\t';
        Ok(Some(match (self.state, byte) {
            (State::Start | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.digits += 1;
                if self.digits > DIGITS {
                    return Err(Fault::ChunkSize);
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                self.left = self.left * 16 + u64::from(digit);
                State::Size
            }
            (State::Size | State::Blank, b' ' | b'\t') if self.may_pad => State::Blank,
            (State::Size | State::Blank, b';') => State::Extension,
            (State::Size | State::Blank | State::Extension, b'\r') => State::SizeLf,
            (State::Extension, _) if is_text => State::Extension,
            (State::SizeLf, b'\n') => {
                self.line = 0;
                if self.left == 0 { State::Trailer } else { State::Data }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                (self.line, self.digits, self.left) = (0, 0, 0);
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
