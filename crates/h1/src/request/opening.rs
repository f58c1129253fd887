//! Decides from the first line of a connection whether it is an HTTP/1 request.

use std::ops::Range;

use super::HEAD;
use crate::Fault;
use crate::lines::is_token;

/// The longest method. The longest registered method, `UPDATEREDIRECTREF`, has 17 characters.
pub(super) const METHOD: usize = 32;

/// Examines each byte of the first line once.
#[derive(Debug, Default)]
pub struct Opening {
    /// The number of examined bytes.
    at: usize,
    /// The end of the method; 0 while it has not ended.
    method: usize,
}

/// The kind of the first line.
#[derive(Debug)]
pub enum Opened {
    /// More bytes are needed.
    More,
    /// The line is complete and ends in a version of HTTP/1. The range has no line end. A preceding
    /// empty line is not part of it (RFC 9112 section 2.2).
    Line(Range<usize>),
    /// An HTTP/1 request that is refused.
    Bad(Fault),
    /// Not an HTTP/1 request, not even a malformed one.
    Not,
}

impl Opening {
    /// Examines `bytes`, which are all bytes since the start of the line.
    pub fn look(&mut self, bytes: &[u8]) -> Opened {
        // One empty line may precede a request.
        let start = if bytes.first() == Some(&b'\r') { 2 } else { 0 };
        let limit = bytes.len().min(HEAD);
        while self.at < limit {
            let byte = bytes[self.at];
            if self.at < start {
                if byte != b"\r\n"[self.at] {
                    return Opened::Not;
                }
            } else if self.method == 0 {
                if byte == b' ' && self.at > start {
                    self.method = self.at;
                } else if !is_token(byte) || self.at - start >= METHOD {
                    return Opened::Not;
                }
            } else if byte == b'\n' {
                let end = self.at - usize::from(bytes[self.at - 1] == b'\r');
                return judge(bytes, start..end, self.method, end < self.at);
            } else if byte.is_ascii_control() && byte != b'\r' {
                return Opened::Not;
            }
            self.at += 1;
        }
        if self.at >= HEAD { Opened::Bad(Fault::LineSize) } else { Opened::More }
    }
}

/// Classifies a complete line. `has_cr`: the line ends in CRLF.
fn judge(bytes: &[u8], line: Range<usize>, method: usize, has_cr: bool) -> Opened {
    let text = &bytes[line.clone()];
    let version = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let Some(number) = version.strip_prefix(b"HTTP/") else {
        // Requests of HTTP/0.9 have no version. Other protocols have commands of the same shape,
        // but none has GET with a path.
        let target = &bytes[method + 1..line.end.max(method + 1)];
        return match (bytes[line.start..method] == *b"GET", target) {
            (true, [b'/', rest @ ..]) if rest.contains(&b' ') => Opened::Bad(Fault::RequestLine),
            (true, [b'/', ..]) => Opened::Bad(Fault::Version),
            _ => Opened::Not,
        };
    };
    match number {
        b"1.1" | b"1.0" if has_cr => Opened::Line(line),
        b"1.1" | b"1.0" => Opened::Bad(Fault::BareLf),
        [b'0'..=b'9'] | [b'0'..=b'9', b'.', b'0'..=b'9'] => Opened::Bad(Fault::Version),
        _ => Opened::Bad(Fault::RequestLine),
    }
}
