//! The record of a completed request, for the request log and the statistics of its service.

use std::{fmt, net::IpAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    Request, Version,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};

/// The optional parts of a request header that are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The query of the address and of `Referer`.
    pub query: bool,
    /// The user name in `Authorization`.
    pub user: bool,
}

/// A completed request.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The request header, if the services want it and the bytes of the visitor were a request.
    pub head: Option<RequestHead>,
    /// The visitor, as [`Services::sender`](crate::Services::sender) names it.
    pub visitor: Option<IpAddr>,
    /// The status of the response; 499: the visitor left before it.
    pub status: u16,
    /// The number of response body bytes that the connection has accepted.
    pub bytes: u64,
    /// The time from the request header to the response header; `None` without a response.
    pub first_byte: Option<Duration>,
    /// The time from the request header to the end of the response.
    pub duration: Duration,
    /// Whether the connection has accepted the complete response.
    pub is_complete: bool,
}

/// Parts of a request header.
#[derive(Clone, Copy)]
enum Part {
    Method,
    Path,
    Query,
    Host,
    Referer,
    UserAgent,
    User,
}

const PARTS: usize = Part::User as usize + 1;

/// The parts of a request header for a log, as the visitor sent them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The concatenated parts.
    text: Vec<u8>,
    parts: [Option<(u32, u32)>; PARTS],
    protocol: &'static str,
}

impl RequestHead {
    /// The header of a request.
    pub(crate) fn of<B>(request: &Request<B>, wants: Wants) -> Self {
        let (uri, fields) = (request.uri(), request.headers());
        let protocol = match request.version() {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2.0",
            _ => "HTTP/1.1",
        };
        let mut head = Self { protocol, ..Self::default() };
        head.put(Part::Method, request.method().as_str().as_bytes());
        let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
        let path = Some(uri.path().as_bytes()).filter(|path| !path.is_empty());
        head.put(Part::Path, path.or_else(|| authority.map(host_of)).unwrap_or_default());
        let query = uri.query().map(str::as_bytes);
        let field = |name: HeaderName| fields.get(name).map(HeaderValue::as_bytes);
        let host = authority.or_else(|| field(header::HOST));
        let agent = field(header::USER_AGENT);
        head.rest(wants, [query, host, field(header::REFERER), agent], user(fields));
        head
    }

    /// The header of an HTTP/1 request in `bytes`, which begin with a complete header.
    #[must_use]
    pub fn read(bytes: &[u8], wants: Wants) -> Self {
        let mut lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let mut words = lines.next().unwrap_or_default().split(|&byte| byte == b' ');
        let [method, target, version] = [(); 3].map(|()| words.next().unwrap_or_default());
        let protocol = if version == b"HTTP/1.0" { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut head = Self { protocol, ..Self::default() };
        head.put(Part::Method, method);
        let (authority, target) = absolute(target);
        let (path, query) = cut(target, b'?');
        // Without a leading slash it is the authority of a CONNECT.
        head.put(Part::Path, if path.starts_with(b"/") { path } else { host_of(path) });
        let (mut host, mut referer, mut agent, mut given) = (None, None, None, None);
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, Some(value)) = cut(line, b':') else { continue };
            let value = Some(value.trim_ascii());
            if name.eq_ignore_ascii_case(b"host") {
                host = value;
            } else if name.eq_ignore_ascii_case(b"referer") {
                referer = value;
            } else if name.eq_ignore_ascii_case(b"user-agent") {
                agent = value;
            } else if name.eq_ignore_ascii_case(b"authorization") {
                given = value;
            }
        }
        head.rest(wants, [query, authority.or(host), referer, agent], given.and_then(decoded));
        head
    }

    /// Records the parts of a header other than method and path.
    fn rest(
        &mut self,
        wants: Wants,
        [query, host, referer, agent]: [Option<&[u8]>; 4],
        user: Option<Vec<u8>>,
    ) {
        if let Some(query) = query.filter(|_| wants.query) {
            self.put(Part::Query, query);
        }
        if let Some(host) = host {
            self.put(Part::Host, host_of(host));
        }
        if let Some(referer) = referer {
            self.put_referer(referer, wants);
        }
        if let Some(agent) = agent {
            self.put(Part::UserAgent, agent);
        }
        if let Some(user) = user.filter(|_| wants.user) {
            self.put(Part::User, &user);
        }
    }

    /// Records `Referer`, an address: without its query unless wanted, and always without user and
    /// password.
    fn put_referer(&mut self, referer: &[u8], wants: Wants) {
        let shown = if wants.query { referer } else { cut(referer, b'?').0 };
        let (scheme, rest) = shown.split_at(scheme(shown));
        let (authority, rest) = rest.split_at(authority(rest));
        self.put(Part::Referer, scheme);
        self.extend(Part::Referer, host_of(authority));
        self.extend(Part::Referer, rest);
    }

    fn put(&mut self, part: Part, bytes: &[u8]) {
        let at = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let begin = at(self.text.len());
        self.text.extend_from_slice(bytes);
        self.parts[part as usize] = Some((begin, at(self.text.len())));
    }

    /// Appends to the last added part.
    fn extend(&mut self, part: Part, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        if let Some((_, end)) = &mut self.parts[part as usize] {
            *end = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        }
    }

    fn part(&self, part: Part) -> Option<&[u8]> {
        let (begin, end) = self.parts[part as usize]?;
        self.text.get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Option<&[u8]> {
        self.part(Part::Method)
    }

    /// The path of the address.
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        self.part(Part::Path)
    }

    /// The query of the address, if recorded.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.part(Part::Query)
    }

    /// The host, with its port.
    #[must_use]
    pub fn host(&self) -> Option<&[u8]> {
        self.part(Part::Host)
    }

    /// The field `Referer`, without user and password.
    #[must_use]
    pub fn referer(&self) -> Option<&[u8]> {
        self.part(Part::Referer)
    }

    /// The field `User-Agent`.
    #[must_use]
    pub fn user_agent(&self) -> Option<&[u8]> {
        self.part(Part::UserAgent)
    }

    /// The user name, if recorded.
    #[must_use]
    pub fn user(&self) -> Option<&[u8]> {
        self.part(Part::User)
    }

    /// The protocol: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2.0`.
    #[must_use]
    pub const fn protocol(&self) -> &'static str {
        self.protocol
    }
}

/// Omits the text, which may contain secrets of the visitor.
impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead").field("bytes", &self.text.len()).finish_non_exhaustive()
    }
}

/// The text before and after the first byte `at`.
fn cut(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == at) {
        Some(found) => (&text[..found], Some(&text[found + 1..])),
        None => (text, None),
    }
}

/// The length of `https://` or `//` at the start of an address (RFC 3986 sections 3.1 and 4.2).
fn scheme(address: &[u8]) -> usize {
    let Some(at) = address.windows(2).position(|part| part == b"//") else { return 0 };
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    match &address[..at] {
        [] => 2,
        [name @ .., b':'] if name.iter().all(is_of_scheme) => at + 2,
        _ => 0,
    }
}

/// The length of the authority at the start of `rest`, which follows a scheme.
fn authority(rest: &[u8]) -> usize {
    rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len())
}

/// An authority without user and password, which may be the visitor's credentials.
fn host_of(authority: &[u8]) -> &[u8] {
    let user = authority.iter().rposition(|&byte| byte == b'@');
    user.map_or(authority, |at| &authority[at + 1..])
}

/// The authority of a target in absolute-form (RFC 9112 section 3.2.2), and the rest.
fn absolute(target: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let scheme = scheme(target);
    // A target that begins with two slashes is a path.
    if scheme == 0 || target.starts_with(b"/") {
        return (None, target);
    }
    let rest = &target[scheme..];
    let (authority, path) = rest.split_at(authority(rest));
    (Some(authority), if path.is_empty() { b"/" } else { path })
}

/// The user name in an `Authorization: Basic …` field (RFC 7617).
fn user(fields: &HeaderMap) -> Option<Vec<u8>> {
    decoded(fields.get(header::AUTHORIZATION)?.as_bytes())
}

fn decoded(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, token) = value.split_at_checked("Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let mut pair = STANDARD.decode(token.trim_ascii()).ok()?;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    pair.truncate(colon);
    Some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wants = Wants { query: true, user: true };
    const NONE: Wants = Wants { query: false, user: false };

    const HEAD: &[u8] = b"POST /a/b?token=1 HTTP/1.1\r\nHost: a.example\r\nuser-AGENT:  curl \r\n\
        Referer: https://ann:secret@b.example/x?key=2\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n\
        \r\nbody: x\r\n";

    /// A header of each kind with the same content.
    fn both(wants: Wants) -> [RequestHead; 2] {
        let request = Request::post("/a/b?token=1")
            .header("Host", "a.example")
            .header("User-Agent", "curl")
            .header("Referer", "https://ann:secret@b.example/x?key=2")
            .header("Authorization", "Basic YW5uOnNlY3JldA==")
            .body(())
            .unwrap();
        [RequestHead::of(&request, wants), RequestHead::read(HEAD, wants)]
    }

    #[test]
    fn a_head_is_the_same_from_bytes_and_from_a_request() {
        let [of, read] = both(ALL);
        assert!(of == read);
        let [of, read] = both(NONE);
        assert!(of == read);
    }

    #[test]
    fn queries_and_users_are_kept_only_where_they_are_wanted_and_passwords_never() {
        for head in both(ALL) {
            assert_eq!(head.method(), Some(&b"POST"[..]));
            assert_eq!(head.path(), Some(&b"/a/b"[..]));
            assert_eq!(head.query(), Some(&b"token=1"[..]));
            assert_eq!(head.host(), Some(&b"a.example"[..]));
            assert_eq!(head.user_agent(), Some(&b"curl"[..]));
            assert_eq!(head.user(), Some(&b"ann"[..]));
            assert_eq!(head.referer(), Some(&b"https://b.example/x?key=2"[..]));
            assert_eq!(head.protocol(), "HTTP/1.1");
            assert!(!head.text.windows(6).any(|text| text == b"secret"));
        }
        for head in both(NONE) {
            assert_eq!((head.query(), head.user()), (None, None));
            assert_eq!(head.referer(), Some(&b"https://b.example/x"[..]));
            assert!(!head.text.contains(&b'?'));
        }
    }

    #[test]
    fn a_user_in_any_address_is_left_out() {
        for (target, host, referer) in [
            ("/x", "ann:secret@a.example", "//ann:secret@b.example/x"),
            ("http://ann:secret@a.example/x", "b.example", "ann:secret@b.example//x"),
            ("ftp://ann:secret@a.example/x", "b.example", "ann:secret@b.example/x://y"),
            ("/x", "ann:secret@x@a.example", "https://ann:secret@x@b.example"),
        ] {
            let of = Request::get(target).header("Host", host).header("Referer", referer);
            let of = RequestHead::of(&of.body(()).unwrap(), ALL);
            let bytes =
                format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nReferer: {referer}\r\n\r\n");
            for head in [of, RequestHead::read(bytes.as_bytes(), ALL)] {
                assert_eq!(head.path(), Some(&b"/x"[..]), "{target}");
                assert_eq!(head.host(), Some(&b"a.example"[..]), "{target} {host}");
                let text = head.text.escape_ascii().to_string();
                assert!(text.contains("b.example") && !text.contains('@'), "{text}");
                assert!(!text.contains("secret"), "{text}");
            }
        }
        let request = "CONNECT ann:secret@a.example:1 HTTP/1.1\r\n\r\n";
        let of = Request::connect("ann:secret@a.example:1").body(()).unwrap();
        for head in [RequestHead::of(&of, ALL), RequestHead::read(request.as_bytes(), ALL)] {
            assert_eq!(head.path(), Some(&b"a.example:1"[..]));
        }
        // The part after the authority may contain `@`.
        let referer = "https://b.example?x=y@z";
        let request = Request::get("/@x").header("Referer", referer).body(()).unwrap();
        let head = RequestHead::of(&request, ALL);
        assert_eq!((head.path(), head.referer()), (Some(&b"/@x"[..]), Some(referer.as_bytes())));
    }

    #[test]
    fn a_target_may_have_any_form() {
        for (target, host, path) in [
            ("http://b.example/x?q", Some("b.example"), "/x"),
            ("HTTP://b.example", Some("b.example"), "/"),
            ("*", Some("a"), "*"),
            ("/", Some("a"), "/"),
        ] {
            let head = RequestHead::read(
                format!("GET {target} HTTP/1.0\r\nHost: a\r\n\r\n").as_bytes(),
                NONE,
            );
            assert_eq!(head.host(), host.map(str::as_bytes), "{target}");
            assert_eq!(head.path(), Some(path.as_bytes()), "{target}");
            assert_eq!(head.protocol(), "HTTP/1.0");
        }
        for bytes in [&b""[..], b"\xff", b"GET", b"\r\n\r\n", b"a b c d e\nx\n:\n"] {
            let _ = RequestHead::read(bytes, ALL);
        }
    }
}
