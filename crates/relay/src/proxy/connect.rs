//! The request of HTTP CONNECT (RFC 9110 section 9.3.6), and its answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use h1::{Scan, Scanned, is_token};
use proto::ResetCode;
use zeroize::Zeroizing;

use super::{Decoded, Endpoint, Fault, Given};

/// Bytes of the largest head. Programs send some hundred; an `Authorization` of Kerberos has up to
/// 12 KiB.
pub(crate) const HEAD: usize = 16 << 10;

/// The answer after which the connection is that of the target.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    /// Where to; `Err`: the request is well-formed, and is refused after the check of the user.
    pub(crate) target: Result<Endpoint, Fault>,
    /// The user and the password; `None`: the request has none that can be understood.
    pub(crate) given: Option<Given>,
}

/// Decodes the head of a request. It looks at each byte once, however the bytes are cut.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    scan: Option<Scan>,
}

impl Decoder {
    /// Looks at `bytes`, which are all that arrived since the first byte of the connection.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Decoded<Connect> {
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
                Some(connect) => Decoded::Done(connect, end),
                None => Decoded::Bad(Fault::Malformed),
            },
        }
    }
}

/// Decodes a complete head.
fn parse(head: &[u8]) -> Option<Connect> {
    let (mut given, mut count) = (None, 0);
    let line = h1::lines(head, |name, value| {
        if name.eq_ignore_ascii_case("proxy-authorization") {
            count += 1;
            given = basic(value);
        }
    });
    let target = match line? {
        ("CONNECT", target) => Endpoint::parse(target.as_bytes()).ok_or(Fault::Target),
        _ => Err(Fault::NotConnect),
    };
    Some(Connect { target, given: given.filter(|_| count == 1) })
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

/// The answer to a request that cannot be carried out, and why, in a sentence.
pub(crate) fn refusal(code: ResetCode) -> Vec<u8> {
    let (status, reason) = match code {
        ResetCode::Refused => (502, "The target refused the connection."),
        ResetCode::Timeout => (504, "The target did not answer in time."),
        ResetCode::Unreachable => {
            (502, "There is no way to the target, or its name does not resolve.")
        }
        ResetCode::Denied => (403, "The target is not allowed."),
        ResetCode::Limit => (503, "A limit of connections is reached."),
        ResetCode::Shutdown => (503, "There is no connection to the other side at present."),
        ResetCode::Aborted | ResetCode::Unknown | ResetCode::Internal | ResetCode::Other(_) => {
            (502, "The target could not be connected.")
        }
    };
    page(status, "", reason)
}

/// The answer to a request that is not understood or not admitted.
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
        Fault::NotConnect => page(
            405,
            "Allow: CONNECT\r\n",
            "This proxy carries connections by CONNECT alone, as for https:// addresses.",
        ),
        Fault::Size => page(431, "", "The head of the request is larger than 16 KiB."),
        Fault::Target => page(400, "", "The target of CONNECT is a host and a port: host:443."),
        Fault::HttpAtSocks => page(
            400,
            "",
            "This port speaks SOCKS5. Set the program to a SOCKS5 proxy, or use a port for HTTP \
             CONNECT.",
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

/// A complete answer. The connection ends after it.
fn page(status: u16, fields: &str, reason: &str) -> Vec<u8> {
    let phrase = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {status} {phrase}\r\n{fields}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{reason}\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Decoded<Connect> {
        Decoder::default().look(bytes)
    }

    fn target(head: &str) -> Result<String, Fault> {
        match whole(head.as_bytes()) {
            Decoded::Done(connect, length) => {
                assert_eq!(length, head.len());
                connect.target.map(|target| target.to_string())
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
            ("connect example.com:80 HTTP/1.1\r\n\r\n", Err(Fault::NotConnect)),
            ("GET http://example.com/ HTTP/1.1\r\n\r\n", Err(Fault::NotConnect)),
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
                Decoded::Done(connect, _) => connect.given,
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
        let faults = [Fault::Denied, Fault::NotConnect, Fault::Size, Fault::Target].map(complaint);
        for answer in codes.chain(faults) {
            let answer = String::from_utf8(answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{answer}");
            assert!(head.ends_with("Connection: close"), "{answer}");
        }
        assert!(refusal(ResetCode::Denied).starts_with(b"HTTP/1.1 403 "));
        assert!(refusal(ResetCode::Timeout).starts_with(b"HTTP/1.1 504 "));
        assert!(complaint(Fault::Denied).starts_with(b"HTTP/1.1 407 "));
    }
}
