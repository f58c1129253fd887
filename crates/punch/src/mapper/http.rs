//! The subset of HTTP/1.1 (RFC 9112) that UPnP needs: one request per connection, and a bounded
//! response. Requests are sent only to the router, so an unusual response may simply be rejected.

use std::net::SocketAddrV4;

/// Maximum length of a response, in bytes. The descriptions of routers have up to 20 kB.
pub(super) const LONGEST: usize = 64 << 10;

/// Maximum length of a chunk line, in bytes, as in most servers.
const CHUNK_LINE: usize = 1 << 10;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

pub(super) fn get(host: SocketAddrV4, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
}

pub(super) fn post(host: SocketAddrV4, path: &str, action: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Content-Type: text/xml; charset=\"utf-8\"\r\nSOAPAction: \"{action}\"\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Whether a response body is complete.
enum Body {
    Whole(Vec<u8>),
    Part,
    Wrong,
}

/// Whether these bytes are a complete response, or can never become one, so that no more bytes need
/// to be read. A response without a length ends with its connection.
pub(super) fn is_over(bytes: &[u8]) -> bool {
    if bytes.len() > LONGEST {
        return true;
    }
    match split(bytes) {
        None => false,
        Some((head, rest)) => !matches!(body(head, rest, false), Body::Part),
    }
}

/// Parses a response that has ended.
pub(super) fn response(bytes: &[u8]) -> Option<Response> {
    let (head, rest) = split(bytes).filter(|_| bytes.len() <= LONGEST)?;
    let status = head.split(' ').nth(1)?.get(..3)?.parse().ok()?;
    let is_http = head.starts_with("HTTP/1.");
    match body(head, rest, true) {
        Body::Whole(body) if is_http => Some(Response { status, body }),
        Body::Whole(_) | Body::Part | Body::Wrong => None,
    }
}

/// Splits a response into its header and the bytes after the empty line.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&bytes[..end]).unwrap_or_default(), &bytes[end + 4..]))
}

/// The value of a header field.
pub(super) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
}

fn body(head: &str, rest: &[u8], has_ended: bool) -> Body {
    if field(head, "Transfer-Encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    {
        return chunks(rest);
    }
    match field(head, "Content-Length").map(str::parse::<usize>) {
        Some(Ok(length)) => match rest.get(..length) {
            Some(whole) => Body::Whole(whole.to_vec()),
            None if length > LONGEST => Body::Wrong,
            None => Body::Part,
        },
        Some(Err(_)) => Body::Wrong,
        None if has_ended => Body::Whole(rest.to_vec()),
        None => Body::Part,
    }
}

fn chunks(mut rest: &[u8]) -> Body {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return if rest.len() > CHUNK_LINE { Body::Wrong } else { Body::Part };
        };
        let line = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = match usize::from_str_radix(digits, 16) {
            Ok(length) if length <= LONGEST => length,
            Ok(_) | Err(_) => return Body::Wrong,
        };
        rest = &rest[end + 2..];
        if length == 0 {
            return Body::Whole(body);
        }
        let Some(chunk) = rest.get(..length + 2) else { return Body::Part };
        body.extend(&chunk[..length]);
        rest = &rest[length + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(u16, String)> {
        let Response { status, body } = response(text.as_bytes())?;
        Some((status, String::from_utf8(body).unwrap()))
    }

    #[test]
    fn an_answer_ends_by_its_length_its_chunks_or_its_connection() {
        for (text, ends_itself) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
                true,
            ),
            ("HTTP/1.0 200 OK\r\nServer: x\r\n\r\nabc", false),
        ] {
            assert_eq!(read(text), Some((200, "abc".to_owned())), "{text}");
            assert_eq!(is_over(text.as_bytes()), ends_itself, "{text}");
        }
        assert!(!is_over(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"));
        assert!(!is_over(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab"));
    }

    #[test]
    fn an_answer_without_a_meaning_is_none_and_is_read_no_further() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx",
        ] {
            assert_eq!(read(text), None, "{text}");
            assert!(is_over(text.as_bytes()), "{text}");
        }
        assert_eq!(read("220 ready\r\n\r\n"), None);
        let long = vec![b'a'; LONGEST + 1];
        assert!(is_over(&long) && response(&long).is_none());
    }
}
