//! The `quic://` transport: QUIC (RFC 9000) with TLS 1.3, a lane per stream and direction,
//! datagrams.
//!
//! [`QuicListener`] and [`QuicDialer`] make carriers on quinn. The first lane is one bidirectional
//! stream that the client opens. The lanes of single streams are unidirectional streams. Datagrams
//! are DATAGRAM frames (RFC 9221). A stream exists for the peer only after its first byte has
//! arrived, so each end first sends a mark (`lane.rs`) on the first lane.
//!
//! | question | file |
//! |---|---|
//! | which windows, limits and time-outs, and why | `settings.rs` |
//! | how a carrier comes to be | `dialer.rs`, `listener.rs`, `carrier.rs` |
//! | what ties 0-RTT data to its connection | `early.rs` |
//! | what a failed handshake says | `error.rs`, from what `session.rs` keeps |
//! | how two clients behind NAT have QUIC without a server | `punched/` |
//! | what shares the port with QUIC | `socket.rs` (`Beside`), `stun.rs` |
//! | how bytes go through | `lane.rs`, `lanes.rs`, `pipe.rs`, `datagrams.rs` |
//! | how a start uses what an earlier connection measured | `bbr.rs`, `past.rs` |
//! | which limits the socket has | `socket.rs` |
//! | what leaves twice, and why | `twice.rs`, `congestion::Copies` |
//! | how a datagram finds its worker | `ids.rs`, `net::udp` |
//! | what a restarted server still knows | `keys.rs`, `tickets/`, `files::peers`, `reset.rs` |
//!
//! quinn drives an endpoint and each connection in tasks of the runtime that made them. The handles
//! work from any thread, so a lane that moves to another thread leaves its driver behind.

mod bbr;
mod carrier;
mod controller;
mod datagrams;
mod dialer;
mod early;
mod endpoint;
mod error;
mod fenced;
mod ids;
mod keys;
mod lane;
mod lanes;
mod listener;
mod past;
mod pending;
mod pipe;
pub mod punched;
mod reset;
mod server;
mod session;
mod settings;
mod socket;
mod stun;
mod tickets;
mod timer;
mod twice;
mod watched;

pub use dialer::{QuicDialer, TlsClient};
pub use files::peers::{PeerId, Peers, RecordedPeer};
pub use ids::{SteeringIds, first_id_to};
pub use keys::{Keys, KeysError};
pub use listener::QuicListener;
pub use reset::call_back;
pub use server::QuicServer;
pub use settings::{Congestion, QuicSettings};
pub use stun::{RATE as STUN_RATE, StunCounts, StunServer};
pub use tickets::{ROTATION, Tickets, client_crypto, server_crypto};

/// `quic://`: QUIC with TLS 1.3 (RFC 9000, RFC 9001).
pub const QUIC: transport::Transport = transport::Transport::new("quic").staying();
