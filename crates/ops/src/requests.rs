//! The requests of visitors that a client records for inspection, as plain data: the list, one
//! request in full, and the masking of secrets.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// Replaces a secret.
pub const MASK: &str = "(secret)";

/// The header fields whose values are secrets: credentials, and cookies, which are often
/// credentials (RFC 9110 sections 11.6.2 and 11.7.2, RFC 6265).
const SECRET_FIELDS: [&str; 6] =
    ["authorization", "proxy-authorization", "cookie", "cookie2", "set-cookie", "set-cookie2"];

/// A filter for listed requests. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestFilter {
    /// The name of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The method, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The class of the status: 4 for 400 to 499.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u8>,
    /// A text in the path, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only requests with a greater number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
}

impl RequestFilter {
    /// Whether the filter accepts a request.
    #[must_use]
    pub fn takes(&self, one: &SeenRequest) -> bool {
        let Self { service, method, class, path, since } = self;
        let lower = |text: &str| text.to_lowercase();
        service.as_ref().is_none_or(|name| *name == one.service)
            && method.as_ref().is_none_or(|method| method.eq_ignore_ascii_case(&one.method))
            && class.is_none_or(|class| one.status.is_some_and(|it| it / 100 == u16::from(class)))
            && path.as_ref().is_none_or(|path| lower(&one.path).contains(&lower(path)))
            && since.is_none_or(|since| one.id > since)
    }
}

/// The kept requests, newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenRequests {
    pub requests: Vec<SeenRequest>,
    /// The requests that were not kept, because memory was short.
    #[serde(default)]
    pub lost: u64,
    /// Memory of the kept requests, in bytes.
    #[serde(default)]
    pub memory_bytes: u64,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestProgress {
    /// The response has not ended.
    #[default]
    Open,
    /// Request and response are complete.
    Complete,
    /// The connection ended before the end of the response, or the bytes could not be parsed.
    Cut,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl RequestProgress {
    /// All words.
    pub const ALL: &[Self] = &[Self::Open, Self::Complete, Self::Cut];
}

/// A request with its response, as a list shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenRequest {
    /// The number of the request in this process, from 1.
    pub id: u64,
    /// The name of the service.
    pub service: String,
    /// When the request header arrived, in milliseconds since 1970.
    pub unix_millis: u64,
    pub progress: RequestProgress,
    /// The address of the visitor, if the server reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visitor: Option<String>,
    /// The method; empty: a connection whose bytes cannot be parsed, such as unencrypted HTTP/2.
    pub method: String,
    /// The target of the request, truncated to 512 bytes.
    pub path: String,
    /// The final status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Time from the request header to the header of the final response, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_micros: Option<u64>,
    /// Time from the request header to the end, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_micros: Option<u64>,
    /// Size of the request body; after a switch of protocols, the bytes of the visitor.
    pub request_bytes: u64,
    /// Size of the response body; after a switch of protocols, the bytes of the target.
    pub response_bytes: u64,
    /// The WebSocket messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// The number of the request of which this request is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<u64>,
}

/// WebSocket messages (RFC 6455), without control frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// From the visitor.
    #[serde(rename = "in")]
    pub incoming: u64,
    /// From the target.
    #[serde(rename = "out")]
    pub outgoing: u64,
}

/// A request with its response in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestDetail {
    #[serde(flatten)]
    pub seen: SeenRequest,
    /// Absent: the bytes of the connection cannot be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<HttpMessage>,
    /// Interim responses (RFC 9110 section 15.2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interim: Vec<HttpMessage>,
    /// The final response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<HttpMessage>,
    /// The reason why the request cannot be replayed; absent: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_replay: Option<String>,
}

/// A request or a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpMessage {
    /// The first line.
    pub line: String,
    pub fields: Vec<HttpField>,
    /// The trailer fields after a chunked body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trailers: Vec<HttpField>,
    pub body: KeptBody,
}

/// A field of a header or trailer section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpField {
    pub name: String,
    pub value: String,
    /// Whether a part of the value is omitted, because it is secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
}

/// The kept bytes of a body, as received: a content coding is not decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBody {
    /// Size of the whole body, in bytes.
    pub bytes: u64,
    /// The kept bytes, if they are UTF-8 without control characters except line ends and tabs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The kept bytes in base64, if they are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Whether only the first bytes of the body are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether nothing of the body is kept, because memory was short.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
}

impl KeptBody {
    /// A body of `bytes` bytes of which `kept` bytes are kept.
    #[must_use]
    pub fn of(kept: &[u8], bytes: u64, left_out: bool) -> Self {
        let text = match std::str::from_utf8(kept) {
            Ok(text) => Some(text),
            // The truncation may have split a character.
            Err(error) if error.error_len().is_none() && (kept.len() as u64) < bytes => {
                kept.get(..error.valid_up_to()).and_then(|whole| std::str::from_utf8(whole).ok())
            }
            Err(_) => None,
        };
        let is_plain = |c: char| !c.is_control() || matches!(c, '\r' | '\n' | '\t');
        let text = text.filter(|text| text.chars().all(is_plain)).map(str::to_owned);
        let base64 = text.is_none().then(|| BASE64_STANDARD.encode(kept));
        Self { bytes, text, base64, cut: !left_out && (kept.len() as u64) < bytes, left_out }
    }
}

impl HttpMessage {
    /// The message of a head that was parsed successfully. Invalid UTF-8 becomes U+FFFD. Without
    /// `secrets` the secrets are masked.
    #[must_use]
    pub fn of(head: &[u8], trailers: &[u8], body: KeptBody, secrets: bool) -> Self {
        let mut lines = lines(head);
        let line = lines.next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let line = if secrets { line.into_owned() } else { without_users(&line).0 };
        let fields = fields(lines, secrets);
        Self { line, fields, trailers: fields_of(trailers, secrets), body }
    }
}

fn fields_of(text: &[u8], secrets: bool) -> Vec<HttpField> {
    fields(lines(text), secrets)
}

/// The lines of a head up to the empty line.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = head.split(|&byte| byte == b'\n');
    lines
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .skip_while(|line| line.is_empty())
        .take_while(|line| !line.is_empty())
}

fn fields<'a>(lines: impl Iterator<Item = &'a [u8]>, secrets: bool) -> Vec<HttpField> {
    let field = |line: Vec<u8>| {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let [name, value] = [name, value.strip_prefix(b":").unwrap_or(value)]
            .map(|part| String::from_utf8_lossy(part.trim_ascii()).into_owned());
        if secrets {
            return HttpField { name, value, masked: false };
        }
        if SECRET_FIELDS.iter().any(|secret| name.eq_ignore_ascii_case(secret)) {
            return HttpField { name, value: MASK.to_owned(), masked: true };
        }
        let (value, masked) = without_users(&value);
        HttpField { name, value, masked }
    };
    unfolded(lines).into_iter().map(field).collect()
}

/// The lines, with each continued field joined into one line (RFC 9112 section 5.2): its secret may
/// be in any of its lines.
fn unfolded<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for line in lines {
        match (line.first(), all.last_mut()) {
            (Some(b' ' | b'\t'), Some(field)) => {
                field.push(b' ');
                field.extend_from_slice(line.trim_ascii());
            }
            _ => all.push(line.to_vec()),
        }
    }
    all
}

/// The text with the user information in its URLs masked (RFC 3986 section 3.2.1), and whether
/// there was any.
#[must_use]
pub fn without_users(text: &str) -> (String, bool) {
    let (mut shown, mut rest, mut masked) = (String::with_capacity(text.len()), text, false);
    while let Some(at) = rest.find("//") {
        let (before, behind) = rest.split_at(at + 2);
        shown.push_str(before);
        let ends = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '<' | '>');
        let authority = behind.split(ends).next().unwrap_or_default();
        rest = behind;
        if let Some(user) = authority.rfind('@') {
            masked = true;
            shown.push_str(MASK);
            rest = behind.get(user..).unwrap_or_default();
        }
    }
    shown.push_str(rest);
    (shown, masked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str, secrets: bool) -> HttpMessage {
        HttpMessage::of(head.as_bytes(), b"", KeptBody::default(), secrets)
    }

    #[test]
    fn secrets_are_masked_unless_they_are_asked_for() {
        let head = "GET http://ann:pw@a.example/x?to=//bob:key@b HTTP/1.1\r\nHost: a\r\n\
            AUTHORIZATION: Basic YTpi\r\nproxy-authorization:x\r\nCookie: sid=1\r\n\
            Referer: https://ann:pw@a.example/?q=a@b\r\nX-Mail: a@b.example\r\n\r\n";
        let masked = of(head, false);
        let text = serde_json::to_string(&masked).unwrap();
        for secret in ["pw", "key", "YTpi", "sid", "ann"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert_eq!(masked.line, "GET http://(secret)@a.example/x?to=//(secret)@b HTTP/1.1");
        let field = |name: &str| masked.fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!(field("Referer").value, "https://(secret)@a.example/?q=a@b");
        assert_eq!(field("X-Mail").value, "a@b.example");
        assert!(!field("X-Mail").masked && field("Cookie").masked);
        let shown = of(head, true);
        assert_eq!(shown.line, head.lines().next().unwrap());
        assert_eq!(shown.fields[1].value, "Basic YTpi");
        assert!(shown.fields.iter().all(|field| !field.masked));
        let answer = of("HTTP/1.1 200 OK\r\nset-cookie: a=b\r\n\r\n", false);
        assert_eq!(answer.fields[0].value, MASK);
        let folded = "HTTP/1.1 200 OK\r\nSet-Cookie: a=\r\n\tsid=1\r\nX: 1\r\n  2\r\n\r\n";
        let field = |one: &HttpField| format!("{}={}", one.name, one.value);
        let shown = |secrets| of(folded, secrets).fields.iter().map(field).collect::<Vec<_>>();
        assert_eq!(shown(false), ["Set-Cookie=(secret)", "X=1 2"]);
        assert_eq!(shown(true), ["Set-Cookie=a= sid=1", "X=1 2"]);
    }

    #[test]
    fn a_body_is_text_or_base64() {
        let body = |kept: &[u8], bytes| KeptBody::of(kept, bytes, false);
        assert_eq!(body("ä\n".as_bytes(), 3).text.as_deref(), Some("ä\n"));
        assert!(!body(b"abc", 3).cut && body(b"abc", 4).cut);
        assert_eq!(body("aä".get(..1).unwrap().as_bytes(), 3).text.as_deref(), Some("a"));
        assert_eq!(body(&"aä".as_bytes()[..2], 3).text.as_deref(), Some("a"), "cut in a character");
        assert_eq!(body(&"aä".as_bytes()[..2], 2).base64.as_deref(), Some("YcM="));
        for binary in [&b"\0"[..], b"\x1b[31m", b"\xff"] {
            let body = body(binary, binary.len() as u64);
            assert!(body.text.is_none() && body.base64.is_some(), "{binary:?}");
        }
        let none = KeptBody::of(b"", 7, true);
        assert!(none.left_out && !none.cut);
    }

    #[test]
    fn a_filter_takes_what_meets_all_its_conditions() {
        let one = SeenRequest {
            id: 7,
            service: "web".into(),
            method: "GET".into(),
            path: "/Some/path".into(),
            status: Some(404),
            ..SeenRequest::default()
        };
        let all = RequestFilter {
            service: Some("web".into()),
            method: Some("get".into()),
            class: Some(4),
            path: Some("some".into()),
            since: Some(6),
        };
        assert!(all.takes(&one) && RequestFilter::default().takes(&one));
        for other in [
            RequestFilter { service: Some("we".into()), ..all.clone() },
            RequestFilter { method: Some("POST".into()), ..all.clone() },
            RequestFilter { class: Some(5), ..all.clone() },
            RequestFilter { path: Some("other".into()), ..all.clone() },
            RequestFilter { since: Some(7), ..all.clone() },
        ] {
            assert!(!other.takes(&one), "{other:?}");
        }
        assert!(!all.takes(&SeenRequest { status: None, ..one }));
    }

    #[test]
    fn hostile_heads_are_shown_and_never_panic() {
        for head in ["", "\r\n\r\n", ":\r\n:\n", "\u{0}", "a", "GET //@@//@ x\r\n: \r\n@//"] {
            drop(serde_json::to_string(&of(head, false)).unwrap());
        }
        let message = HttpMessage::of(
            b"GET /\xff\r\nA\xfe: \xfd\r\n",
            b"t: 1\r\n\r\n",
            KeptBody::default(),
            false,
        );
        assert_eq!(message.line, "GET /\u{fffd}");
        assert_eq!(message.trailers[0].name, "t");
    }
}
