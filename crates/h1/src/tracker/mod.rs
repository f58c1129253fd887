//! The requests and responses of one kept HTTP/1 connection: where do they begin and end?
//!
//! A visitor may send the requests for several hosts over one connection, and the hosts may belong
//! to different services. [`Tracker`] follows the bytes of both directions, which go on unchanged,
//! and lets no request for another host through to the current service. It also keeps responses in
//! the order of requests: the connection changes to another service only after every earlier
//! response is complete.
//!
//! A tracker is a plain value without socket and clock. The caller gives the bytes of the visitor
//! to [`Tracker::requests`], the bytes of the service to [`Tracker::responses`], and reports the
//! end of the service to [`Tracker::service_ended`]. One rule binds the caller: bytes that
//! `requests` did not pass are at the front of its next call.
//!
//! A doubt about a boundary never lets bytes through to the wrong service, or to the wrong visitor
//! of a reverse proxy. A doubtful request is refused ([`Fault`]). A doubtful response ends the
//! connection ([`Doubt`]): no byte after the certain bytes is delivered, and no later request is
//! passed. The head of a response is delivered when it is complete and certain, so that a doubtful
//! head can be mended, or be answered with a page. The connection ends after a mended response.
//!
//! | file | content |
//! |---|---|
//! | `requests` | the direction to the service |
//! | `responses` | the direction to the visitor |
//! | `answers` | the responses alone, for a caller that writes the requests itself |
//! | `observer` | what is told about them |

mod answers;
mod observer;
mod requests;
mod responses;
#[cfg(test)]
mod tests;

use std::rc::Rc;

pub use self::answers::Answers;
pub use self::observer::{BodyPart, Observer};
use self::requests::Passing;
use self::responses::Responses;
use crate::{Doubt, Fault};

/// The largest number of requests that wait for their responses. Browsers send one request at a
/// time; further requests wait at the visitor.
const PIPELINE: u8 = 32;

/// What follows the bytes that [`Tracker::requests`] passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// All bytes were passed: read more.
    Read,
    /// The rest is a part of a head: keep it, and read more.
    Hold,
    /// Keep the rest, read nothing, and call again after [`Progress::completed`] or the end of the
    /// service.
    Wait,
    /// The rest begins with the head of a request for another host, and all earlier responses are
    /// complete: hand the connection over. `None`: a request without a host.
    Other {
        /// The host in its normalised form.
        host: Option<Box<str>>,
    },
    /// The rest begins with the head of a request, and all earlier responses are complete: hand the
    /// connection over. The rules have changed ([`Tracker::expire`]), or the request asks for
    /// HTTP/2 (`h2c`), which only a reader of its requests can refuse (RFC 9113 section 3.1).
    Changed,
    /// The rest is no acceptable request, and all earlier responses are complete: answer, and
    /// close.
    Refuse(Fault),
    /// Close. The visitor or a response said that the connection ends, or the service ended, or
    /// the body of a request is malformed and its response has begun. The rest goes nowhere.
    Close,
}

/// The outcome of [`Tracker::responses`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that go to the visitor now, before the bytes of this call: those of earlier calls, or
    /// a mended head with what surrounds it. Empty unless a head came in pieces or was in doubt.
    pub held: Vec<u8>,
    /// The number of bytes of this call that go to the visitor.
    pub deliver: usize,
    /// [`Then::Wait`] may be over, and [`Then::Close`] may be due: call [`Tracker::requests`]
    /// again, also without a byte.
    pub completed: bool,
    /// What becomes of the other bytes of this call, and of the connection.
    pub rest: Rest,
}

/// The bytes of a service that [`Tracker::responses`] does not deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// They are a part of a head, and the tracker keeps them. The connection goes on.
    Held,
    /// Nobody asked for them. The connection ends after the delivered bytes, and further bytes of
    /// the service go nowhere.
    Excess,
    /// The response is in doubt. No byte of it was delivered: the caller may answer in its place.
    /// The connection ends after the delivered bytes and this answer.
    Refused(Doubt),
    /// The response is in doubt, and a part of it was delivered: the connection ends with a reset,
    /// because a plain end could be the end of a body.
    Cut(Doubt),
}

/// How the end of the service met the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No response is incomplete.
    Clean,
    /// A request has no response, and no byte of this response was delivered: the caller may
    /// answer.
    Unanswered,
    /// A response is incomplete.
    Cut,
}

/// A request whose response may change the protocol of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    /// 101 changes the protocol (RFC 9110 section 15.2.2).
    Upgrade,
    /// Any 2xx opens a tunnel (RFC 9110 section 9.3.6).
    Connect,
    /// 101 is in doubt: the request has `Upgrade` and does not ask for it in `Connection`.
    Unasked,
}

/// The requests whose responses are not complete. Both directions share this state.
#[derive(Debug, Default)]
struct Pipeline {
    /// The number of these requests.
    outstanding: u8,
    /// A bit for each of these requests that is HEAD. Bit 0 is the oldest request.
    heads: u32,
    /// Set while the youngest request may change the protocol. No request follows such a request.
    switch: Option<Switch>,
    /// Bytes go both ways without a look.
    is_raw: bool,
    /// The visitor said that no request follows.
    is_last_request: bool,
    /// No response follows the current response, or the latest response.
    is_last_response: bool,
    /// A response is in doubt, so no request is passed, and no answer is given in the place of a
    /// response.
    is_doubtful: bool,
    /// The caller makes the requests, and reads the responses itself: it understands every interim
    /// response, as nginx before version 1.29 does not, and nobody else shares the connection.
    is_of_caller: bool,
}

impl Pipeline {
    /// A request goes to the service.
    fn push(&mut self, is_head: bool) {
        self.heads |= u32::from(is_head) << self.outstanding;
        self.outstanding += 1;
    }

    /// A response is complete.
    fn pop(&mut self) {
        self.heads >>= 1;
        self.outstanding = self.outstanding.saturating_sub(1);
        if self.is_last_response {
            self.outstanding = 0;
        }
    }

    const fn is_ending(&self) -> bool {
        self.is_last_request || self.is_last_response
    }
}

/// Follows one connection between a visitor and a service.
#[derive(Debug)]
pub struct Tracker {
    pipeline: Pipeline,
    requests: Passing,
    responses: Responses,
}

impl Tracker {
    /// A tracker for a fresh connection. The first request sets the host. A request with the field
    /// `route_header` is for the host that this field names.
    #[must_use]
    pub fn new(route_header: Option<Rc<str>>) -> Self {
        Self {
            pipeline: Pipeline::default(),
            requests: Passing::new(route_header),
            responses: Responses::default(),
        }
    }

    /// Tells `observer` about requests and responses from now on.
    pub fn observe(&mut self, observer: Rc<dyn Observer>) {
        self.requests.observe(Rc::clone(&observer));
        self.responses.observe(observer);
    }

    /// Looks at the bytes of the visitor that were not passed yet. Returns how many of them go to
    /// the service now, and what follows.
    pub fn requests(&mut self, bytes: &[u8]) -> (usize, Then) {
        self.requests.pass(bytes, &mut self.pipeline, self.responses.has_begun())
    }

    /// Looks at the next bytes of the service. They are not to be given again. After any
    /// [`Rest`] but [`Rest::Held`] nothing more of the service is delivered.
    pub fn responses(&mut self, bytes: &[u8]) -> Progress {
        self.responses.pass(bytes, &mut self.pipeline)
    }

    /// The rules by which the connection came to this service are no longer in force. No request is
    /// passed whose head is not passed yet.
    pub fn expire(&mut self) {
        self.requests.expire();
    }

    /// The service ended. From now on [`Tracker::requests`] says [`Then::Close`], unless bytes go
    /// both ways without a look.
    pub fn service_ended(&mut self) -> Ended {
        self.responses.end(&mut self.pipeline)
    }

    /// Bytes of the head of a response that are kept until the head is complete.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.responses.kept()
    }

    /// Whether bytes go both ways without a look from now on, after an upgrade or CONNECT. The
    /// caller may then drop the tracker.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.pipeline.is_raw
    }

    /// Whether each request that was passed is complete and has its complete response.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.pipeline.outstanding == 0 && self.requests.is_between()
    }

    /// Whether each request that was passed has its complete response, even a request whose body is
    /// still on its way.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.pipeline.outstanding == 0 && !self.pipeline.is_raw
    }

    /// Whether the connection has to end: no request follows, because a request or a response said
    /// so, and each request has its complete response (RFC 9112 section 9.6).
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.pipeline.is_ending() && self.is_idle() && !self.pipeline.is_raw
    }

    /// The host of the requests, once the first head was passed.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.requests.host()
    }
}
