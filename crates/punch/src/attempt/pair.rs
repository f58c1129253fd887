//! The two ends of a direct path.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Candidate, Kind};

/// A direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Our address as seen by the peer, if a check was answered.
    pub local: Option<(Kind, SocketAddr)>,
    /// The address of the peer.
    pub remote: (Kind, SocketAddr),
    /// The round trip of the last check.
    pub round_trip: Option<Duration>,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = self.remote;
        match self.local {
            Some((ours, local)) => write!(f, "{ours} {local} - {kind} {address}"),
            None => write!(f, "{kind} {address}"),
        }
    }
}

/// An end of a pair, with the announced kind of its address.
pub(super) fn end(
    announced: &[Candidate],
    is_host: impl Fn(SocketAddr) -> bool,
    address: SocketAddr,
) -> (Kind, SocketAddr) {
    let known = announced.iter().find(|one| one.address == address).map(|one| one.kind);
    let kind =
        known.unwrap_or_else(|| if is_host(address) { Kind::Host } else { Kind::Discovered });
    (kind, address)
}
