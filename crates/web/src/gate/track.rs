//! Where the messages of an HTTP/1 visitor begin and end: pure.

use crate::Refusal;

use super::head::{self, Body, HeadCheck};

/// The longest line with the size of a chunk, and the longest section of trailers. Both are
/// overhead that a sender chooses.
const LONGEST_SIZE_LINE: usize = 256;
const LONGEST_TRAILERS: usize = 8 * 1024;
/// Empty lines that may precede a request (RFC 9112 section 2.2).
const MOST_EMPTY_LINES: u8 = 4;

/// The position in the bytes of a visitor.
#[derive(Debug)]
pub(super) struct Tracker {
    state: State,
    upgrade: bool,
    empty_lines: u8,
}

#[derive(Debug)]
enum State {
    Head(HeadCheck),
    Fixed(u64),
    Size {
        size: u64,
        digits: u8,
        line: usize,
        part: Part,
    },
    Data(u64),
    DataEnd {
        cr: bool,
    },
    /// Trailers are checked as complete lines, which are few.
    Trailers {
        line: Vec<u8>,
        total: usize,
    },
    Undecided,
}

/// The part of the line with the size of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Digits,
    Extension,
    Lf,
}

/// The meaning of the next bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The first bytes may pass.
    Pass(usize),
    /// A complete head, of this many bytes, may pass. Whether its request asks for an upgrade.
    Head(usize, bool),
    /// A head is not complete. No byte may pass.
    More,
    /// The request asked for an upgrade. The bytes after it have no meaning before its answer.
    Undecided,
    /// The head is refused.
    Refused(Refusal),
    /// The body is malformed.
    Broken(&'static str),
}

impl Tracker {
    pub(super) fn new() -> Self {
        Self { state: State::Head(HeadCheck::default()), upgrade: false, empty_lines: 0 }
    }

    /// The request that asked for an upgrade was answered without an upgrade.
    pub(super) fn no_upgrade(&mut self) {
        if matches!(self.state, State::Undecided) {
            self.state = State::Head(HeadCheck::default());
        }
        self.upgrade = false;
    }

    pub(super) const fn is_undecided(&self) -> bool {
        matches!(self.state, State::Undecided)
    }

    pub(super) const fn is_in_head(&self) -> bool {
        matches!(self.state, State::Head(_))
    }

    /// Looks at the bytes that have not passed. At least one byte is given.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        match &mut self.state {
            State::Head(check) => {
                if self.empty_lines < MOST_EMPTY_LINES && bytes.starts_with(b"\r\n") {
                    self.empty_lines += 1;
                    *check = HeadCheck::default();
                    return Step::Pass(2);
                }
                match check.look(bytes) {
                    Ok(None) => Step::More,
                    Ok(Some(head)) => {
                        self.empty_lines = 0;
                        self.upgrade = head.upgrade;
                        self.state = match head.body {
                            Body::Fixed(0) => self.end(),
                            Body::Fixed(length) => State::Fixed(length),
                            Body::Chunked => SIZE,
                        };
                        Step::Head(head.length, head.upgrade)
                    }
                    Err(refusal) => Step::Refused(refusal),
                }
            }
            State::Fixed(left) => {
                let passed = take(left, bytes);
                if *left == 0 {
                    self.state = self.end();
                }
                Step::Pass(passed)
            }
            State::Data(left) => {
                let passed = take(left, bytes);
                if *left == 0 {
                    self.state = State::DataEnd { cr: false };
                }
                Step::Pass(passed)
            }
            State::Size { .. } | State::DataEnd { .. } | State::Trailers { .. } => {
                match self.framing(bytes) {
                    Ok(passed) => Step::Pass(passed),
                    Err(reason) => Step::Broken(reason),
                }
            }
            State::Undecided => Step::Undecided,
        }
    }

    fn end(&self) -> State {
        if self.upgrade { State::Undecided } else { State::Head(HeadCheck::default()) }
    }

    /// The bytes between the data of chunks, one at a time.
    fn framing(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        for (at, &byte) in bytes.iter().enumerate() {
            match &mut self.state {
                State::Size { size, digits, line, part } => {
                    *line += 1;
                    if *line > LONGEST_SIZE_LINE {
                        return Err("The line with the size of a chunk is too long.");
                    }
                    match (*part, byte) {
                        (Part::Lf, b'\n') => {
                            self.state = match size {
                                0 => State::Trailers { line: Vec::new(), total: 0 },
                                size => State::Data(*size),
                            };
                        }
                        (Part::Digits | Part::Extension, b'\r') if *digits > 0 => *part = Part::Lf,
                        (Part::Digits, b';') if *digits > 0 => *part = Part::Extension,
                        // 15 digits cannot overflow.
                        (Part::Digits, _) if byte.is_ascii_hexdigit() && *digits < 15 => {
                            let digit = char::from(byte).to_digit(16).unwrap_or_default();
                            *size = *size * 16 + u64::from(digit);
                            *digits += 1;
                        }
                        (Part::Extension, _) if byte >= b' ' || byte == b'\t' => {}
                        _ => return Err("The size of a chunk is malformed."),
                    }
                }
                State::DataEnd { cr } => match (*cr, byte) {
                    (false, b'\r') => *cr = true,
                    (true, b'\n') => self.state = SIZE,
                    _ => return Err("A chunk does not have the size that it states."),
                },
                State::Trailers { line, total } => {
                    *total += 1;
                    if *total > LONGEST_TRAILERS {
                        return Err("The trailers of the request are too long.");
                    }
                    line.push(byte);
                    if byte == b'\n' {
                        let Some(text) = line.strip_suffix(b"\r\n") else {
                            return Err("A line of the trailers ends without CR.");
                        };
                        if text.is_empty() {
                            self.state = self.end();
                        } else if head::field(text).is_err() {
                            return Err("The trailers of the request are malformed.");
                        } else {
                            line.clear();
                        }
                    }
                }
                State::Head(_) | State::Fixed(_) | State::Data(_) | State::Undecided => {
                    return Ok(at);
                }
            }
        }
        Ok(bytes.len())
    }
}

const SIZE: State = State::Size { size: 0, digits: 0, line: 0, part: Part::Digits };

/// Counts bytes of a body of known length.
fn take(left: &mut u64, bytes: &[u8]) -> usize {
    let passed = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
    *left -= passed as u64;
    passed
}
