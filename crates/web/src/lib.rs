//! HTTP: the proxy for services by name, and static files ([`Files`]).
//!
//! [`serve()`] reads the requests of one visitor over HTTP/1.1 or HTTP/2, finds the service of each
//! request by its host and path, and sends the request to the target of the service over HTTP/1.1.
//! Targets that expect HTTP/2, and gRPC, get HTTP/2. The crate knows no socket, link or registry: a
//! visitor is any pair of byte streams, and services are reached through the traits [`Services`]
//! and [`Service`]. The owner of the streams to targets carries the bytes of connections that
//! switch to another protocol. Everything runs on one worker, so nothing is `Send`.
//!
//! * `gate` stands in front of hyper's parser and passes only bytes that have one meaning. It
//!   limits the head of a request, and finds out which protocol a visitor speaks.
//! * `half` holds the end of a visitor back until it has its answers, and notices one that has
//!   left.
//! * `serve` drives a connection: the orderly end, the switch to another protocol. `watch` has its
//!   time-outs.
//! * `http2` drives a connection of HTTP/2, with a window for each stream.
//! * `interim` passes interim answers on.
//! * `proxy` carries one request: route, password, fields, target, answer. `own` reads the body of
//!   a request that the server answers itself. `body` has the bodies of requests and answers.
//! * `upstream` opens connections to targets and keeps them for the next request; `multiplex` opens
//!   those over HTTP/2, which all requests of a visitor to a service share. `replay` keeps the body
//!   of a request that may have to be sent again. `wire` is the stream to a target under hyper.
//! * `rules` are the options of a service in the form that a request needs.
//! * `coding` is which content codings a visitor accepts, and `compress` the compression of
//!   answers.
//! * `sticky` is the cookie that keeps a visitor at its client and its target.
//! * `password` checks a password against a hash.
//! * `record` is the record of a request whose answer has ended, and `recording` that of a request
//!   in progress.
//! * `account` charges what a connection holds to the budget of the process, and refuses visitors
//!   and requests for which memory is short.
//! * `files` serves a directory as a target of its own, without a service behind it.
//! * `path` has the pure rules of routing, and `page` writes the answers of the server itself;
//!   `node` uses them for connections whose bytes it carries without this crate, too.

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
