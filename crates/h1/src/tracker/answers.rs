//! The responses of a service to requests that the caller writes itself.

use super::responses::Responses;
use super::{Ended, PIPELINE, Pipeline, Progress, Switch};

/// Follows the responses on one connection to a service, as [`Tracker`](super::Tracker) does.
///
/// The caller reports each request by [`Answers::asked`] before the service may respond to it, and
/// passes the bytes of the service to [`Answers::responses`]. Delivered bytes have a single
/// meaning, so their parser finds the same boundaries as this crate. The connection may carry
/// further requests after a mended response.
#[derive(Debug)]
pub struct Answers {
    pipeline: Pipeline,
    responses: Responses,
}

impl Default for Answers {
    fn default() -> Self {
        let pipeline = Pipeline { is_of_caller: true, ..Pipeline::default() };
        Self { pipeline, responses: Responses::default() }
    }
}

impl Answers {
    /// Reports that a request is sent to the service. `is_head`: its method is HEAD. `may_switch`:
    /// it requests another protocol (RFC 9110 section 7.8). At most 32 requests may await their
    /// responses.
    pub fn asked(&mut self, is_head: bool, may_switch: bool) {
        if self.pipeline.outstanding < PIPELINE {
            self.pipeline.push(is_head);
        }
        self.pipeline.switch = may_switch.then_some(Switch::Upgrade);
    }

    /// Examines the next bytes of the service. They must not be passed again. After any
    /// [`Rest`](super::Rest) except [`Rest::Held`](super::Rest::Held) nothing more of the service
    /// is delivered.
    pub fn responses(&mut self, bytes: &[u8]) -> Progress {
        self.responses.pass(bytes, &mut self.pipeline)
    }

    /// Reports that the service has ended.
    pub fn service_ended(&mut self) -> Ended {
        self.responses.end(&mut self.pipeline)
    }

    /// The number of bytes of a response head that are kept until the head is complete.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.responses.kept()
    }

    /// Whether all bytes are delivered unexamined from now on, after a switch of protocols.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.pipeline.is_raw
    }
}
