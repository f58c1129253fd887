//! The direction to the service.

use std::rc::Rc;

use super::{Observer, PIPELINE, Pipeline, Switch, Then};
use crate::{BodyPart, Fault, Method, Request, Requests, Step};

/// The reason why the rest is not passed on.
#[derive(Clone, Debug)]
enum Stop {
    Other(Option<Box<str>>),
    /// The rules that led the connection here are no longer in force.
    Changed,
    Refuse(Fault),
    /// The body of the youngest request is malformed.
    Body(Fault),
}

/// The requests as far as they were passed on.
#[derive(Debug)]
pub(super) struct Passing {
    requests: Requests,
    stop: Option<Stop>,
    current: Option<Current>,
    /// See [`super::Tracker::expire`].
    is_expired: bool,
    observer: Option<Rc<dyn Observer>>,
}

/// The host of the requests.
#[derive(Debug)]
struct Current {
    host: Option<Box<str>>,
    /// The bytes that named the host, as [`Request::spelling`] orders them. The same bytes need no
    /// second examination.
    spelt: Vec<u8>,
}

impl Passing {
    pub(super) fn new(route_header: Option<Rc<str>>) -> Self {
        let requests = Requests::new(route_header);
        Self { requests, stop: None, current: None, is_expired: false, observer: None }
    }

    pub(super) fn observe(&mut self, observer: Rc<dyn Observer>) {
        self.observer = Some(observer);
    }

    pub(super) fn expire(&mut self) {
        self.is_expired = true;
        // The host was found by the former rules.
        if let Some(Stop::Other(_)) = self.stop {
            self.stop = Some(Stop::Changed);
        }
    }

    pub(super) const fn is_between(&self) -> bool {
        self.requests.is_between()
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
            if let Some(observer) = &self.observer {
                observer.switched_request(bytes);
            }
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
            if self.is_between()
                && (pipeline.is_ending()
                    || pipeline.switch.is_some()
                    || pipeline.outstanding >= PIPELINE)
            {
                return (at, Then::Wait);
            }
            let observer = self.observer.as_deref();
            let seen = |part: BodyPart<'_>| {
                if let Some(observer) = observer {
                    observer.request_body(part);
                }
            };
            match self.requests.step_seen(rest, seen) {
                Step::Body(length) => {
                    at += length;
                    self.note_end();
                }
                Step::More => return (at, Then::Hold),
                Step::Refused(fault) => self.stop = Some(Stop::Refuse(fault)),
                Step::Broken(length, fault) => {
                    at += length;
                    self.stop = Some(Stop::Body(fault));
                }
                // HTTP/2 may carry requests for many hosts, which this tracker would not see.
                Step::Head(request) if self.is_expired || request.asks_for_h2c() => {
                    self.stop = Some(Stop::Changed);
                }
                Step::Head(request) => match self.compare(&request) {
                    Some(stop) => self.stop = Some(stop),
                    None => {
                        if let Some(observer) = &self.observer {
                            observer.requested(&rest[..request.length]);
                        }
                        at += request.length;
                        self.begin(&request, pipeline);
                    }
                },
            }
        }
    }

    /// Compares the host of a request with the host of the previous requests.
    fn compare(&mut self, request: &Request<'_>) -> Option<Stop> {
        if self.current.as_ref().is_some_and(|current| current.is_spelt_by(request)) {
            return None;
        }
        let host = match request.host() {
            Ok(host) => host,
            Err(fault) => return Some(Stop::Refuse(fault)),
        };
        let spelt = || request.spelling().concat();
        match &mut self.current {
            Some(current) if current.host.as_deref() != host.as_deref() => {
                return Some(Stop::Other(host.map(Into::into)));
            }
            Some(current) => current.spelt = spelt(),
            None => self.current = Some(Current { host: host.map(Into::into), spelt: spelt() }),
        }
        None
    }

    /// A request is passed to the service.
    fn begin(&mut self, request: &Request<'_>, pipeline: &mut Pipeline) {
        pipeline.push(request.method == Method::Head);
        pipeline.is_last_request = request.close;
        pipeline.switch = match request.method {
            Method::Connect => Some(Switch::Connect),
            Method::Head | Method::Other if request.upgrade => Some(Switch::Upgrade),
            Method::Head | Method::Other => request.may_switch.then_some(Switch::Unasked),
        };
        self.requests.begin(request.body);
        self.note_end();
    }

    /// Reports the end of a request to the observer.
    fn note_end(&self) {
        if let Some(observer) = self.observer.as_ref().filter(|_| self.is_between()) {
            observer.request_ended();
        }
    }
}

impl Stop {
    /// The caller's next action, with this number of incomplete responses.
    fn then(&self, outstanding: u8, has_begun: bool) -> Then {
        match (self, outstanding) {
            (Self::Other(host), 0) => Then::Other { host: host.clone() },
            (Self::Changed, 0) => Then::Changed,
            (Self::Refuse(fault), 0) => Then::Refuse(*fault),
            // The service waits for the rest of the body, so the caller may respond in its place,
            // unless the service responded already.
            (Self::Body(fault), 1) if !has_begun => Then::Refuse(*fault),
            (Self::Body(_), 0 | 1) => Then::Close,
            (Self::Other(_) | Self::Changed | Self::Refuse(_) | Self::Body(_), _) => Then::Wait,
        }
    }
}

impl Current {
    fn is_spelt_by(&self, request: &Request<'_>) -> bool {
        let mut spelt = &*self.spelt;
        let mut is_next = |part: &[u8]| match spelt.strip_prefix(part) {
            Some(rest) => {
                spelt = rest;
                true
            }
            None => false,
        };
        request.spelling().into_iter().all(&mut is_next) && spelt.is_empty()
    }
}
