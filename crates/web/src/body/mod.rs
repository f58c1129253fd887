//! The bodies of requests and responses. Both are streamed, and neither is buffered as a whole.
//!
//! * `visitor` is the body of a request as received from its visitor, and `broken` the reason why
//!   it broke off.
//! * `request` is the same body on its way to the target, in one attempt.
//! * `answer` is the body of a response on its way to the visitor.
//!
//! Each is an enum of its sources, so a piece of a body costs neither an allocation nor a virtual
//! call. A source depends only on the bodies below it: the upload of a visitor comes from `http2`,
//! is kept by `replay` and sent by `upstream` and `multiplex`, whose responses `answer` reads.

mod answer;
mod broken;
mod request;
mod visitor;

pub(crate) use answer::{Answer, AnswerBody};
pub(crate) use broken::Broken;
pub(crate) use request::{Hold, RequestBody};
pub(crate) use visitor::VisitorBody;

/// The approximate size of the buffer that holds a received piece of a body, in bytes.
const BLOCK: usize = 16 * 1024;
