//! The head of a response (RFC 9112 section 4), and the framing of its body (section 6.3).
//!
//! A head is accepted if nginx, haproxy, Node, Go and hyper read the same framing in it. Where one
//! of them differs, the head is a [`Doubt`].

use std::mem::MaybeUninit;

use httparse::{Header, Response, Status};

use crate::Doubt;
use crate::framing::{Framing, Said};
use crate::lines::{self, FIELDS, is_clean};

/// The largest head of a response.
pub(crate) const HEAD: usize = 64 << 10;

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) length: usize,
    pub(crate) status: u16,
    pub(crate) version10: bool,
    /// The framing that the fields give; some responses have no body whatever their fields say.
    pub(crate) body: Framing,
    /// No response follows.
    pub(crate) close: bool,
}

/// Decodes the head at the front of `bytes`. `None`: the head is incomplete, or its lines are
/// malformed, or it is over the limit.
pub(crate) fn parse(bytes: &[u8]) -> Option<Result<Answer, Doubt>> {
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
pub(crate) fn diagnose(head: &[u8]) -> Doubt {
    let line = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
    let (status_line, fields) = head.split_at(line);
    let status_line = [status_line, b"\n\r\n"].concat();
    if parse(&status_line).is_none() {
        return Doubt::StatusLine;
    }
    lines::diagnose(fields.get(1..).unwrap_or_default()).into()
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
