//! The responses of a service to requests that the caller writes itself.

use super::responses::Responses;
use super::{Ended, PIPELINE, Pipeline, Progress, Switch};

/// Follows the responses on one connection to a service, as [`Tracker`](super::Tracker) does.
///
/// The caller reports each request by [`Answers::asked`] before the service may answer it, and
/// gives the bytes of the service to [`Answers::responses`]. What is delivered has one meaning, so
/// that the parser that reads it finds the boundaries that this crate has found. The connection may
/// take further requests after a mended response.
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
    /// A request goes to the service. `is_head`: its method is HEAD. `may_switch`: it asks for
    /// another protocol (RFC 9110 section 7.8). At most 32 requests may wait for their responses.
    pub fn asked(&mut self, is_head: bool, may_switch: bool) {
        if self.pipeline.outstanding < PIPELINE {
            self.pipeline.push(is_head);
        }
        self.pipeline.switch = may_switch.then_some(Switch::Upgrade);
    }

    /// Looks at the next bytes of the service. They are not to be given again. After any
    /// [`Rest`](super::Rest) but [`Rest::Held`](super::Rest::Held) nothing more of the service is
    /// delivered.
    pub fn responses(&mut self, bytes: &[u8]) -> Progress {
        self.responses.pass(bytes, &mut self.pipeline)
    }

    /// The service ended.
    pub fn service_ended(&mut self) -> Ended {
        self.responses.end(&mut self.pipeline)
    }

    /// Bytes of the head of a response that are kept until the head is complete.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.responses.kept()
    }

    /// Whether all bytes are delivered from now on without a look, after a switch of protocols.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.pipeline.is_raw
    }
}
