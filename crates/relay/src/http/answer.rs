//! The head of a response (RFC 9112 section 4), and the framing of its body (section 6.3).
//!
//! A head is accepted if nginx, haproxy, Node, Go and hyper read the same framing in it. Where one
//! of them differs, the head is a [`Doubt`].

use std::mem::MaybeUninit;

use httparse::{Header, Response, Status};

use super::Doubt;
use crate::sniff::http::{FIELDS, Fault, diagnose_fields, has_token, is_clean, number};

/// The largest head of a response.
pub(super) const HEAD: usize = 64 << 10;

/// The largest length of a body: parsers count in signed 64 bits.
const LENGTH: u64 = u64::MAX >> 1;

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) length: usize,
    pub(super) status: u16,
    pub(super) version10: bool,
    /// The framing that the fields give; some responses have no body whatever their fields say.
    pub(super) body: Framing,
    /// No response follows.
    pub(super) close: bool,
}

/// The framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    /// The end of the connection is the end of the body.
    UntilEnd,
}

/// Decodes the head at the front of `bytes`. `None`: the head is incomplete, or its lines are
/// malformed, or it is over the limit.
pub(super) fn parse(bytes: &[u8]) -> Option<Result<Answer, Doubt>> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut response = Response::new(&mut []);
    let bytes = &bytes[..bytes.len().min(HEAD)];
    // httparse skips any number of empty lines.
    if bytes.first() != Some(&b'H') {
        return None;
    }
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut fields,
    );
    match parsed {
        Ok(Status::Complete(length)) if is_clean(&bytes[..length]) => {
            Some(examine(&response, &bytes[..length]))
        }
        Ok(_) | Err(_) => None,
    }
}

/// The doubt about a complete head that `parse` does not understand. Each of its lines ends in
/// CRLF.
#[cold]
pub(super) fn diagnose(head: &[u8]) -> Doubt {
    let line = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
    let (status_line, fields) = head.split_at(line);
    let status_line = [status_line, b"\n\r\n"].concat();
    if parse(&status_line).is_none() {
        return Doubt::StatusLine;
    }
    let fault = diagnose_fields(fields.get(1..).unwrap_or_default());
    let same = [
        (Fault::Control, Doubt::Control),
        (Fault::Fold, Doubt::Fold),
        (Fault::Blank, Doubt::Blank),
        (Fault::Fields, Doubt::Fields),
    ];
    same.iter()
        .find(|(of_request, _)| *of_request == fault)
        .map_or(Doubt::Field, |(_, doubt)| *doubt)
}

fn examine(response: &Response<'_, '_>, head: &[u8]) -> Result<Answer, Doubt> {
    let version10 = response.version == Some(0);
    let (mut size, mut is_chunked) = (None, false);
    let (mut close, mut keep_alive) = (false, false);
    for Header { name, value } in &*response.headers {
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => {
                close |= has_token(value, b"close");
                keep_alive |= has_token(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                let length = number(value).filter(|length| *length <= LENGTH);
                let length = length.filter(|_| has_no_tab(head, name, value));
                if size.replace(length.ok_or(Doubt::Length)?).is_some() {
                    return Err(Doubt::Lengths);
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                // Of several codings nginx and Go know chunked alone.
                let is_plain =
                    value.eq_ignore_ascii_case(b"chunked") && has_no_tab(head, name, value);
                if is_chunked || !is_plain {
                    return Err(Doubt::Encoding);
                }
                is_chunked = true;
            }
            _ => {}
        }
    }
    let body = match (size, is_chunked) {
        (Some(_), true) => return Err(Doubt::LengthAndEncoding),
        (None, true) if version10 => return Err(Doubt::Encoding10),
        (None, true) => Framing::Chunked,
        (Some(size), false) => Framing::Length(size),
        (None, false) => Framing::UntilEnd,
    };
    let status = response.code.unwrap_or_default();
    // The first digit is the class of the status (RFC 9110 section 15).
    if status < 100 {
        return Err(Doubt::StatusLine);
    }
    let close = close || (version10 && !keep_alive);
    Ok(Answer { length: head.len(), status, version10, body, close })
}

/// Whether the white space around the value of a field is spaces alone. For nginx a tab is a part
/// of the value, which is then no number and no known coding.
fn has_no_tab(head: &[u8], name: &str, value: &[u8]) -> bool {
    let place = |part: *const u8| part.addr().wrapping_sub(head.as_ptr().addr());
    let from = place(name.as_ptr()).wrapping_add(name.len());
    let line = head.get(from..).and_then(|rest| rest.split(|byte| *byte == b'\r').next());
    line.is_some_and(|line| line.len() > value.len() && !line.contains(&b'\t'))
}
