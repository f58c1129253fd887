//! HTTP/1 as plain values (RFC 9112): where a message begins and ends, and which host a request is
//! for. The crate has no socket, clock, task or lock: bytes go in, decisions come out.
//!
//! Each decision about the framing of a message is made only here. The doors, the guard of a kept
//! connection and the gate of the HTTP proxy call the same functions. Two parsers that read one
//! message differently would let a part of the message pass as a message of its own (request and
//! response smuggling, RFC 9112 section 11). So bytes with more than one meaning are refused: a
//! request with a [`Fault`], a response with a [`Doubt`]. Some doubtful responses are mended
//! instead, as RFC 9112 demands of a proxy.
//!
//! | file | content |
//! |---|---|
//! | [`host`] | names and addresses of hosts in the one form in which they are compared |
//! | `lines` | the lines of a head: tokens, lists, line ends |
//! | `scan` | the end of a head, over any number of pieces |
//! | `framing` | what `Content-Length`, `Transfer-Encoding` and `Connection` say |
//! | `chunked` | the end of a body in chunks |
//! | `request` | the head of a request |
//! | `requests` | the requests of a connection one after the other |
//! | `answer` | the head of a response |
//! | `mend` | a doubtful head of a response, written with one meaning |
//! | `tracker` | requests and responses of a kept connection |
//! | `fault`, `doubt` | the reasons to refuse a request, and a response |

mod answer;
mod chunked;
mod doubt;
mod fault;
mod framing;
#[doc(hidden)]
pub mod fuzz;
pub mod host;
mod lines;
mod mend;
mod request;
mod requests;
mod scan;
mod tracker;

pub use answer::{ANSWER_FIELDS, ANSWER_HEAD};
pub use doubt::Doubt;
pub use fault::Fault;
pub use framing::Framing;
pub use host::Authority;
pub use lines::{FIELDS, FirstLine, is_token, lines, tokens};
pub use request::{
    Absolute, HEAD, Head, HeadSniffer, Looked, Method, Opened, Opening, PREFACE, Request, named,
};
pub use requests::{Requests, Step, is_repeatable};
pub use scan::{Scan, Scanned};
pub use tracker::{Answers, BodyPart, Ended, Observer, Progress, Rest, Then, Tracker};
