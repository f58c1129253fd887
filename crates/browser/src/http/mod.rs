//! HTTP/1.1 over a stream, one request each: the stream ends with the response, so that the framing
//! of one response decides about nothing else.

mod request;
mod response;

pub use request::{BadRequest, Body, Request};
pub(crate) use response::{Piece, Response};
