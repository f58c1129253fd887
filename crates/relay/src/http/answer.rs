//! The head of a response (RFC 9112 section 4), and the framing of its body (section 6.3).

use std::mem::MaybeUninit;

use httparse::{Header, Response, Status};

use crate::sniff::http::{FIELDS, has_token, is_clean, number, tokens};

/// The largest head of a response.
pub(super) const HEAD: usize = 64 << 10;

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) length: usize,
    pub(super) status: u16,
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
    /// Two parsers may disagree.
    Doubtful,
}

/// Decodes the head at the front of `bytes`. `None`: the head is incomplete or malformed.
pub(super) fn parse(bytes: &[u8]) -> Option<Answer> {
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
            Some(examine(&response, length))
        }
        Ok(_) | Err(_) => None,
    }
}

fn examine(response: &Response<'_, '_>, length: usize) -> Answer {
    let version10 = response.version == Some(0);
    let (mut size, mut is_doubtful) = (None, false);
    let (mut is_chunked, mut has_encoding) = (false, false);
    let (mut close, mut keep_alive) = (false, false);
    for Header { name, value } in &*response.headers {
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => {
                close |= has_token(value, b"close");
                keep_alive |= has_token(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                for element in tokens(value) {
                    let element = number(element);
                    is_doubtful |= element.is_none() || size.is_some_and(|_| size != element);
                    size = element;
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                has_encoding = true;
                for coding in tokens(value) {
                    is_doubtful |= is_chunked || coding.is_empty();
                    is_chunked |= coding.eq_ignore_ascii_case(b"chunked");
                }
            }
            _ => {}
        }
    }
    is_doubtful |= has_encoding && (version10 || size.is_some());
    let body = match size {
        _ if is_doubtful => Framing::Doubtful,
        _ if is_chunked => Framing::Chunked,
        Some(size) => Framing::Length(size),
        None => Framing::UntilEnd,
    };
    let status = response.code.unwrap_or_default();
    Answer { length, status, body, close: close || (version10 && !keep_alive) }
}
