//! The transports over WebSocket (RFC 6455): `wss://` (TLS at our own end) and `ws://` (none, or
//! TLS at a reverse proxy in front).
//!
//! | module | content |
//! |---|---|
//! | `handshake` | the HTTP request and its answer, and the client's address behind a proxy |
//! | `frame`, `mask` | heads of frames, masking |
//! | `receive`, `send` | the two halves of a connection as plain values, without I/O |
//! | `lane` | the two halves around the lane of `transport-tcp` |
//! | `listener`, `dialer` | the listener and the dialer of carriers |
//! | `request` | the request of a client |
//! | `pages` | what a listener offers to browsers beside carriers |
//! | [`offers`] | requests about connections of WebRTC |
//! | `fuzz` | the harnesses of the fuzz targets |
//!
//! permessage-deflate is neither offered nor accepted, because encrypted data does not shrink.

mod dialer;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod lane;
mod listener;
mod mask;
mod pages;
mod receive;
mod request;
mod send;

pub use dialer::WsDialer;
pub use handshake::SUBPROTOCOL;
pub use listener::{Terms, WsListener, accepted};
pub use net::source::Proxies;
pub use pages::{Offer, Pages, Wish};
pub use request::{BadField, Request};

/// Requests about connections of WebRTC, for every server of HTTP that takes them.
pub mod offers {
    pub use httparse::Header;

    pub use crate::handshake::{DESCRIPTION, FIELDS, OfferAnswer, OfferHead, body_type, reply};
}

/// `wss://`: WebSocket over TLS.
pub const WSS: transport::Transport = transport::Transport::new("wss");

/// `ws://`: WebSocket without TLS of ours; a reverse proxy may add TLS.
pub const WS: transport::Transport = transport::Transport::new("ws");
