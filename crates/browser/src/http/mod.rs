//! HTTP/1.1 over a stream, one request per stream: the stream ends with the response, so the
//! framing of a response affects no other message.

mod request;
mod response;

pub use request::{BadRequest, Body, Request};
pub(crate) use response::{Piece, Response};
