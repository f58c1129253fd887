//! The parsing of a complete head.

use std::mem::MaybeUninit;
use std::ops::Range;

use httparse::{Header, Status};

use super::opening::METHOD;
use super::{Absolute, HEAD, Method, Request};
use crate::Fault;
use crate::framing::{Framing, Said};
use crate::lines::{self, FIELDS, has_control, is_clean, tokens};

/// Decodes the head at the front of `bytes`. `None`: the head is incomplete or malformed, or it
/// exceeds the limit.
pub(super) fn parse<'a>(
    bytes: &'a [u8],
    route_header: Option<&str>,
) -> Option<Result<Request<'a>, Fault>> {
    // httparse skips any number of empty lines, and accepts line ends without CR.
    let start = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let rest = &bytes[start..bytes.len().min(HEAD)];
    if matches!(rest.first(), None | Some(b'\r' | b'\n')) {
        return None;
    }
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(rest, &mut fields) {
        Ok(Status::Complete(length)) if is_clean(&rest[..length]) => length,
        Ok(_) | Err(_) => return None,
    };
    if request.method.is_some_and(|method| method.len() > METHOD) {
        return None;
    }
    Some(examine(&request, bytes, start, start + length, route_header))
}

/// The fault of a complete head that `parse` rejects.
#[cold]
pub(super) fn diagnose(head: &[u8]) -> Fault {
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
    lines::diagnose(head.get(end + 1..).unwrap_or_default(), FIELDS)
}

/// Reads the meaning of the fields. `length`: where the head ends.
fn examine<'a>(
    parsed: &httparse::Request<'_, 'a>,
    bytes: &'a [u8],
    start: usize,
    length: usize,
    route_header: Option<&str>,
) -> Result<Request<'a>, Fault> {
    let method = parsed.method.unwrap_or_default();
    let place = start + method.len() + 1;
    let target = &bytes[place..place + parsed.path.unwrap_or_default().len()];
    let (address, path) = split_target(method, target)?;
    let method = match method {
        "HEAD" => Method::Head,
        "CONNECT" => Method::Connect,
        _ => Method::Other,
    };
    let version10 = parsed.version == Some(0);
    let (mut said, mut fields) = (Said::default(), Fields::default());
    for Header { name, value } in &*parsed.headers {
        said.read(bytes, name, value)?;
        fields.read(name, value)?;
        if route_header.is_some_and(|header| header.eq_ignore_ascii_case(name))
            && (value.is_empty() || fields.route.replace(value).is_some())
        {
            return Err(Fault::RouteHeader);
        }
    }
    let Fields { host, route, has_upgrade, names_protocol, websocket, h2c } = fields;
    if host.is_none() && !version10 {
        return Err(Fault::NoHost);
    }
    let body = said.framing(version10)?;
    if method == Method::Connect && !matches!(body, Framing::Absent | Framing::Length(0)) {
        return Err(Fault::ConnectBody);
    }
    // A request of HTTP/1.0 cannot request an upgrade (RFC 9110 section 7.8).
    let upgrade = said.upgrade && names_protocol && !version10;
    Ok(Request {
        length,
        host_field: host,
        address,
        route,
        method,
        body,
        may_switch: has_upgrade && !version10,
        upgrade,
        websocket: upgrade && websocket,
        h2c: upgrade && h2c,
        close: said.closes(version10),
        version10,
        path: place + path.start..place + path.end,
    })
}

/// The meaning of the fields of a request besides the framing, as far as they were read.
#[derive(Debug, Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    route: Option<&'a [u8]>,
    has_upgrade: bool,
    names_protocol: bool,
    websocket: bool,
    h2c: bool,
}

impl<'a> Fields<'a> {
    fn read(&mut self, name: &str, value: &'a [u8]) -> Result<(), Fault> {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                let earlier = self.host.replace(value);
                if earlier.is_some() {
                    return Err(Fault::Hosts);
                }
            }
            7 if name.eq_ignore_ascii_case("upgrade") => {
                self.has_upgrade = true;
                for protocol in tokens(value) {
                    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
                    self.names_protocol |= !name.is_empty();
                    self.websocket |= name.eq_ignore_ascii_case(b"websocket");
                    self.h2c |= name.eq_ignore_ascii_case(b"h2c");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The authority in the target of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address<'a> {
    pub(super) authority: &'a [u8],
    /// The port that the scheme implies; `None` for CONNECT, whose target names the port.
    pub(super) port: Option<u16>,
}

/// Splits a target (RFC 9112 section 3.2) into its authority and the position of its path.
fn split_target<'a>(
    method: &str,
    target: &'a [u8],
) -> Result<(Option<Address<'a>>, Range<usize>), Fault> {
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
        let address = Address { authority: target, port: None };
        return if has_port { Ok((Some(address), 0..0)) } else { Err(Fault::Target) };
    }
    match target {
        [b'/', ..] => Ok((None, 0..query(0))),
        b"*" if method == "OPTIONS" => Ok((None, 0..1)),
        _ => {
            let absolute = Absolute::parse(target).ok_or(Fault::Target)?;
            let Absolute { authority, rest, .. } = absolute;
            let start = target.len() - rest.len();
            let address = Address { authority, port: Some(absolute.port()) };
            Ok((Some(address), start..query(start)))
        }
    }
}
