//! Writes and reads the head of an HTTP/1.1 message. The length is bounded, and httparse parses the
//! head.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use httparse::{Header, Status};
use transport::Lane;

/// The longest head, in bytes; nginx allows half of it by default.
pub(super) const HEAD: usize = 16 << 10;

/// The largest number of header fields.
pub(super) const FIELDS: usize = 64;

/// Writes all of `text`.
pub(super) async fn write(lane: &mut dyn Lane, text: Bytes) -> io::Result<()> {
    let mut frames = VecDeque::from([text]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    poll_fn(|cx| lane.poll_flush(cx)).await
}

/// The reason why no head could be read.
#[derive(Debug)]
pub(super) enum NoHead {
    Io(io::Error),
    /// The head is longer than [`HEAD`] or has more than [`FIELDS`] fields.
    TooLarge,
    /// The bytes are no HTTP/1.1.
    Malformed,
}

/// Reads until `look` finds a complete head at the front of `buf`, and removes the head. Returns
/// the result of `look`; the bytes after the head stay in `buf`.
pub(super) async fn read<T>(
    lane: &mut dyn Lane,
    buf: &mut BytesMut,
    mut look: impl FnMut(&[u8]) -> httparse::Result<(T, usize)>,
) -> Result<T, NoHead> {
    loop {
        let before = buf.len();
        buf.reserve(HEAD - before);
        let size = poll_fn(|cx| lane.poll_read(cx, buf)).await.map_err(NoHead::Io)?;
        if size == 0 {
            let text = "the connection ended before the HTTP head did";
            return Err(NoHead::Io(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
        }
        // Parsing only at line ends keeps the cost of a slow sender at one pass per line, not one
        // per byte.
        if buf[before..].contains(&b'\n') {
            match look(buf) {
                Ok(Status::Complete((found, size))) => {
                    buf.advance(size);
                    return Ok(found);
                }
                Ok(Status::Partial) => {}
                Err(httparse::Error::TooManyHeaders) => return Err(NoHead::TooLarge),
                Err(_) => return Err(NoHead::Malformed),
            }
        }
        if buf.len() >= HEAD {
            return Err(NoHead::TooLarge);
        }
    }
}

/// All values of the field `name`.
pub(super) fn values<'a>(
    fields: &'a [Header<'_>],
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> {
    let named = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    named.map(|field| field.value.trim_ascii())
}

/// The value of the field `name`; `None` unless the field occurs exactly once.
pub(super) fn only<'a>(fields: &'a [Header<'_>], name: &'a str) -> Option<&'a [u8]> {
    let mut values = values(fields, name);
    values.next().filter(|_| values.next().is_none())
}

/// Whether a list field (RFC 9110 section 5.6.1) contains `word`, in upper or lower case.
pub(super) fn has(fields: &[Header<'_>], name: &str, word: &str) -> bool {
    values(fields, name)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}
