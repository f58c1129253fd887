//! TLS 1.3 over a socket or a lane: rustls' unbuffered connections between our own buffers.
//!
//! Measured with `examples/tls_bulk.rs`, one stream, both ends, two shared cores: 0.62-0.74 CPU-s
//! per GB and 10-12 Gbit/s. rustls' buffered connections, which read 4 KiB at a time into a queue
//! of their own, take 0.97-1.09 CPU-s per GB and reach 7.4 Gbit/s. `tcp://` takes 0.35 CPU-s per GB
//! and reaches 18 Gbit/s.

mod client;
mod engine;
mod exporter;
mod handshake;
mod lane;
mod session;
#[cfg(test)]
mod tests;
mod under;

use transport::ALPN;

pub use client::TlsClient;
pub(crate) use handshake::{accept, connect, connect_speaking};
pub use handshake::{accept_inside, connect_inside};

/// The protocol inside TLS, as ALPN names it (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// Our own protocol; both ends must offer it.
    Tunnel,
    /// HTTP/1.1, which an end may leave out of ALPN.
    Http,
}

impl Speech {
    /// The name of the protocol in ALPN.
    #[must_use]
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Tunnel => ALPN,
            Self::Http => b"http/1.1",
        }
    }

    /// Whether `agreed`, the result of ALPN, fits this protocol.
    fn is(self, agreed: Option<&[u8]>) -> bool {
        agreed.map_or(self == Self::Http, |agreed| agreed == self.alpn())
    }
}
