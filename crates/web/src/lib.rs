//! HTTP: the proxy for services by name, and static files ([`Files`]).
//!
//! [`serve()`] reads the requests of one visitor over HTTP/1.1 or HTTP/2, finds the service of each
//! request by its host and path, and sends the request to the target of the service over HTTP/1.1.
//! Targets that expect HTTP/2, and gRPC, get HTTP/2. The crate does not depend on sockets, links or
//! the registry: a visitor is any pair of byte streams, and services are reached through the traits
//! [`Services`] and [`Service`]. The owner of the streams to targets carries the bytes of
//! connections that switch to another protocol. Everything runs on one worker, so no type needs to
//! be `Send`.
//!
//! * `gate` is in front of hyper's parser and passes only unambiguous bytes. It limits the header
//!   of a request, and detects the protocol of a visitor.
//! * `half` holds back the half-close of a visitor until it has its responses, and detects a
//!   visitor that has left.
//! * `serve` drives a connection: the graceful shutdown, the switch to another protocol. `watch`
//!   has its timeouts.
//! * `http2` drives an HTTP/2 connection, with a window for each stream.
//! * `interim` forwards interim responses.
//! * `proxy` handles one request: route, password, fields, target, response. `own` reads the body
//!   of a request to which the server itself responds. `body` has the bodies of requests and
//!   responses.
//! * `upstream` opens connections to targets and keeps them for the next request; `multiplex` opens
//!   connections over HTTP/2, which all requests of a visitor to a service share. `replay` buffers
//!   the body of a request for a retry. `wire` is the stream to a target under hyper.
//! * `rules` are the options of a service in the form that a request needs.
//! * `coding` parses the content codings that a visitor accepts, and `compress` compresses
//!   responses.
//! * `sticky` is the affinity cookie that binds a visitor to its client and its target.
//! * `password` checks a password against a hash.
//! * `record` is the record of a completed request, and `recording` that of a request in progress.
//! * `account` charges the memory of a connection to the budget of the process, and refuses
//!   visitors and requests for which memory is short.
//! * `files` serves a directory as a target, without a service behind it.
//! * `path` has the routing rules, without I/O, and `page` writes the server's own responses;
//!   `node` also uses them for connections whose bytes it carries without this crate.

mod account;
mod addresses;
mod body;
mod coding;
mod compress;
mod date;
mod fields;
mod files;
mod gate;
mod half;
mod http2;
mod interim;
mod multiplex;
mod own;
mod page;
mod password;
mod path;
mod proxy;
mod record;
mod recording;
mod replay;
mod rules;
mod serve;
mod service;
mod sticky;
mod upgrade;
mod upstream;
mod watch;
mod wire;

pub use account::Account;
pub use files::{FileOptions, Files, Withheld};
pub use hyper::header::{HeaderMap, HeaderName, HeaderValue};
pub use page::{Pages, page, page_until};
pub use password::{Candidate, candidate};
pub use path::{is_below, longest, normal_path};
pub use record::{Record, RequestHead, Wants};
pub use rules::{InvalidRule, Rules};
pub use serve::serve;
pub use service::{
    Asked, ByteStream, Checked, Found, Identity, LocalFuture, OpenFailed, Own, Protocol, Refusal,
    Sender, Service, Services, Settings, Stream, Unavailable, Verdict, Visitor,
};
pub use sticky::{Cookies, Place, StickyKey};
pub use upgrade::Replayed;
