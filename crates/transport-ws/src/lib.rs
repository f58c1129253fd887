//! The transports over WebSocket (RFC 6455): `wss://` (TLS at our own end) and `ws://` (none, or
//! TLS at a reverse proxy in front).
//!
//! | module | what |
//! |---|---|
//! | `handshake` | the HTTP request and its answer, whom a proxy speaks for |
//! | `frame`, `mask` | heads of frames, masking |
//! | `receive`, `send` | the two halves of a connection as plain values, without I/O |
//! | `lane` | both around the lane of `transport-tcp` |
//! | `listener`, `dialer` | carriers |
//!
//! permessage-deflate is never offered nor agreed to: what is encrypted does not shrink.

mod dialer;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod lane;
mod listener;
mod mask;
mod receive;
mod send;

pub use dialer::{BadField, Request, WsDialer};
pub use listener::{Proxies, Terms, WsListener};

/// `wss://`: WebSocket over TLS.
pub const WSS: transport::Transport = transport::Transport::new("wss");

/// `ws://`: WebSocket without TLS of ours; a reverse proxy may have it.
pub const WS: transport::Transport = transport::Transport::new("ws");
