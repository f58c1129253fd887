//! TLS 1.3 over a socket: rustls' unbuffered connections between our own buffers.
//!
//! Measured with `examples/tls_bulk.rs`, one stream, both ends, two shared cores: 0.62-0.74 CPU-s
//! per GB and 10-12 Gbit/s; rustls' buffered connections, which read 4 KiB at a time into a queue
//! of their own, 0.97-1.09 and 7.4; `tcp://` 0.35 and 18.

mod engine;
mod exporter;
mod handshake;
mod lane;
mod session;
#[cfg(test)]
mod tests;

pub(crate) use handshake::{accept, connect};
