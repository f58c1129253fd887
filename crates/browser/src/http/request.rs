//! A request as bytes (RFC 9112 section 3).

use bytes::{BufMut as _, Bytes, BytesMut};

/// The length of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No body.
    None,
    /// A body of this length, in bytes.
    Length(u64),
    /// The length is unknown: the body is sent in chunks.
    Unknown,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The host.
    pub host: &'a str,
    /// A field in each line, `Name: value`.
    pub fields: &'a str,
    /// The body that follows.
    pub body: Body,
}

/// A request that cannot be encoded as a single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the request has a character that ends the part")]
pub struct BadRequest;

/// Header fields about the connection, and fields that this end writes itself.
const OURS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Request<'_> {
    /// The head as bytes.
    pub(crate) fn head(&self) -> Result<Bytes, BadRequest> {
        let is_graphic =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let is_target = self.target.starts_with('/') && is_graphic(self.target);
        if !is_token(self.method) || !is_target || !is_graphic(self.host) {
            return Err(BadRequest);
        }
        let mut out = BytesMut::new();
        let first = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, self.host);
        out.put_slice(first.as_bytes());
        for line in self.fields.split('\n').filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(BadRequest)?;
            if !is_token(name) || value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
                return Err(BadRequest);
            }
            if !OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
                out.put_slice(format!("{name}: {}\r\n", value.trim()).as_bytes());
            }
        }
        match self.body {
            Body::None => {}
            Body::Length(length) => {
                out.put_slice(format!("Content-Length: {length}\r\n").as_bytes());
            }
            Body::Unknown => out.put_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        out.put_slice(b"Connection: close\r\n\r\n");
        Ok(out.freeze())
    }
}

impl Body {
    /// Encodes a piece of the body. `None`: the body is longer than declared, and the rest would be
    /// taken for another request.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> Option<Bytes> {
        let left = match self {
            Self::None => 0,
            Self::Length(left) => *left,
            Self::Unknown if bytes.is_empty() => return Some(Bytes::new()),
            Self::Unknown => {
                let mut out = BytesMut::from(format!("{:x}\r\n", bytes.len()).as_bytes());
                out.put_slice(bytes);
                out.put_slice(b"\r\n");
                return Some(out.freeze());
            }
        };
        let left = left.checked_sub(u64::try_from(bytes.len()).ok()?)?;
        if let Self::Length(length) = self {
            *length = left;
        }
        Some(Bytes::copy_from_slice(bytes))
    }

    /// The bytes at the end of the body; nothing follows them. `None`: the body is shorter than
    /// declared.
    pub(crate) fn end(&mut self) -> Option<&'static [u8]> {
        match std::mem::replace(self, Self::None) {
            Self::None | Self::Length(0) => Some(b""),
            Self::Length(_) => None,
            Self::Unknown => Some(b"0\r\n\r\n"),
        }
    }
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    let is = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Request<'_> =
        Request { method: "GET", target: "/a?b", host: "h:1", fields: "", body: Body::None };

    #[test]
    fn a_request_is_one_message_and_says_that_nothing_follows() {
        let fields = "Accept: */*\nhost: evil\nContent-Length: 7\nX-A:  b\n";
        let head = Request { fields, ..GET }.head().unwrap();
        let wanted = "GET /a?b HTTP/1.1\r\nHost: h:1\r\nAccept: */*\r\nX-A: b\r\n\
                      Connection: close\r\n\r\n";
        assert_eq!(head, wanted);
        let head = Request { method: "POST", body: Body::Length(3), ..GET }.head().unwrap();
        assert!(head.windows(19).any(|part| part == b"Content-Length: 3\r\n"));
    }

    #[test]
    fn a_part_with_a_line_end_is_no_request() {
        for bad in [
            Request { method: "GET /", ..GET },
            Request { target: "a", ..GET },
            Request { target: "/a HTTP/1.1\r\nX: y", ..GET },
            Request { host: "", ..GET },
            Request { host: "a\r\nb: c", ..GET },
            Request { fields: "a: b\rc: d", ..GET },
            Request { fields: "a b: c", ..GET },
            Request { fields: "nothing", ..GET },
        ] {
            assert_eq!(bad.head(), Err(BadRequest), "{bad:?}");
        }
    }

    #[test]
    fn a_body_of_unknown_length_goes_in_chunks() {
        let mut body = Body::Unknown;
        assert_eq!(body.piece(&[b'a'; 26]).unwrap(), format!("1a\r\n{}\r\n", "a".repeat(26)));
        assert_eq!((body.piece(b"").unwrap().len(), body.end()), (0, Some(&b"0\r\n\r\n"[..])));
        assert_eq!(body.piece(b"a"), None, "behind the end");
    }

    #[test]
    fn a_body_has_the_length_of_its_head() {
        let mut body = Body::Length(3);
        assert_eq!(body.piece(b"ab").unwrap(), "ab");
        assert_eq!(body.piece(b"cd"), None);
        assert_eq!(body.piece(b"c").unwrap(), "c");
        assert_eq!(body.end(), Some(&b""[..]));
        assert_eq!(Body::Length(2).end(), None);
        assert_eq!(Body::None.piece(b"GET / HTTP/1.1\r\n\r\n"), None);
    }
}
