//! The requests of one connection, in sequence: where the next head ends, and where the body after
//! it ends.

use std::rc::Rc;

use crate::chunked::{Chunked, Passed};
use crate::request::{Found, Scanner};
use crate::{BodyPart, Fault, Framing, Request};

/// The position in the bytes of a connection.
#[derive(Debug)]
enum Phase {
    /// At the start of a request.
    Head,
    /// This number of bytes of a body follows.
    Length(u64),
    Chunks(Chunked),
}

/// Finds the boundaries of requests. The caller passes the bytes that have not been accepted yet to
/// [`Requests::step`], follows the outcome, and passes the rest again. A head is accepted only by
/// [`Requests::begin`], so the caller may reject it.
#[derive(Debug)]
pub struct Requests {
    place: Phase,
    scanner: Scanner,
}

/// The meaning of the next bytes.
#[derive(Debug)]
pub enum Step<'a> {
    /// The first bytes, as many as this number, belong to a body.
    Body(usize),
    /// The bytes begin with a complete head.
    Head(Request<'a>),
    /// The bytes are a part of a head.
    More,
    /// The bytes do not begin with an acceptable request.
    Refused(Fault),
    /// After this number of bytes the body is malformed.
    Broken(usize, Fault),
}

/// Whether the bytes of a connection, from its start, may also be sent to another target: they are
/// a single request with a safe method (RFC 9110 section 9.2.1), without a body and without an
/// upgrade, or a part of its head.
#[must_use]
pub fn is_repeatable(bytes: &[u8]) -> bool {
    let is_safe = [&b"GET "[..], b"HEAD ", b"OPTIONS "].iter().any(|safe| bytes.starts_with(safe));
    is_safe
        && match Requests::new(None).step(bytes) {
            Step::Head(request) => {
                let is_bare = matches!(request.body, Framing::Absent | Framing::Length(0));
                is_bare && !request.may_switch && request.length == bytes.len()
            }
            Step::More => true,
            Step::Body(_) | Step::Refused(_) | Step::Broken(..) => false,
        }
}

impl Requests {
    /// The requests of a fresh connection. A request with the field `route_header` is for the host
    /// that this field names.
    #[must_use]
    pub fn new(route_header: Option<Rc<str>>) -> Self {
        Self { place: Phase::Head, scanner: Scanner::new(route_header) }
    }

    /// Whether the next byte is the first byte of a head that was not accepted yet.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        matches!(self.place, Phase::Head)
    }

    /// Examines the bytes that were not accepted yet, at least one.
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> Step<'a> {
        self.step_seen(bytes, |_| {})
    }

    /// As [`Self::step`]; `seen` receives the content of bodies.
    pub(crate) fn step_seen<'a>(
        &mut self,
        bytes: &'a [u8],
        mut seen: impl FnMut(BodyPart<'_>),
    ) -> Step<'a> {
        let length = match &mut self.place {
            Phase::Head => {
                return match self.scanner.look(bytes) {
                    Found::More => Step::More,
                    Found::Not => Step::Refused(Fault::NotHttp),
                    Found::Bad(fault) => Step::Refused(fault),
                    Found::Head(request) => Step::Head(request),
                };
            }
            Phase::Length(left) => match take(left, bytes) {
                Some(length) => {
                    seen(BodyPart::Data(&bytes[..length]));
                    length
                }
                None => {
                    seen(BodyPart::Data(bytes));
                    return Step::Body(bytes.len());
                }
            },
            Phase::Chunks(chunks) => match chunks.pass(bytes, seen) {
                Passed::More => return Step::Body(bytes.len()),
                Passed::End(length) => length,
                Passed::Bad(length, fault) => return Step::Broken(length, fault),
            },
        };
        self.place = Phase::Head;
        Step::Body(length)
    }

    /// Accepts the head of a request: its body follows.
    pub fn begin(&mut self, body: Framing) {
        self.scanner.reset();
        self.place = match body {
            Framing::Absent | Framing::Length(0) => Phase::Head,
            Framing::Length(length) => Phase::Length(length),
            Framing::Chunked => Phase::Chunks(Chunked::of_request()),
        };
    }
}

/// Consumes the bytes of a body with `left` bytes to come: returns the position of its end in
/// `bytes`, or `None` if all bytes belong to the body and more follow.
pub(crate) fn take(left: &mut u64, bytes: &[u8]) -> Option<usize> {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if *left > length {
        *left -= length;
        return None;
    }
    Some(usize::try_from(*left).unwrap_or(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_with_a_safe_method_and_without_a_body_may_be_repeated() {
        for repeatable in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "HEAD /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHos",
        ] {
            assert!(is_repeatable(repeatable.as_bytes()), "{repeatable}");
        }
        for other in [
            "",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "PUT / HTTP/1.1\r\nHos",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
            "GETTING / HTTP/1.1\r\nHost: a\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
        ] {
            assert!(!is_repeatable(other.as_bytes()), "{other}");
        }
    }
}
