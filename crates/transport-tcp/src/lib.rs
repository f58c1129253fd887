//! The transports over TCP: `tls://` (TLS 1.3) and `tcp://` (none).
//!
//! [`TcpListener`] and [`TcpDialer`] make carriers of one lane each; with a rustls configuration
//! from [`::tls`] the lane is sealed, without it is the bare socket. The listener accepts
//! and nothing else; shaking hands is the caller's task and deadline.

mod dialer;
mod lane;
mod listener;
mod proxy;
mod socket;
mod tls;

pub use dialer::{TcpDialer, TlsClient};
pub use listener::TcpListener;
pub use proxy::{ProxyKind, Via};
pub use tls::Speech;

/// `tls://`: TLS 1.3 over TCP.
pub const TLS: transport::Transport = transport::Transport::new("tls");

/// `tcp://`: TCP without TLS.
pub const TCP: transport::Transport = transport::Transport::new("tcp");
