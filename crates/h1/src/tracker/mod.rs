//! Tracks where the requests and responses of one kept HTTP/1 connection begin and end.
//!
//! A visitor may send the requests for several hosts over one connection, and the hosts may belong
//! to different services. [`Tracker`] follows the bytes of both directions, which are passed on
//! unchanged, and lets no request for another host reach the current service. It also keeps
//! responses in the order of requests: the connection changes to another service only after every
//! earlier response is complete.
//!
//! A tracker is a plain value without socket and clock. The caller passes the bytes of the visitor
//! to [`Tracker::requests`] and the bytes of the service to [`Tracker::responses`], and reports the
//! end of the service to [`Tracker::service_ended`]. One rule binds the caller: bytes that
//! `requests` did not accept are at the front of its next call.
//!
//! A doubt about a boundary never lets bytes through to the wrong service, or to the wrong visitor
//! of a reverse proxy. A doubtful request is refused ([`Fault`]). A doubtful response ends the
//! connection ([`Doubt`]): no byte after the certain bytes is delivered, and no later request is
//! passed on. The head of a response is delivered when it is complete and certain, so that a
//! doubtful head can be mended or replaced by an error page. The connection ends after a mended
//! response.
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

/// The largest number of requests that await their responses. Browsers send one request at a time;
/// further requests wait at the visitor.
const PIPELINE: u8 = 32;

/// The action after the bytes that [`Tracker::requests`] accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// All bytes were accepted: read more.
    Read,
    /// The rest is a part of a head: keep it, and read more.
    Hold,
    /// Keep the rest, read nothing, and call again after [`Progress::completed`] or the end of the
    /// service.
    Wait,
    /// The rest begins with the head of a request for another host, and all earlier responses are
    /// complete: hand the connection over. `None`: a request without a host.
    Other {
        /// The host in its normal form.
        host: Option<Box<str>>,
    },
    /// The rest begins with the head of a request, and all earlier responses are complete: hand the
    /// connection over. The rules have changed ([`Tracker::expire`]), or the request asks for
    /// HTTP/2 (`h2c`), which only a parser of whole requests can refuse (RFC 9113 section 3.1).
    Changed,
    /// The rest is not an acceptable request, and all earlier responses are complete: send an error
    /// response, and close.
    Refuse(Fault),
    /// Close. The visitor or a response declared the end of the connection, or the service ended,
    /// or the body of a request is malformed and its response has begun. The rest is discarded.
    Close,
}

/// The outcome of [`Tracker::responses`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes to deliver to the visitor now, before the bytes of this call: those of earlier calls,
    /// or a mended head with the bytes around it. Empty unless a head arrived in pieces or was in
    /// doubt.
    pub held: Vec<u8>,
    /// The number of bytes of this call to deliver to the visitor.
    pub deliver: usize,
    /// [`Then::Wait`] may be over, and [`Then::Close`] may be due: call [`Tracker::requests`]
    /// again, even without new bytes.
    pub completed: bool,
    /// The fate of the other bytes of this call, and of the connection.
    pub rest: Rest,
}

/// The bytes of a service that [`Tracker::responses`] does not deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// They are a part of a head, and the tracker keeps them. The connection continues.
    Held,
    /// They answer no request. The connection ends after the delivered bytes, and further bytes of
    /// the service are discarded.
    Excess,
    /// The response is in doubt. No byte of it was delivered: the caller may send a response in its
    /// place. The connection ends after the delivered bytes and this response.
    Refused(Doubt),
    /// The response is in doubt, and a part of it was delivered: the connection ends with a reset,
    /// because a regular end could pass for the end of a body.
    Cut(Doubt),
}

/// The state of the responses when the service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No response is incomplete.
    Clean,
    /// A request has no response, and no byte of this response was delivered: the caller may
    /// respond.
    Unanswered,
    /// A response is incomplete.
    Cut,
}

/// A request whose response may switch the protocol of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    /// 101 switches the protocol (RFC 9110 section 15.2.2).
    Upgrade,
    /// Any 2xx opens a tunnel (RFC 9110 section 9.3.6).
    Connect,
    /// 101 is in doubt: the request has `Upgrade` but no `upgrade` in `Connection`.
    Unasked,
}

/// The requests whose responses are not complete. Both directions share this state.
#[derive(Debug, Default)]
struct Pipeline {
    /// The number of these requests.
    outstanding: u8,
    /// One bit for each of these requests, set for HEAD. Bit 0 is the oldest request.
    heads: u32,
    /// Set while the youngest request may switch the protocol. No request follows it.
    switch: Option<Switch>,
    /// Bytes are passed in both directions unexamined.
    is_raw: bool,
    /// The visitor declared that no request follows.
    is_last_request: bool,
    /// No response follows the current or latest response.
    is_last_response: bool,
    /// A response is in doubt, so no request is passed on, and no error response replaces a
    /// response.
    is_doubtful: bool,
    /// The caller creates the requests and reads the responses itself: unlike nginx before version
    /// 1.29 it understands every interim response, and the connection is not shared.
    is_of_caller: bool,
}

impl Pipeline {
    /// A request is passed to the service.
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

/// Tracks one connection between a visitor and a service.
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

    /// Reports requests and responses to `observer` from now on.
    pub fn observe(&mut self, observer: Rc<dyn Observer>) {
        self.requests.observe(Rc::clone(&observer));
        self.responses.observe(observer);
    }

    /// Examines the bytes of the visitor that were not accepted yet. Returns how many of them are
    /// sent to the service now, and the next action.
    pub fn requests(&mut self, bytes: &[u8]) -> (usize, Then) {
        self.requests.pass(bytes, &mut self.pipeline, self.responses.has_begun())
    }

    /// Examines the next bytes of the service. They must not be passed again. After any [`Rest`]
    /// except [`Rest::Held`] nothing more of the service is delivered.
    pub fn responses(&mut self, bytes: &[u8]) -> Progress {
        self.responses.pass(bytes, &mut self.pipeline)
    }

    /// The rules that led the connection to this service are no longer in force. No further head of
    /// a request is passed on.
    pub fn expire(&mut self) {
        self.requests.expire();
    }

    /// Reports that the service has ended. From now on [`Tracker::requests`] returns
    /// [`Then::Close`], unless bytes are passed unexamined.
    pub fn service_ended(&mut self) -> Ended {
        self.responses.end(&mut self.pipeline)
    }

    /// The number of bytes of a response head that are kept until the head is complete.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.responses.kept()
    }

    /// Whether bytes are passed in both directions unexamined from now on, after an upgrade or
    /// CONNECT. The caller may then drop the tracker.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.pipeline.is_raw
    }

    /// Whether each request that was passed on is complete and has its complete response.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.pipeline.outstanding == 0 && self.requests.is_between()
    }

    /// Whether each request that was passed on has its complete response, even a request whose body
    /// is incomplete.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.pipeline.outstanding == 0 && !self.pipeline.is_raw
    }

    /// Whether the connection must end: a request or a response declared that no request follows,
    /// and each request has its complete response (RFC 9112 section 9.6).
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.pipeline.is_ending() && self.is_idle() && !self.pipeline.is_raw
    }

    /// The host of the requests, after the first head was passed on.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.requests.host()
    }
}
