//! The bodies of requests and answers. Both stream, and neither is kept.
//!
//! * `visitor` is the body of a request as it comes from its visitor, and `broken` why it broke
//!   off.
//! * `request` is the same body on its way to the target, in one attempt.
//! * `answer` is the body of an answer on its way to the visitor.
//!
//! Each is an enum of its sources, so a piece of a body costs neither an allocation nor a call by a
//! table. Sources know no body but the ones below them: what a visitor sends comes from `http2`, is
//! kept by `replay` and sent by `upstream` and `multiplex`, whose answers `answer` reads.

mod answer;
mod broken;
mod request;
mod visitor;

pub(crate) use answer::{Answer, AnswerBody};
pub(crate) use broken::Broken;
pub(crate) use request::{Hold, RequestBody};
pub(crate) use visitor::VisitorBody;

/// A piece of a body that arrived lies in a buffer of about this size, bytes.
const BLOCK: usize = 16 * 1024;
