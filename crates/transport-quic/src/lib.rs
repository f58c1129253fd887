//! The `quic://` transport: QUIC (RFC 9000) with TLS 1.3, a lane per stream and direction, datagrams.

mod ids;
mod keys;
mod peers;
mod reset;
mod tickets;

pub use ids::{SteeringIds, first_id_to};
pub use keys::{Keys, KeysError};
pub use peers::{Known, Peers};
pub use reset::{call_back, reset_datagram};
pub use tickets::{ROTATION, Tickets, client_crypto, resuming, server_crypto};
