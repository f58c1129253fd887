//! Limits of the number of flows at one address. All workers share a limit, so it does not depend
//! on their number.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use net::source::{Share, Shares, Source};

use crate::Visitor;

/// The limit and the current number of flows of one listener, or of the targets of one service.
pub struct FlowBounds {
    most: AtomicU32,
    live: AtomicU32,
    sources: Arc<Shares>,
    is_proxy: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

/// The slot of a counted flow. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Held(Arc<FlowBounds>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for FlowBounds {
    fn default() -> Self {
        Self::new(Self::FLOWS, u32::MAX)
    }
}

impl fmt::Debug for FlowBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowBounds({} of {})", self.live(), self.most())
    }
}

impl FlowBounds {
    /// The default maximum number of flows at one address. A flow takes about 500 bytes here and as
    /// many in the link, so a flood with spoofed sources takes 16 MB.
    pub const FLOWS: u32 = 16_384;

    /// The default maximum number of flows of one source: several hundred players or a busy
    /// resolver behind one address, but no more than a quarter of all flows.
    pub const OF_SOURCE: u32 = Self::FLOWS / 4;

    /// Makes bounds of `most` flows, at most `per_source` of them from one source.
    #[must_use]
    pub fn new(most: u32, per_source: u32) -> Self {
        let (most, live) = (AtomicU32::new(most.max(1)), AtomicU32::new(0));
        let (sources, is_proxy) = (Shares::new(per_source.max(1)), Box::new(|_| false));
        Self { most, live, sources, is_proxy }
    }

    /// Sets which addresses have no limit per source, because many visitors share each of them.
    #[must_use]
    pub fn without(self, is_proxy: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self { is_proxy: Box::new(is_proxy), ..self }
    }

    /// Changes the bounds. Existing flows stay.
    pub fn set(&self, most: u32, per_source: u32) {
        self.most.store(most.max(1), Ordering::Relaxed);
        self.sources.set_most(per_source.max(1));
    }

    /// The largest number of flows.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most.load(Ordering::Relaxed)
    }

    /// The largest number of flows of one source.
    #[must_use]
    pub fn per_source(&self) -> u32 {
        self.sources.most()
    }

    /// The number of flows.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// The source that a peer with this address counts for.
    pub(super) fn source(&self, peer: IpAddr) -> Option<Source> {
        let peer = peer.to_canonical();
        (!(self.is_proxy)(peer)).then_some(peer.into())
    }

    /// The source that the flow of a visitor counts for.
    pub(super) fn source_of(&self, visitor: &Visitor) -> Option<Source> {
        match visitor.source()? {
            Source::Address(ip) => self.source(ip),
            client @ Source::Client(_) => Some(client),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.live() < self.most()
    }

    pub(super) fn has_share(&self, source: Option<&Source>) -> bool {
        source.is_none_or(|source| self.sources.held(source.clone()) < self.per_source())
    }

    pub(super) fn hold(self: &Arc<Self>) -> Option<Held> {
        let most = self.most();
        let next = |live: u32| (live < most).then_some(live + 1);
        let held = self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        held.is_ok().then(|| Held(Arc::clone(self)))
    }

    pub(super) fn share(&self, source: Option<&Source>) -> Option<Share> {
        self.sources.take(source.cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_the_source_of_its_flows_whatever_address_it_claims() {
        let proxy = [192, 0, 2, 1];
        let bounds = Arc::new(FlowBounds::new(10, 2).without(move |ip| ip == IpAddr::from(proxy)));
        let at = |ip: [u8; 4]| Some((ip, 1).into());
        let of = |client: &str, ip| Visitor::Of { client: client.into(), claimed: at(ip) };
        let claims = [[198, 51, 100, 7], [198, 51, 100, 8], proxy].map(|ip| of("laptop", ip));
        let sources = claims.map(|visitor| bounds.source_of(&visitor));
        assert!(sources.iter().all(Option::is_some), "an address of a reverse proxy is no way out");
        let held: Vec<_> = sources.iter().map(|source| bounds.share(source.as_ref())).collect();
        assert!(held[0].is_some() && held[1].is_some() && held[2].is_none());
        let other = bounds.source_of(&of("phone", [198, 51, 100, 7]));
        assert!(bounds.has_share(other.as_ref()));
        assert_eq!(bounds.source_of(&Visitor::from(at(proxy))), None);
    }
}
