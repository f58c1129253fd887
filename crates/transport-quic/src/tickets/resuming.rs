//! The TLS of a client that keeps tickets and resumes with them.

use std::sync::Arc;

use rustls::client::Resumption;

/// The number of servers whose tickets a client keeps; rustls keeps the last 8 tickets of each. A
/// path has one server name.
const SERVERS: usize = 4;
const TICKETS_OF_A_SERVER: usize = 8;

/// Makes a client's TLS that resumes and sends 0-RTT, as long as this value and its clones live.
/// rustls resumes only with the same verifier and the same resolver of client certificates
/// (compared by `Arc`) that the ticket came with. So both must stay the same from connection to
/// connection.
#[must_use]
pub(crate) fn resuming(tls: &rustls::ClientConfig) -> Arc<rustls::ClientConfig> {
    let mut tls = tls.clone();
    tls.resumption = Resumption::in_memory_sessions(SERVERS * TICKETS_OF_A_SERVER);
    tls.enable_early_data = true;
    Arc::new(tls)
}
