//! The sources whose datagrams reach a direct path.

use std::net::SocketAddr;
use std::sync::OnceLock;

use net::socket::canonical;
use punch::{Settings, is_private};

/// Decides about the source of a datagram, which may be forged: QUIC validates each new address of
/// a client, and checks are authenticated. No lock is taken, because this runs for every datagram.
#[derive(Debug)]
pub(super) struct Sources {
    settings: Settings,
    /// The address of the peer's connection. Before the connection is established, checks find out
    /// which addresses the peer has.
    open: OnceLock<SocketAddr>,
}

impl Sources {
    pub(super) const fn new(settings: Settings) -> Self {
        Self { settings, open: OnceLock::new() }
    }

    /// The peer's connection is established, and its packets came from `remote`.
    pub(super) fn open(&self, remote: SocketAddr) {
        let _ = self.open.set(canonical(remote));
    }

    /// Whether QUIC handles all packets itself.
    pub(super) fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    pub(super) fn admit(&self, from: SocketAddr) -> bool {
        let from = canonical(from);
        let is_private_taken = self.settings.kinds.host
            || self.open.get().is_none_or(|proven| *proven == from)
            || !is_private(from.ip());
        is_private_taken && self.settings.refusal(from).is_none()
    }
}

#[cfg(test)]
mod tests {
    use punch::Kinds;

    use super::*;

    fn sources(host: bool, loopback: bool) -> Sources {
        let kinds = Kinds { host, ..Kinds::default() };
        Sources::new(Settings { kinds, loopback, ..Settings::default() })
    }

    fn admits(sources: &Sources, from: &str) -> bool {
        sources.admit(from.parse().unwrap())
    }

    #[test]
    fn a_source_that_a_peer_must_not_name_reaches_no_path() {
        let proven = "192.0.2.7:9".parse().unwrap();
        for is_open in [false, true] {
            let (sources, tested) = (sources(true, false), sources(true, true));
            if is_open {
                [&sources, &tested].into_iter().for_each(|one| one.open(proven));
            }
            for bad in ["169.254.169.254:80", "[::ffff:169.254.169.254]:80", "127.0.0.1:9"] {
                assert!(!admits(&sources, bad), "{bad}");
            }
            for good in ["192.0.2.8:9", "[::ffff:192.0.2.8]:9", "10.0.0.1:9", "[fd12::1]:9"] {
                assert!(admits(&sources, good), "{good}");
            }
            assert!(admits(&tested, "127.0.0.1:9") && !admits(&tested, "169.254.169.254:80"));
        }
    }

    #[test]
    fn private_sources_are_for_those_who_tell_theirs_and_for_the_proven_peer() {
        let sources = sources(false, false);
        assert!(admits(&sources, "10.0.0.1:9"), "both ends may be in one private network");
        sources.open("[::ffff:10.0.0.1]:9".parse().unwrap());
        assert!(admits(&sources, "10.0.0.1:9") && admits(&sources, "192.0.2.8:9"));
        assert!(!admits(&sources, "10.0.0.1:10") && !admits(&sources, "192.168.1.1:9"));
    }
}
