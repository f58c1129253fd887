//! The `quic://` transport: QUIC (RFC 9000) with TLS 1.3, a lane per stream and direction, datagrams.

mod ids;

pub use ids::{SteeringIds, first_id_to};
