//! The lines of a head: line ends, tokens, lists, and the faults of malformed lines.

use httparse::{EMPTY_HEADER, Request, Status};

use crate::Fault;

/// The largest number of fields in the head of a request.
pub const FIELDS: usize = 100;

/// The first line of a request. The meaning of its parts is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstLine<'a> {
    /// The method.
    pub method: &'a str,
    /// The target.
    pub target: &'a str,
    /// Whether the request has version HTTP/1.0.
    pub version10: bool,
}

/// Reads the lines of the complete head of a request: calls `field` with the name and the value of
/// each field, and returns the first line. `None`: a line is malformed, or there are more than
/// [`FIELDS`] fields. The meaning of the lines is not checked.
pub fn lines<'a>(
    head: &'a [u8],
    mut field: impl FnMut(&'a str, &'a [u8]),
) -> Option<FirstLine<'a>> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut request = Request::new(&mut fields);
    match request.parse(head) {
        Ok(Status::Complete(length)) if length == head.len() && is_clean(head) => {}
        Ok(_) | Err(_) => return None,
    }
    request.headers.iter().for_each(|line| field(line.name, line.value));
    let (method, target) = (request.method?, request.path?);
    Some(FirstLine { method, target, version10: request.version == Some(0) })
}

/// Whether each line of a complete head ends in CRLF.
pub(crate) fn is_clean(head: &[u8]) -> bool {
    // The loop has no early exit, so it compiles to vector instructions.
    let bare = |(before, byte): (&u8, &u8)| *byte == b'\n' && *before != b'\r';
    let pairs = head.iter().zip(head.get(1..).unwrap_or_default());
    head.first() != Some(&b'\n') && !pairs.fold(false, |found, pair| found | bare(pair))
}

/// The fault of the fields of a complete head with at most this number of fields: the lines after
/// its first line.
#[cold]
pub(crate) fn diagnose(fields: &[u8], most: usize) -> Fault {
    let mut count = 0;
    for line in fields.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if has_control(line) {
            return Fault::Control;
        } else if line.is_empty() {
            break;
        } else if matches!(line, [b' ' | b'\t', ..]) {
            return Fault::Fold;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        match &line[..colon] {
            [.., b' ' | b'\t'] if colon < line.len() => return Fault::Blank,
            name if name.iter().all(|byte| is_token(*byte)) => count += 1,
            _ => return Fault::Field,
        }
    }
    if count > most { Fault::Fields } else { Fault::Field }
}

pub(crate) fn has_control(line: &[u8]) -> bool {
    line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
}

/// Whether the byte may be part of a token (RFC 9110 section 5.6.2).
#[must_use]
pub const fn is_token(byte: u8) -> bool {
    matches!(byte, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^')
        || matches!(byte, b'_' | b'`' | b'|' | b'~')
        || byte.is_ascii_alphanumeric()
}

/// The elements of a list (RFC 9110 section 5.6.1) without white space around them.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether the list has the element `token`, in any case.
pub(crate) fn has_token(value: &[u8], token: &[u8]) -> bool {
    tokens(value).any(|element| element.eq_ignore_ascii_case(token))
}
