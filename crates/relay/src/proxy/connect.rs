//! The requests to an HTTP proxy, CONNECT (RFC 9110 section 9.3.6) and requests for `http://`
//! addresses, and its answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use h1::{Scan, Scanned, is_token};
use proto::ResetCode;
use zeroize::Zeroizing;

use super::{Decoded, Endpoint, Fault, Given, absolute};

/// The size of the largest header, in bytes. Programs send a few hundred; a Kerberos
/// `Authorization` has up to 12 KiB.
pub(crate) const HEAD: usize = 16 << 10;

/// The answer after which the connection is connected to the target.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// What the visitor requests; `Err`: the header is well-formed, and the request is refused
    /// after the check of the user.
    pub(crate) wish: Result<Wish, Fault>,
    /// The user and the password; `None`: the request has no valid credentials.
    pub(crate) given: Option<Given>,
    /// Whether the method is HEAD, so that an answer has no body.
    pub(crate) is_head: bool,
}

/// What a visitor of an HTTP proxy requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A connection to a target.
    Connect(Endpoint),
    /// The answer to one request.
    Request(absolute::Request),
}

/// Decodes a request header. It inspects each byte once, however the bytes are split.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    scan: Option<Scan>,
}

impl Decoder {
    /// Inspects `bytes`, which are all bytes of the connection so far.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Decoded<Request> {
        match bytes {
            [] => return Decoded::More,
            [4 | 5, ..] => return Decoded::Bad(Fault::SocksAtHttp),
            [first, ..] if !is_token(*first) => return Decoded::Bad(Fault::Protocol),
            _ => {}
        }
        match self.scan.get_or_insert_with(|| Scan::after(0)).look(bytes, HEAD) {
            Scanned::More => Decoded::More,
            Scanned::BareLf => Decoded::Bad(Fault::Malformed),
            Scanned::Size => Decoded::Bad(Fault::Size),
            Scanned::End(end) => match parse(&bytes[..end]) {
                Some(request) => Decoded::Done(request, end),
                None => Decoded::Bad(Fault::Malformed),
            },
        }
    }
}

/// Decodes a complete header.
fn parse(head: &[u8]) -> Option<Request> {
    let mut fields = Vec::new();
    let line = h1::lines(head, |name, value| fields.push((name, value)))?;
    let is_given = |(name, _): &&(&str, &[u8])| name.eq_ignore_ascii_case("proxy-authorization");
    let mut given = fields.iter().filter(is_given).map(|(_, value)| basic(value));
    let given = given.next().flatten().filter(|_| given.next().is_none());
    let wish = match line.method {
        "CONNECT" => {
            Endpoint::parse(line.target.as_bytes()).map(Wish::Connect).ok_or(Fault::Target)
        }
        _ => absolute::request(line, &fields).map(Wish::Request),
    };
    Some(Request { wish, given, is_head: line.method == "HEAD" })
}

/// The user and the password of `Basic …` (RFC 7617).
fn basic(value: &[u8]) -> Option<Given> {
    let (scheme, token) = value.split_at_checked("Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let pair = Zeroizing::new(STANDARD.decode(token.trim_ascii()).ok()?);
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(Given::new(&pair[..colon], &pair[colon + 1..]))
}

/// The answer to a request that failed, with the reason as a sentence.
pub(crate) fn refusal(code: ResetCode) -> Vec<u8> {
    let (status, reason) = match code {
        ResetCode::Refused => (502, "The target refused the connection."),
        ResetCode::Timeout => (504, "The target did not answer in time."),
        ResetCode::Unreachable => {
            (502, "There is no way to the target, or its name does not resolve.")
        }
        ResetCode::Denied => (403, "The target is not allowed."),
        ResetCode::Limit => (503, "A limit of connections is reached."),
        ResetCode::Shutdown | ResetCode::Moved => {
            (503, "There is no connection to the other side at present.")
        }
        ResetCode::Aborted | ResetCode::Unknown | ResetCode::Internal | ResetCode::Other(_) => {
            (502, "The target could not be connected.")
        }
    };
    page(status, "", reason)
}

/// The answer to a request that is malformed or not admitted.
pub(crate) fn complaint(fault: Fault) -> Vec<u8> {
    match fault {
        Fault::Denied | Fault::Unauthenticated => page(
            407,
            "Proxy-Authenticate: Basic realm=\"tunnel\", charset=\"UTF-8\"\r\n",
            "The proxy asks for a user and a password.",
        ),
        Fault::Busy => page(
            429,
            "Retry-After: 5\r\n",
            "Too many wrong passwords came from your address: try again in a moment.",
        ),
        Fault::OriginForm => {
            page(400, "", "This port is an HTTP proxy, and the address of the request has no host.")
        }
        Fault::Https => page(
            400,
            "",
            "This proxy reaches https:// addresses by CONNECT alone: let the program open a tunnel.",
        ),
        Fault::Scheme => page(
            400,
            "",
            "This proxy takes addresses that begin with http://, and CONNECT for all others.",
        ),
        Fault::Address => page(400, "", "The address of the request has no valid host and port."),
        Fault::Request(fault) => page(fault.status(), "", fault.reason()),
        Fault::Size => page(431, "", "The head of the request is larger than 16 KiB."),
        Fault::Target => page(400, "", "The target of CONNECT is a host and a port: host:443."),
        Fault::HttpAtSocks => page(
            400,
            "",
            "This port speaks SOCKS5. Set the program to a SOCKS5 proxy, or use the port of an \
             HTTP proxy.",
        ),
        Fault::Socks4
        | Fault::SocksAtHttp
        | Fault::Protocol
        | Fault::Password
        | Fault::Method(_)
        | Fault::Command
        | Fault::AddressType
        | Fault::Malformed => page(400, "", "The bytes are no well-formed request of HTTP/1.1."),
    }
}

/// Makes a complete answer, after which the connection ends.
pub(super) fn page(status: u16, fields: &str, reason: &str) -> Vec<u8> {
    let phrase = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        407 => "Proxy Authentication Required",
        414 => "URI Too Long",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Bad Gateway",
    };
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {status} {phrase}\r\n{fields}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{reason}\n"
    )
    .into_bytes()
}

/// Removes the body of a complete answer, because the request method was HEAD.
pub(super) fn without_body(mut page: Vec<u8>) -> Vec<u8> {
    let end = page.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    page.truncate(end.map_or(0, |end| end + 4));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Decoded<Request> {
        Decoder::default().look(bytes)
    }

    fn target(head: &str) -> Result<String, Fault> {
        match whole(head.as_bytes()) {
            Decoded::Done(request, length) => {
                assert_eq!(length, head.len());
                request.wish.map(|wish| match wish {
                    Wish::Connect(target) => target.to_string(),
                    Wish::Request(request) => format!("http {}", request.target),
                })
            }
            Decoded::Bad(fault) => Err(fault),
            Decoded::More => panic!("incomplete: {head}"),
        }
    }

    #[test]
    fn the_target_is_that_of_the_request_line() {
        for (head, expected) in [
            ("CONNECT example.com:443 HTTP/1.1\r\nHost: other\r\n\r\n", Ok("example.com:443")),
            ("CONNECT example.com:443 HTTP/1.0\r\n\r\n", Ok("example.com:443")),
            ("CONNECT [::1]:22 HTTP/1.1\r\n\r\n", Ok("[::1]:22")),
            ("CONNECT example.com HTTP/1.1\r\n\r\n", Err(Fault::Target)),
            ("CONNECT example.com:0 HTTP/1.1\r\n\r\n", Err(Fault::Target)),
            ("CONNECT http://example.com:80/ HTTP/1.1\r\n\r\n", Err(Fault::Target)),
            ("CONNECT a@example.com:80 HTTP/1.1\r\n\r\n", Err(Fault::Target)),
            ("connect example.com:80 HTTP/1.1\r\n\r\n", Err(Fault::OriginForm)),
            ("GET http://example.com/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok("http example.com:80")),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Fault::OriginForm)),
            ("CONNECT example.com:80\r\n\r\n", Err(Fault::Malformed)),
            ("CONNECT example.com:80 HTTP/2.0\r\n\r\n", Err(Fault::Malformed)),
            ("CONNECT example.com:80 HTTP/1.1\n\n", Err(Fault::Malformed)),
            ("CONNECT example.com:80 HTTP/1.1\r\nA: b\n\r\n", Err(Fault::Malformed)),
            ("CONNECT example.com:80 HTTP/1.1\r\n a: b\r\n\r\n", Err(Fault::Malformed)),
            ("\r\nCONNECT example.com:80 HTTP/1.1\r\n\r\n", Err(Fault::Protocol)),
            ("\x05\x01\x00", Err(Fault::SocksAtHttp)),
            ("\x16\x03\x01", Err(Fault::Protocol)),
        ] {
            assert_eq!(target(head), expected.map(str::to_owned), "{head:?}");
        }
    }

    #[test]
    fn the_password_is_taken_from_one_field_alone() {
        let given = |fields: &str| {
            let head = format!("CONNECT a:1 HTTP/1.1\r\n{fields}\r\n");
            match whole(head.as_bytes()) {
                Decoded::Done(request, _) => request.given,
                other @ (Decoded::More | Decoded::Bad(_)) => panic!("{other:?}"),
            }
        };
        let anna = "Proxy-Authorization: Basic YW5uYTpvbmU6dHdv\r\n";
        assert_eq!(given(anna), Some(Given::new(b"anna", b"one:two")));
        assert_eq!(given(&anna.replace("Basic", "bASIC ")), Some(Given::new(b"anna", b"one:two")));
        for fields in [
            "",
            &anna.repeat(2),
            "Authorization: Basic YW5uYTpvbmU=\r\n",
            "Proxy-Authorization: Bearer YW5uYTpvbmU=\r\n",
            "Proxy-Authorization: Basic YW5uYQ==\r\n",
            "Proxy-Authorization: Basic %\r\n",
            "Proxy-Authorization: Basic\r\n",
            "Proxy-Authorization:\r\n",
        ] {
            assert_eq!(given(fields), None, "{fields}");
        }
    }

    #[test]
    fn pieces_of_any_size_mean_the_same() {
        for head in [
            &b"CONNECT example.com:443 HTTP/1.1\r\nA: b\r\n\r\nrest"[..],
            b"GET / HTTP/1.1\r\n\r\n",
            b"CONNECT a:1 HTTP/1.1\r\nA b\r\n\r\n",
            b"CONNECT a:1 HTTP/1.1\nA: b",
        ] {
            for size in 1..head.len() {
                let mut decoder = Decoder::default();
                let ends = (1..=head.len().div_ceil(size)).map(|n| head.len().min(n * size));
                let mut looks = ends.map(|end| decoder.look(&head[..end]));
                let outcome = looks.find(|outcome| *outcome != Decoded::More);
                assert_eq!(outcome, Some(whole(head)), "{size}");
            }
        }
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let mut head = b"CONNECT a:1 HTTP/1.1\r\nA: ".to_vec();
        head.resize(HEAD, b'x');
        assert_eq!(whole(&head), Decoded::Bad(Fault::Size));
        head.pop();
        assert_eq!(whole(&head), Decoded::More);
        let many = format!("CONNECT a:1 HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(h1::FIELDS + 1));
        assert_eq!(whole(many.as_bytes()), Decoded::Bad(Fault::Malformed));
    }

    #[test]
    fn answers_are_complete() {
        let codes = (1..=10).map(ResetCode::from_raw).map(refusal);
        let faults = [
            Fault::Denied,
            Fault::OriginForm,
            Fault::Https,
            Fault::Scheme,
            Fault::Address,
            Fault::Request(h1::Fault::Coding),
            Fault::Size,
            Fault::Target,
        ];
        let faults = faults.map(complaint);
        for answer in codes.chain(faults) {
            let answer = String::from_utf8(answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{answer}");
            assert!(head.ends_with("Connection: close"), "{answer}");
            let bodiless = without_body(answer.clone().into());
            assert_eq!(bodiless, &answer.as_bytes()[..head.len() + 4]);
        }
        assert!(refusal(ResetCode::Denied).starts_with(b"HTTP/1.1 403 "));
        assert!(refusal(ResetCode::Timeout).starts_with(b"HTTP/1.1 504 "));
        assert!(complaint(Fault::Denied).starts_with(b"HTTP/1.1 407 "));
    }
}
