//! The framing of the message and the persistence of the connection, as the header fields of
//! requests and responses declare them. Only fields that nginx, haproxy, Node, Go and hyper read in
//! the same way are accepted.

use crate::Fault;
use crate::lines::{has_token, is_token, tokens};

/// The largest number of digits of a length: they fit into signed 64 bits, which parsers use.
const DIGITS: usize = 18;

/// The framing of a body by the fields of its head (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No field declares a framing. A request has no body, and the body of a response ends with the
    /// connection.
    Absent,
    /// A body of this number of bytes.
    Length(u64),
    /// A body in chunks.
    Chunked,
}

/// The transfer codings of all fields together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Chunked,
    /// Other codings, followed by `chunked`.
    ChunkedLast,
    Other,
}

/// The meaning of the header fields that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Said {
    length: Option<u64>,
    coding: Option<Coding>,
    close: bool,
    keep_alive: bool,
    /// `Connection` has the option `upgrade`.
    pub(crate) upgrade: bool,
}

impl Said {
    /// Reads a field of `head`.
    pub(crate) fn read(&mut self, head: &[u8], name: &str, value: &[u8]) -> Result<(), Fault> {
        // The length of the name excludes nearly all other fields.
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => {
                self.close |= has_token(value, b"close");
                self.keep_alive |= has_token(value, b"keep-alive");
                self.upgrade |= has_token(value, b"upgrade");
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                // The bytes are passed on unchanged, so equal lengths could not be merged into one.
                if self.length.is_some() || value.contains(&b',') {
                    return Err(Fault::Lengths);
                }
                let length = number(value).filter(|_| has_no_tab(head, name, value));
                self.length = Some(length.ok_or(Fault::Length)?);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if !has_no_tab(head, name, value) {
                    return Err(Fault::Encoding);
                }
                for coding in tokens(value) {
                    let is_valid = !coding.is_empty() && coding.iter().all(|byte| is_token(*byte));
                    let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
                    self.coding = Some(match (self.coding, is_chunked) {
                        _ if !is_valid => return Err(Fault::Encoding),
                        (Some(Coding::Chunked | Coding::ChunkedLast), _) => {
                            return Err(Fault::Encoding);
                        }
                        (None, true) => Coding::Chunked,
                        (Some(Coding::Other), true) => Coding::ChunkedLast,
                        (None | Some(Coding::Other), false) => Coding::Other,
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The framing, after all fields were read.
    pub(crate) const fn framing(&self, version10: bool) -> Result<Framing, Fault> {
        match (self.length, self.coding) {
            (Some(_), Some(_)) => Err(Fault::LengthAndEncoding),
            (None, Some(_)) if version10 => Err(Fault::Encoding10),
            (None, Some(Coding::Chunked)) => Ok(Framing::Chunked),
            // nginx and Go support only `chunked`.
            (None, Some(Coding::ChunkedLast)) => Err(Fault::Coding),
            (None, Some(Coding::Other)) => Err(Fault::Encoding),
            (Some(length), None) => Ok(Framing::Length(length)),
            (None, None) => Ok(Framing::Absent),
        }
    }

    /// Whether the connection ends after the message (RFC 9112 section 9.3).
    pub(crate) const fn closes(&self, version10: bool) -> bool {
        self.close || (version10 && !self.keep_alive)
    }
}

/// Reads a length in bytes: only digits, no sign and no blank (RFC 9110 section 8.6).
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let is_number = (1..=DIGITS).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(value).ok()?.parse().ok()).flatten()
}

/// Whether the white space around the value of a field consists only of spaces. Nginx treats a tab
/// as a part of the value, which is then neither a number nor a known coding.
fn has_no_tab(head: &[u8], name: &str, value: &[u8]) -> bool {
    let place = |part: *const u8| part.addr().wrapping_sub(head.as_ptr().addr());
    let from = place(name.as_ptr()).wrapping_add(name.len());
    let line = head.get(from..).and_then(|rest| rest.split(|byte| *byte == b'\r').next());
    line.is_some_and(|line| line.len() > value.len() && !line.contains(&b'\t'))
}
