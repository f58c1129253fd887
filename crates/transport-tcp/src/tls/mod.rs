//! TLS 1.3 over a socket: rustls' unbuffered connections between our own buffers.

mod engine;
mod exporter;
mod handshake;
mod lane;
mod session;

pub(crate) use handshake::{accept, connect};
