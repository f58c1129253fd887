//! The fields of a complete head, as slices of the bytes that arrived.

use std::mem::MaybeUninit;
use std::ops::Range;

use httparse::{Header, Request, Status};

use super::opening::{METHOD, is_token};
use super::{Body, Fault, HEAD, Head, Method};
use crate::sniff::name;

/// The largest number of fields in a head.
pub(crate) const FIELDS: usize = 100;

/// A head whose host is not normalised yet.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) length: usize,
    /// The value of `Host`, which is valid if [`Raw::host`] says so.
    pub(crate) host_field: Option<&'a [u8]>,
    /// The authority of a target in absolute-form or authority-form.
    pub(crate) authority: Option<&'a [u8]>,
    /// The value of the field that names the host instead of `Host`.
    pub(crate) route: Option<&'a [u8]>,
    pub(crate) method: Method,
    pub(crate) body: Body,
    pub(crate) upgrade: bool,
    websocket: bool,
    h2c: bool,
    pub(crate) close: bool,
    version10: bool,
    path: Range<usize>,
}

impl Raw<'_> {
    /// The host that the request is for. Checks each place that names a host.
    pub(crate) fn host(&self) -> Result<Option<Box<str>>, Fault> {
        let named = match self.host_field {
            None | Some([]) => None,
            Some(field) => Some(name::authority(field).ok_or(Fault::Host)?),
        };
        let target = match self.authority {
            None => None,
            Some(authority) => Some(name::authority(authority).ok_or(Fault::Host)?),
        };
        if let (Some(target), Some(_)) = (&target, self.host_field)
            && named.as_ref() != Some(target)
        {
            return Err(Fault::HostDiffers);
        }
        match self.route {
            Some(route) => name::authority(route).ok_or(Fault::RouteHeader).map(Some),
            None => Ok(target.or(named)),
        }
    }

    pub(crate) fn head(self, host: Option<Box<str>>) -> Head {
        let Self { length, method, body, upgrade, websocket, h2c, close, version10, path, .. } =
            self;
        Head { length, host, method, body, upgrade, websocket, h2c, close, version10, path }
    }
}

/// Decodes the head at the front of `bytes`. `None`: the head is incomplete, or its lines are
/// malformed, or it is over the limit.
pub(crate) fn parse<'a>(
    bytes: &'a [u8],
    route_header: Option<&str>,
) -> Option<Result<Raw<'a>, Fault>> {
    // httparse skips any number of empty lines, and accepts line ends without CR.
    let start = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let rest = &bytes[start..bytes.len().min(HEAD)];
    if matches!(rest.first(), None | Some(b'\r' | b'\n')) {
        return None;
    }
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut request = Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(rest, &mut fields) {
        Ok(Status::Complete(length)) if is_clean(&rest[..length]) => length,
        Ok(_) | Err(_) => return None,
    };
    if request.method.is_some_and(|method| method.len() > METHOD) {
        return None;
    }
    Some(examine(&request, bytes, start, start + length, route_header))
}

/// Whether each line of a complete head ends in CRLF.
pub(crate) fn is_clean(head: &[u8]) -> bool {
    // Without a way out of the loop, it compiles to vector instructions.
    let bare = |(before, byte): (&u8, &u8)| *byte == b'\n' && *before != b'\r';
    let pairs = head.iter().zip(head.get(1..).unwrap_or_default());
    head.first() != Some(&b'\n') && !pairs.fold(false, |found, pair| found | bare(pair))
}

/// The fault of a complete head that `parse` does not understand.
#[cold]
pub(crate) fn diagnose(head: &[u8]) -> Fault {
    let start = if head.starts_with(b"\r\n") { 2 } else { 0 };
    let head = &head[start..];
    let end = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
    let line = &head[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if has_control(line) {
        return Fault::Control;
    }
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    if words.len() != 3 || words[1].is_empty() || words[1].contains(&b'\t') {
        return Fault::RequestLine;
    }
    diagnose_fields(head.get(end + 1..).unwrap_or_default())
}

/// The fault of the fields of a complete head: the lines after its first line.
#[cold]
pub(crate) fn diagnose_fields(fields: &[u8]) -> Fault {
    let mut count = 0;
    for line in fields.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if has_control(line) {
            return Fault::Control;
        } else if line.is_empty() {
            break;
        } else if matches!(line, [b' ' | b'\t', ..]) {
            return Fault::Fold;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        match &line[..colon] {
            [.., b' ' | b'\t'] if colon < line.len() => return Fault::Blank,
            name if name.iter().all(|byte| is_token(*byte)) => count += 1,
            _ => return Fault::Field,
        }
    }
    if count > FIELDS { Fault::Fields } else { Fault::Field }
}

fn has_control(line: &[u8]) -> bool {
    line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
}

/// Reads what the fields say. `length`: where the head ends.
fn examine<'a>(
    request: &Request<'_, 'a>,
    bytes: &'a [u8],
    start: usize,
    length: usize,
    route_header: Option<&str>,
) -> Result<Raw<'a>, Fault> {
    let method = request.method.unwrap_or_default();
    let place = start + method.len() + 1;
    let target = &bytes[place..place + request.path.unwrap_or_default().len()];
    let (authority, path) = split_target(method, target)?;
    let method = match method {
        "HEAD" => Method::Head,
        "CONNECT" => Method::Connect,
        _ => Method::Other,
    };
    let version10 = request.version == Some(0);
    let mut fields = Fields::default();
    for Header { name, value } in &*request.headers {
        fields.add(name, value)?;
        if route_header.is_some_and(|header| header.eq_ignore_ascii_case(name))
            && (value.is_empty() || fields.route.replace(value).is_some())
        {
            return Err(Fault::RouteHeader);
        }
    }
    let Fields { host, route, length: said, encoding, .. } = fields;
    if host.is_none() && !version10 {
        return Err(Fault::NoHost);
    }
    let body = match (said, encoding) {
        (Some(_), Some(_)) => return Err(Fault::LengthAndEncoding),
        (None, Some(_)) if version10 => return Err(Fault::Encoding10),
        (None, Some(Coding::Chunked)) => Body::Chunked,
        (None, Some(Coding::Other)) => return Err(Fault::Encoding),
        (Some(length), None) => Body::Length(length),
        (None, None) => Body::None,
    };
    if method == Method::Connect && !matches!(body, Body::None | Body::Length(0)) {
        return Err(Fault::ConnectBody);
    }
    // A request of HTTP/1.0 cannot ask for an upgrade (RFC 9110 section 7.8).
    let upgrade = fields.wants_upgrade && fields.has_upgrade && !version10;
    Ok(Raw {
        length,
        host_field: host,
        authority,
        route,
        method,
        body,
        upgrade,
        websocket: upgrade && fields.websocket,
        h2c: upgrade && fields.h2c,
        close: fields.close || (version10 && !fields.keep_alive),
        version10,
        path: place + path.start..place + path.end,
    })
}

/// The transfer coding that was named last.
#[derive(Clone, Copy, Debug)]
enum Coding {
    Chunked,
    Other,
}

/// What the fields of a request say, as far as they were read.
#[derive(Debug, Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    route: Option<&'a [u8]>,
    length: Option<u64>,
    encoding: Option<Coding>,
    wants_upgrade: bool,
    has_upgrade: bool,
    websocket: bool,
    h2c: bool,
    close: bool,
    keep_alive: bool,
}

impl<'a> Fields<'a> {
    fn add(&mut self, name: &str, value: &'a [u8]) -> Result<(), Fault> {
        // The length of a name rules out nearly all fields.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                let earlier = self.host.replace(value);
                if earlier.is_some() {
                    return Err(Fault::Hosts);
                }
            }
            7 if name.eq_ignore_ascii_case("upgrade") => {
                for protocol in tokens(value) {
                    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
                    self.has_upgrade |= !name.is_empty();
                    self.websocket |= name.eq_ignore_ascii_case(b"websocket");
                    self.h2c |= name.eq_ignore_ascii_case(b"h2c");
                }
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                self.wants_upgrade |= has_token(value, b"upgrade");
                self.close |= has_token(value, b"close");
                self.keep_alive |= has_token(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                // The bytes go on unchanged, so that equal lengths could not become one length.
                if self.length.is_some() || value.contains(&b',') {
                    return Err(Fault::Lengths);
                }
                self.length = Some(number(value).ok_or(Fault::Length)?);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                for coding in tokens(value) {
                    let is_valid = !coding.is_empty() && coding.iter().all(|byte| is_token(*byte));
                    if !is_valid || matches!(self.encoding, Some(Coding::Chunked)) {
                        return Err(Fault::Encoding);
                    }
                    let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
                    self.encoding = Some(if is_chunked { Coding::Chunked } else { Coding::Other });
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Splits a target (RFC 9112 section 3.2) into its authority and the place of its path.
fn split_target<'a>(
    method: &str,
    target: &'a [u8],
) -> Result<(Option<&'a [u8]>, Range<usize>), Fault> {
    let query = |from: usize| {
        let rest = target[from..].iter();
        from + rest.take_while(|byte| !matches!(byte, b'?' | b'#')).count()
    };
    if method == "CONNECT" {
        // The port is part of an authority-form.
        let has_port = target.iter().rposition(|byte| *byte == b':').is_some_and(|colon| {
            let port = &target[colon + 1..];
            !port.is_empty() && port.iter().all(u8::is_ascii_digit)
        });
        return if has_port { Ok((Some(target), 0..0)) } else { Err(Fault::Target) };
    }
    match target {
        [b'/', ..] => Ok((None, 0..query(0))),
        b"*" if method == "OPTIONS" => Ok((None, 0..1)),
        _ => {
            let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| {
                target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            });
            let start = scheme.ok_or(Fault::Target)?.len();
            let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
            let end = target[start..].iter().position(is_end);
            let end = end.map_or(target.len(), |length| start + length);
            Ok((Some(&target[start..end]), end..query(end)))
        }
    }
}

/// The elements of a list (RFC 9110 section 5.6.1) without white space around them.
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether the list has the element `token`, in any case.
pub(crate) fn has_token(value: &[u8], token: &[u8]) -> bool {
    tokens(value).any(|element| element.eq_ignore_ascii_case(token))
}

/// A length in bytes: digits alone, no sign and no blank (RFC 9110 section 8.6).
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(value).ok()?.parse().ok()).flatten()
}
