//! Daemons that carry visitors, alive until dropped.

use std::net::SocketAddr;

use testkit::stage::Daemon;

/// A started system.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where visitors of an origin connect.
    addresses: Vec<(&'static str, SocketAddr)>,
    pids: Vec<u32>,
    /// Killed by their numbers when dropped.
    _daemons: Vec<Daemon>,
}

impl Running {
    pub(super) fn new(addresses: Vec<(&'static str, SocketAddr)>, daemons: Vec<Daemon>) -> Self {
        let pids = daemons.iter().map(Daemon::id).collect();
        Self { addresses, pids, _daemons: daemons }
    }

    /// Where visitors of this origin connect.
    ///
    /// # Panics
    /// When it is none of those that the system was started with.
    pub(crate) fn address(&self, origin: &str) -> SocketAddr {
        let found = self.addresses.iter().find(|(name, _)| *name == origin);
        found.unwrap_or_else(|| panic!("no origin was called {origin}")).1
    }

    /// All daemons, those of the visitors' side first. None for `direct`.
    pub(crate) fn pids(&self) -> &[u32] {
        &self.pids
    }
}
