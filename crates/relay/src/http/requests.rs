//! The direction to the service.

use std::rc::Rc;

use super::chunked::{Chunked, Passed};
use super::{PIPELINE, Pipeline, Switch, Then};
use crate::sniff::http::{Body, Fault, Found, Method, Raw, Scanner};

/// The place in the bytes of the visitor.
#[derive(Debug)]
enum Place {
    /// At the start of a request.
    Head,
    /// So many bytes of a body follow.
    Length(u64),
    Chunks(Chunked),
}

/// Why the rest is not passed.
#[derive(Clone, Debug)]
enum Stop {
    Other(Option<Box<str>>),
    /// The rules by which the connection came here are no longer in force.
    Changed,
    Refuse(Fault),
    /// The body of the youngest request is malformed.
    Body(Fault),
}

/// The requests as far as they were passed.
#[derive(Debug)]
pub(super) struct Requests {
    place: Place,
    scanner: Scanner,
    stop: Option<Stop>,
    current: Option<Current>,
    /// See [`super::Tracker::expire`].
    is_expired: bool,
}

/// The host of the requests.
#[derive(Debug)]
struct Current {
    host: Option<Box<str>>,
    /// The bytes that named the host, as [`spelling`] orders them. The same bytes need no second
    /// look.
    spelt: Vec<u8>,
}

impl Requests {
    pub(super) fn new(route_header: Option<Rc<str>>) -> Self {
        let scanner = Scanner::new(route_header);
        Self { place: Place::Head, scanner, stop: None, current: None, is_expired: false }
    }

    pub(super) fn expire(&mut self) {
        self.is_expired = true;
        // The host was found by the former rules.
        if let Some(Stop::Other(_)) = self.stop {
            self.stop = Some(Stop::Changed);
        }
    }

    pub(super) const fn is_between(&self) -> bool {
        matches!(self.place, Place::Head)
    }

    pub(super) fn host(&self) -> Option<&str> {
        self.current.as_ref()?.host.as_deref()
    }

    /// See [`super::Tracker::requests`]. `has_begun`: a byte of the oldest response was delivered.
    pub(super) fn pass(
        &mut self,
        bytes: &[u8],
        pipeline: &mut Pipeline,
        has_begun: bool,
    ) -> (usize, Then) {
        if pipeline.is_raw {
            return (bytes.len(), Then::Read);
        }
        if pipeline.is_doubtful {
            return (0, Then::Wait);
        }
        if pipeline.is_ending() && pipeline.outstanding == 0 {
            return (0, Then::Close);
        }
        let mut at = 0;
        loop {
            if let Some(stop) = &self.stop {
                return (at, stop.then(pipeline.outstanding, has_begun));
            }
            let rest = &bytes[at..];
            if rest.is_empty() {
                return (at, Then::Read);
            }
            match &mut self.place {
                Place::Length(left) => {
                    let length = u64::try_from(rest.len()).unwrap_or(u64::MAX);
                    if *left > length {
                        *left -= length;
                        return (bytes.len(), Then::Read);
                    }
                    at += usize::try_from(*left).unwrap_or(rest.len());
                    self.place = Place::Head;
                }
                Place::Chunks(chunks) => match chunks.pass(rest) {
                    Passed::More => return (bytes.len(), Then::Read),
                    Passed::End(length) => {
                        at += length;
                        self.place = Place::Head;
                    }
                    Passed::Bad(length, fault) => {
                        at += length;
                        self.stop = Some(Stop::Body(fault));
                    }
                },
                Place::Head => {
                    if pipeline.is_ending()
                        || pipeline.switch.is_some()
                        || pipeline.outstanding >= PIPELINE
                    {
                        return (at, Then::Wait);
                    }
                    match self.scanner.look(rest) {
                        Found::More => return (at, Then::Hold),
                        Found::Not => self.stop = Some(Stop::Refuse(Fault::NotHttp)),
                        Found::Bad(fault) => self.stop = Some(Stop::Refuse(fault)),
                        Found::Head(_) if self.is_expired => self.stop = Some(Stop::Changed),
                        Found::Head(raw) => match self.compare(&raw) {
                            Some(stop) => self.stop = Some(stop),
                            None => {
                                at += raw.length;
                                self.begin(&raw, pipeline);
                            }
                        },
                    }
                }
            }
        }
    }

    /// Compares the host of a request with the host of the requests before.
    fn compare(&mut self, raw: &Raw<'_>) -> Option<Stop> {
        if self.current.as_ref().is_some_and(|current| current.is_spelt_by(raw)) {
            return None;
        }
        let host = match raw.host() {
            Ok(host) => host,
            Err(fault) => return Some(Stop::Refuse(fault)),
        };
        match &mut self.current {
            Some(current) if current.host != host => return Some(Stop::Other(host)),
            Some(current) => current.spelt = spelling(raw).concat(),
            None => self.current = Some(Current { host, spelt: spelling(raw).concat() }),
        }
        None
    }

    /// A request goes to the service.
    fn begin(&mut self, raw: &Raw<'_>, pipeline: &mut Pipeline) {
        pipeline.push(raw.method == Method::Head);
        pipeline.is_last_request = raw.close;
        pipeline.switch = match raw.method {
            Method::Connect => Some(Switch::Connect),
            Method::Head | Method::Other => raw.upgrade.then_some(Switch::Upgrade),
        };
        self.scanner.reset();
        self.place = match raw.body {
            Body::None | Body::Length(0) => Place::Head,
            Body::Length(length) => Place::Length(length),
            Body::Chunked => Place::Chunks(Chunked::new()),
        };
    }
}

impl Stop {
    /// What the caller does, with so many responses incomplete.
    fn then(&self, outstanding: u8, has_begun: bool) -> Then {
        match (self, outstanding) {
            (Self::Other(host), 0) => Then::Other { host: host.clone() },
            (Self::Changed, 0) => Then::Changed,
            (Self::Refuse(fault), 0) => Then::Refuse(*fault),
            // The service waits for the rest of the body, so that the caller may answer in its
            // place, unless the service answered before.
            (Self::Body(fault), 1) if !has_begun => Then::Refuse(*fault),
            (Self::Body(_), 0 | 1) => Then::Close,
            (Self::Other(_) | Self::Changed | Self::Refuse(_) | Self::Body(_), _) => Then::Wait,
        }
    }
}

impl Current {
    fn is_spelt_by(&self, raw: &Raw<'_>) -> bool {
        let mut spelt = &*self.spelt;
        let mut is_next = |part: &[u8]| match spelt.strip_prefix(part) {
            Some(rest) => {
                spelt = rest;
                true
            }
            None => false,
        };
        spelling(raw).into_iter().all(&mut is_next) && spelt.is_empty()
    }
}

/// All bytes of a head that name a host. No part contains a line end, and a part that is missing
/// means the same as an empty part.
fn spelling<'a>(raw: &Raw<'a>) -> [&'a [u8]; 5] {
    let part = |part: Option<&'a [u8]>| part.unwrap_or_default();
    [part(raw.host_field), b"\n", part(raw.authority), b"\n", part(raw.route)]
}
