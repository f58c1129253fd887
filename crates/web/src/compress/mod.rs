//! Compression of the responses of targets.
//!
//! A response is compressed if that is useful and safe: its type is text, it is long enough,
//! neither visitor nor target has forbidden a transformation, and its length reveals no secret.
//! `encoder` compresses piece by piece.
//!
//! **Secrets.** The length of a compressed response depends on repetitions in it. An attacker who
//! makes a browser send requests that the response repeats, and observes the lengths, can guess a
//! secret in the response letter by letter (Gluck, Harris, Prado, "BREACH: Reviving the CRIME
//! Attack", 2013). So the response to a request with credentials is compressed only if it is the
//! same for everybody, or if the owner enables compression for all.

mod encoder;

use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    http::response::Parts,
};
use proto::Compress;

use crate::{
    account::Account,
    coding::{Accepted, Coding},
};
use encoder::Encoder;
pub(crate) use encoder::{AnswerError, Coded, Read};

/// The minimum length of a response for compression, in bytes: a shorter one fits into one packet
/// with its header.
const SHORTEST: u64 = 1024;

/// The codings of equal weight, best first. At these levels zstd takes a third of the time of gzip
/// for a response 5 % longer. Brotli takes ten times as long as gzip for a response of the same
/// length: it is for visitors that prefer it.
#[cfg(feature = "brotli")]
const OFFERED: &[Coding] = &[Coding::Zstd, Coding::Gzip, Coding::Brotli];
#[cfg(not(feature = "brotli"))]
const OFFERED: &[Coding] = &[Coding::Zstd, Coding::Gzip];

/// Digests of the content in its coding (RFC 9530, RFC 3230), which another coding would
/// invalidate.
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// The preferences of a request about the compression of its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    accepted: Accepted,
    /// The response may contain a secret.
    is_secret: bool,
    has_query: bool,
    is_head: bool,
    may_transform: bool,
}

impl Wish {
    /// `None`: the service does not compress.
    pub(crate) fn of<B>(request: &Request<B>, compress: Compress) -> Option<Self> {
        let fields = request.headers();
        let is_secret = match compress {
            Compress::Off => return None,
            Compress::Public => {
                fields.contains_key(header::COOKIE) || fields.contains_key(header::AUTHORIZATION)
            }
            Compress::Always => false,
        };
        Some(Self {
            accepted: Accepted::of(fields),
            is_secret,
            has_query: request.uri().query().is_some(),
            is_head: request.method() == Method::HEAD,
            may_transform: !directs(fields, "no-transform"),
        })
    }

    /// Decides whether to compress a response of `length` bytes, if known, and adapts its header.
    /// `None`: the body is not compressed, for example because memory is short.
    pub(crate) fn begin(
        self,
        head: &mut Parts,
        length: Option<u64>,
        account: &std::rc::Rc<Account>,
    ) -> Option<Encoder> {
        let best = self.accepted.best(OFFERED);
        let fields = &mut head.headers;
        if head.status == StatusCode::NOT_MODIFIED {
            // It refers to the response that the visitor has cached (RFC 9110 section 15.4.5).
            if best.is_some() && self.may_transform {
                weaken(fields);
                vary(fields);
            }
            return None;
        }
        if !self.may_transform || !is_open(head.status, fields) {
            return None;
        }
        if length.is_some_and(|length| length < SHORTEST) {
            return None;
        }
        vary(fields);
        if self.is_head || (self.is_secret && !self.is_for_all(fields)) {
            return None;
        }
        let encoder = Encoder::new(best?, account)?;
        fields.remove(header::CONTENT_LENGTH);
        fields.remove(header::ACCEPT_RANGES);
        weaken(fields);
        let coding = HeaderValue::from_static(encoder.coding().name());
        fields.insert(header::CONTENT_ENCODING, coding);
        Some(encoder)
    }

    /// Whether the response is the same for everybody: its target declares so, or it is a static
    /// part of a page.
    fn is_for_all(self, fields: &HeaderMap) -> bool {
        if fields.contains_key(header::SET_COOKIE)
            || directs(fields, "private")
            || directs(fields, "no-store")
        {
            return false;
        }
        directs(fields, "public") || (!self.has_query && kind(fields).is_some_and(|k| is_part(&k)))
    }
}

/// Whether the header of a response permits compression.
fn is_open(status: StatusCode, fields: &HeaderMap) -> bool {
    let has = |name: HeaderName| fields.contains_key(name);
    !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT
        )
        && !has(header::CONTENT_ENCODING)
        && !has(header::CONTENT_RANGE)
        && !DIGESTS.iter().any(|name| fields.contains_key(*name))
        && !directs(fields, "no-transform")
        && kind(fields).is_some_and(|kind| is_text(&kind))
}

/// The media type of a response, in lower case and without parameters.
fn kind(fields: &HeaderMap) -> Option<String> {
    let kind = fields.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase())
}

/// Whether content of a type is compressible and not a stream of events that must not be delayed.
/// Images, videos, archives and web fonts are already compressed.
fn is_text(kind: &str) -> bool {
    let Some((group, name)) = kind.split_once('/') else { return false };
    match group {
        "text" => name != "event-stream",
        "application" if name.starts_with("grpc") => false,
        "application" => {
            name.ends_with("+json")
                || name.ends_with("+xml")
                || matches!(
                    name,
                    "json"
                        | "javascript"
                        | "x-javascript"
                        | "ecmascript"
                        | "xml"
                        | "wasm"
                        | "yaml"
                        | "x-yaml"
                        | "toml"
                        | "rtf"
                        | "sql"
                        | "graphql"
                        | "x-ndjson"
                        | "vnd.ms-fontobject"
                        | "x-font-ttf"
                )
        }
        "font" => matches!(name, "ttf" | "otf"),
        "image" => matches!(name, "svg+xml" | "bmp" | "x-icon" | "vnd.microsoft.icon"),
        _ => false,
    }
}

/// Whether content of a type is a part of pages without data of a visitor: styles, scripts, fonts,
/// drawings.
fn is_part(kind: &str) -> bool {
    kind.starts_with("font/")
        || matches!(
            kind,
            "text/css"
                | "text/javascript"
                | "application/javascript"
                | "application/x-javascript"
                | "application/wasm"
                | "application/vnd.ms-fontobject"
                | "application/x-font-ttf"
                | "image/svg+xml"
                | "image/x-icon"
                | "image/vnd.microsoft.icon"
        )
}

/// Whether `Cache-Control` has a directive (RFC 9111 section 5.2).
fn directs(fields: &HeaderMap, directive: &str) -> bool {
    let values = fields.get_all(header::CACHE_CONTROL).into_iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|one| {
        let name = one.split('=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(directive)
    })
}

/// Marks the response as dependent on `Accept-Encoding` (RFC 9110 section 12.5.5).
fn vary(fields: &mut HeaderMap) {
    let mut values = fields.get_all(header::VARY).into_iter();
    let is_named = values.any(|value| {
        let mut names = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"))
    });
    if !is_named {
        fields.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// Weakens the entity tag: the bytes differ from the target's, so the tag is no longer strong (RFC
/// 9110 section 8.8.1).
fn weaken(fields: &mut HeaderMap) {
    let Some(tag) = fields.get(header::ETAG) else { return };
    let bytes = tag.as_bytes();
    if bytes.starts_with(b"W/") {
        return;
    }
    let weak = HeaderValue::from_bytes(&[b"W/", bytes].concat());
    match weak {
        Ok(weak) if bytes.starts_with(b"\"") => fields.insert(header::ETAG, weak),
        // An invalid tag matches nothing.
        _ => fields.remove(header::ETAG),
    };
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use hyper::Response;
    use proto::Unlimited;

    use super::*;

    const ACCEPTS: (&str, &str) = ("accept-encoding", "gzip");

    /// The header of a response, and whether its body is compressed.
    fn begin(
        compress: Compress,
        (method, path, asked): (Method, &str, &[(&'static str, &str)]),
        (status, fields): (u16, &[(&'static str, &str)]),
        length: Option<u64>,
    ) -> (HeaderMap, bool) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in asked {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let (mut head, ()) = response.body(()).unwrap().into_parts();
        let account = Account::open(Rc::new(Unlimited), 0).unwrap();
        let encoder =
            Wish::of(&request, compress).and_then(|wish| wish.begin(&mut head, length, &account));
        (head.headers, encoder.is_some())
    }

    fn get(asked: &[(&'static str, &str)], fields: &[(&'static str, &str)]) -> (HeaderMap, bool) {
        begin(Compress::Public, (Method::GET, "/", asked), (200, fields), Some(5000))
    }

    const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");

    #[test]
    fn the_head_says_what_was_done() {
        let fields = [
            HTML,
            ("content-length", "5000"),
            ("etag", "\"a\""),
            ("accept-ranges", "bytes"),
            ("vary", "Cookie"),
        ];
        let (head, is_compressed) = get(&[ACCEPTS], &fields);
        assert!(is_compressed);
        assert_eq!(head["content-encoding"], "gzip");
        assert_eq!(head["etag"], "W/\"a\"");
        assert!(!head.contains_key("content-length") && !head.contains_key("accept-ranges"));
        let vary: Vec<_> = head.get_all("vary").iter().collect();
        assert_eq!(vary, ["Cookie", "Accept-Encoding"]);
        let (head, is_compressed) = get(&[], &fields);
        assert!(!is_compressed);
        assert_eq!(
            (&head["etag"], &head["content-length"]),
            (&"\"a\"".parse().unwrap(), &"5000".parse().unwrap())
        );
        assert_eq!(head.get_all("vary").iter().count(), 2);
        for (tag, expected) in [("W/\"a\"", Some("W/\"a\"")), ("a", None)] {
            let (head, _) = get(&[ACCEPTS], &[HTML, ("etag", tag)]);
            assert_eq!(head.get("etag").map(|tag| tag.to_str().unwrap()), expected);
        }
        for vary in ["*", "Origin, accept-encoding"] {
            assert_eq!(get(&[ACCEPTS], &[HTML, ("vary", vary)]).0["vary"], vary);
        }
    }

    #[test]
    fn what_must_stay_as_it_is_stays() {
        for fields in [
            &[("content-type", "image/png")][..],
            &[("content-type", "video/mp4")],
            &[("content-type", "application/zip")],
            &[("content-type", "font/woff2")],
            &[("content-type", "application/octet-stream")],
            &[("content-type", "text/event-stream")],
            &[("content-type", "application/grpc")],
            &[("content-type", "application/grpc+json; x=y")],
            &[("content-type", "nonsense")],
            &[],
            &[HTML, ("content-encoding", "br")],
            &[HTML, ("cache-control", "public, No-Transform")],
            &[HTML, ("content-range", "bytes 0-1/2")],
            &[HTML, ("content-digest", "sha-256=:x:")],
        ] {
            let (head, is_compressed) = get(&[ACCEPTS], fields);
            assert!(!is_compressed && !head.contains_key("vary"), "{fields:?}");
            assert_eq!(head.len(), fields.len(), "{fields:?}");
        }
        for status in [204, 205, 206] {
            let request = (Method::GET, "/", &[ACCEPTS][..]);
            let (_, is_compressed) =
                begin(Compress::Always, request, (status, &[HTML]), Some(5000));
            assert!(!is_compressed, "{status}");
        }
        for (length, expected) in [(Some(1023), false), (Some(1024), true), (None, true)] {
            let request = (Method::GET, "/", &[ACCEPTS][..]);
            assert_eq!(begin(Compress::Public, request, (404, &[HTML]), length).1, expected);
        }
        let request = (Method::HEAD, "/", &[ACCEPTS][..]);
        let (head, is_compressed) = begin(Compress::Public, request, (200, &[HTML]), Some(5000));
        assert!(!is_compressed && head.contains_key("vary"));
        assert!(!get(&[ACCEPTS, ("cache-control", "no-transform")], &[HTML]).1);
        let request = (Method::GET, "/", &[ACCEPTS][..]);
        assert!(!begin(Compress::Off, request, (200, &[HTML]), Some(5000)).1);
    }

    #[test]
    fn a_kept_answer_is_confirmed_by_the_tag_that_it_got() {
        let request = (Method::GET, "/", &[ACCEPTS][..]);
        let fields = (304, &[("etag", "\"a\"")][..]);
        let (head, is_compressed) = begin(Compress::Public, request, fields, None);
        assert!(!is_compressed);
        assert_eq!(head["etag"], "W/\"a\"");
        assert_eq!(head["vary"], "Accept-Encoding");
        let (head, _) = begin(Compress::Public, (Method::GET, "/", &[]), fields, None);
        assert_eq!(head["etag"], "\"a\"");
    }

    #[test]
    fn an_answer_that_may_have_a_secret_is_compressed_only_where_its_owner_wants_that() {
        let css = ("content-type", "text/css");
        for credential in [("cookie", "a=b"), ("authorization", "Basic x")] {
            let asked = [ACCEPTS, credential];
            let of = |path, fields: &[(&'static str, &str)]| {
                begin(Compress::Public, (Method::GET, path, &asked), (200, fields), None).1
            };
            assert!(!of("/", &[HTML]));
            assert!(of("/", &[HTML, ("cache-control", "public, max-age=60")]));
            assert!(!of("/", &[HTML, ("cache-control", "public, private")]));
            assert!(of("/a.css", &[css]));
            assert!(of("/a.svg", &[("content-type", "image/svg+xml")]));
            assert!(!of("/a.css?x=guess", &[css]));
            assert!(of("/a.css?v=1", &[css, ("cache-control", "public, immutable")]));
            assert!(!of("/a.css", &[css, ("set-cookie", "s=1")]));
            assert!(!of("/a.css", &[css, ("cache-control", "no-store")]));
            let request = (Method::GET, "/", &asked[..]);
            assert!(begin(Compress::Always, request, (200, &[HTML]), None).1);
        }
    }
}
