//! A way from visitors to one origin.

use std::net::SocketAddr;

use super::visitors::UDP;

/// A way from visitors to one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) name: &'static str,
    /// The address where visitors connect; no socket uses it yet.
    pub(super) entrance: SocketAddr,
    pub(super) target: SocketAddr,
}

impl Way {
    /// Whether the way is for datagrams.
    pub(super) fn is_udp(&self) -> bool {
        self.name == UDP
    }

    /// The URL scheme of both ends.
    pub(super) fn scheme(&self) -> &'static str {
        if self.is_udp() { "udp" } else { "tcp" }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A way from the port `entrance` to the port `target`.
    pub(in crate::systems) fn way(name: &'static str, entrance: u16, target: u16) -> Way {
        let [entrance, target] = [entrance, target].map(|port| ([127, 0, 0, 1], port).into());
        Way { name, entrance, target }
    }
}
