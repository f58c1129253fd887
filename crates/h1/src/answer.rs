//! The header section of a response (RFC 9112 section 4), and the framing of its body (section
//! 6.3).
//!
//! A head is accepted if nginx, haproxy, Node, Go and hyper read the same framing in it. Where one
//! of them differs, the head is a [`Doubt`], which [`mend`](crate::mend) may remove.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Response, Status};

use crate::Doubt;
use crate::framing::{Framing, Said};
use crate::lines::{self, FIELDS, is_clean};

/// The largest head of a response in bytes. By default nginx accepts 4 to 8 KiB from a target,
/// haproxy and Node 16 KiB, Envoy 60 KiB, Chromium 256 KiB, curl 300 KiB and Go 10 MiB.
pub const ANSWER_HEAD: usize = 128 << 10;

/// The largest number of fields in a response. By default haproxy accepts 101, Node 2,000 and curl
/// 5,000; nginx and Go have no limit of their own.
pub const ANSWER_FIELDS: usize = 500;

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) length: usize,
    pub(crate) status: u16,
    pub(crate) version10: bool,
    /// The framing that the fields declare; some responses have no body regardless of their fields.
    pub(crate) body: Framing,
    /// Whether no further response follows.
    pub(crate) close: bool,
}

/// Decodes the head at the front of `bytes`. `None`: the head is incomplete or malformed, or it
/// exceeds a limit.
pub(crate) fn parse(bytes: &[u8]) -> Option<Result<Answer, Doubt>> {
    let bytes = &bytes[..bytes.len().min(ANSWER_HEAD)];
    // httparse skips any number of empty lines.
    if bytes.first() != Some(&b'H') {
        return None;
    }
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    parse_into(bytes, &mut fields).unwrap_or_else(|_| parse_many(bytes))
}

/// As [`parse`], for a head with more than [`FIELDS`] fields.
#[cold]
fn parse_many(bytes: &[u8]) -> Option<Result<Answer, Doubt>> {
    let mut fields = vec![MaybeUninit::uninit(); ANSWER_FIELDS];
    parse_into(bytes, &mut fields).ok().flatten()
}

/// The head has more fields than `fields` holds.
struct TooMany;

fn parse_into<'b>(
    bytes: &'b [u8],
    fields: &mut [MaybeUninit<Header<'b>>],
) -> Result<Option<Result<Answer, Doubt>>, TooMany> {
    let mut response = Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut response, bytes, fields) {
        Ok(Status::Complete(length)) if is_clean(&bytes[..length]) => {
            Ok(Some(examine(&response, &bytes[..length])))
        }
        Err(Error::TooManyHeaders) => Err(TooMany),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// The doubt about a complete head that `parse` rejects. Each of its lines ends in CRLF.
#[cold]
pub(crate) fn diagnose(head: &[u8]) -> Doubt {
    let line = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
    let (status_line, fields) = head.split_at(line);
    let status_line = [status_line, b"\n\r\n"].concat();
    if parse(&status_line).is_none() {
        return Doubt::StatusLine;
    }
    lines::diagnose(fields.get(1..).unwrap_or_default(), ANSWER_FIELDS).into()
}

fn examine(response: &Response<'_, '_>, head: &[u8]) -> Result<Answer, Doubt> {
    let version10 = response.version == Some(0);
    let mut said = Said::default();
    for Header { name, value } in &*response.headers {
        said.read(head, name, value)?;
    }
    let body = said.framing(version10)?;
    let status = response.code.unwrap_or_default();
    // The first digit is the class of the status (RFC 9110 section 15).
    if status < 100 {
        return Err(Doubt::StatusLine);
    }
    let close = said.closes(version10);
    Ok(Answer { length: head.len(), status, version10, body, close })
}
