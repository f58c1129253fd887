//! The check of the head of an HTTP/1 request: pure, line by line, each byte once.
//!
//! hyper's parser accepts heads that another parser reads as something else: lines that end with a
//! bare LF, `Content-Length` beside `Transfer-Encoding`, `Content-Length` twice, transfer codings
//! before `chunked`. A target behind such a head could see another request than the proxy
//! (request smuggling, RFC 9112 section 11.2). Only heads with one meaning pass.

use crate::Refusal;

/// The longest head of a request in bytes.
pub(crate) const LONGEST_HEAD: usize = 32 * 1024;
/// The highest number of fields of a request.
pub(crate) const MOST_FIELDS: usize = 100;

/// What a head says about the bytes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the head with its empty line.
    pub(super) length: usize,
    pub(super) body: Body,
    /// The bytes after the message may be of another protocol.
    pub(super) upgrade: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Fixed(u64),
    Chunked,
}

/// The state of the check between two looks at a growing head.
#[derive(Debug, Default)]
pub(super) struct HeadCheck {
    line: usize,
    scanned: usize,
    fields: usize,
    request_line: bool,
    http_10: bool,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

impl HeadCheck {
    /// Looks at a head that has grown. `None` as long as the head is not complete.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Result<Option<Head>, Refusal> {
        while let Some(at) = bytes[self.scanned..].iter().position(|&byte| byte == b'\n') {
            let end = self.scanned + at;
            let line = &bytes[self.line..end];
            if end >= LONGEST_HEAD {
                return Err(self.too_long());
            }
            self.scanned = end + 1;
            self.line = end + 1;
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(Refusal::new(400, "A line of the request ends without CR."));
            };
            if !self.request_line {
                self.request_line(line)?;
            } else if line.is_empty() {
                return self.complete(end + 1).map(Some);
            } else {
                self.field(line)?;
            }
        }
        self.scanned = bytes.len();
        if self.scanned >= LONGEST_HEAD {
            return Err(self.too_long());
        }
        Ok(None)
    }

    fn too_long(&self) -> Refusal {
        if self.request_line {
            Refusal::new(431, "The head of the request is longer than 32 KiB.")
        } else {
            Refusal::new(414, "The address of the request is longer than 32 KiB.")
        }
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        const MALFORMED: Refusal = Refusal::new(400, "The request line is malformed.");
        self.request_line = true;
        let mut parts = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(MALFORMED);
        };
        if method.is_empty() || !method.iter().copied().all(is_token) {
            return Err(MALFORMED);
        }
        if target.is_empty() || !target.iter().all(|&byte| byte > b' ' && byte != 0x7f) {
            return Err(MALFORMED);
        }
        self.http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ if version.starts_with(b"HTTP/") => {
                return Err(Refusal::new(505, "The server speaks HTTP/1.1, HTTP/1.0 and HTTP/2."));
            }
            _ => return Err(MALFORMED),
        };
        if method == b"CONNECT" {
            return Err(Refusal::new(501, "The server is no forward proxy: it refuses CONNECT."));
        }
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Refusal> {
        self.fields += 1;
        if self.fields > MOST_FIELDS {
            return Err(Refusal::new(431, "The request has more than 100 fields."));
        }
        let (name, value) = field(line)?;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.hosts += 1;
                if self.hosts > 1 {
                    return Err(Refusal::new(400, "The request has the field Host twice."));
                }
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = !self.http_10,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.is_some() {
                    return Err(Refusal::new(400, "The request has Content-Length twice."));
                }
                self.length = Some(number(value)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.coding(value)?,
            _ => {}
        }
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.http_10 {
            return Err(Refusal::new(400, "A request of HTTP/1.0 has Transfer-Encoding."));
        }
        if self.chunked {
            return Err(Refusal::new(400, "The request has Transfer-Encoding twice."));
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
            return Ok(());
        }
        let last = value.rsplit(|&byte| byte == b',').next().unwrap_or_default();
        if last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal::new(501, "The server knows no transfer coding but chunked."));
        }
        Err(Refusal::new(400, "The transfer codings of the request do not end with chunked."))
    }

    fn complete(&self, length: usize) -> Result<Head, Refusal> {
        let body = match (self.length, self.chunked) {
            (Some(_), true) => {
                return Err(Refusal::new(
                    400,
                    "The request has both Content-Length and Transfer-Encoding.",
                ));
            }
            (None, true) => Body::Chunked,
            (length, false) => Body::Fixed(length.unwrap_or(0)),
        };
        Ok(Head { length, body, upgrade: self.upgrade })
    }
}

/// Name and value of a line of fields, of the head or of trailers.
pub(super) fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Refusal::new(400, "A field of the request continues on a second line."));
    }
    let colon = line.iter().position(|&byte| byte == b':');
    let Some((name, value)) = colon.and_then(|at| line.split_at_checked(at)) else {
        return Err(Refusal::new(400, "A field of the request has no colon."));
    };
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return Err(Refusal::new(400, "The name of a field of the request is malformed."));
    }
    // Other control characters than a tab, a bare CR among them.
    if value.iter().any(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
        return Err(Refusal::new(400, "A field of the request contains a control character."));
    }
    Ok((name, value[1..].trim_ascii()))
}

fn number(value: &[u8]) -> Result<u64, Refusal> {
    // 18 digits cannot overflow.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::new(400, "The value of Content-Length is no number."));
    }
    Ok(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// `tchar` of RFC 9110 section 5.6.2.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}
