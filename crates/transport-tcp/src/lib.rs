//! The transports over TCP: `tls://` (TLS 1.3) and `tcp://` (no TLS).
//!
//! [`TcpListener`] and [`TcpDialer`] make carriers of one lane each. With a rustls configuration
//! from [`::tls`] the lane is encrypted, without one the lane is the bare socket. The listener only
//! accepts; the caller runs the handshake in its own task with its own deadline.

mod dialer;
mod lane;
mod listener;
mod proxy;
mod socket;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use dialer::TcpDialer;
pub use listener::{TcpListener, accepted};
pub use proxy::{ProxyKind, ResolvedBy, Via};
pub use tls::{Speech, TlsClient, accept_inside, connect_inside};

/// The address of a far end that this end does not know.
pub(crate) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// `tls://`: TLS 1.3 over TCP.
pub const TLS: transport::Transport = transport::Transport::new("tls");

/// `tcp://`: TCP without TLS.
pub const TCP: transport::Transport = transport::Transport::new("tcp");
