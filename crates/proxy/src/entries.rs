//! The entries of a proxy as entrances of this process.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;

use config::{Balancer, Local, Net};
use proto::Target;
use relay::shares::Kind;
use relay::{FlowBounds, Gate, Holder};

use node::aim::Aim;
use node::descriptors;
use node::entrance::{Entrance, Opening};

/// An entry of the configuration, as an entrance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListenerEntry(pub(crate) Balancer);

impl ListenerEntry {
    /// All entries of a configuration.
    pub(crate) fn all(proxies: &[Balancer]) -> Vec<Self> {
        proxies.iter().cloned().map(Self).collect()
    }
}

impl Deref for ListenerEntry {
    type Target = Balancer;

    fn deref(&self) -> &Balancer {
        &self.0
    }
}

impl Opening for ListenerEntry {
    const WHAT: &'static str = "proxy";

    fn listen(&self) -> &Local {
        &self.listen
    }

    fn aim(&self, _address: &str) -> Aim {
        let name = self.service.name.clone();
        let target = Target::Service(name.clone());
        Aim { name, target, terms: self.terms(), rules: None, proxy: None }
    }

    fn gate(&self) -> Arc<Gate> {
        let holder = Holder::new(descriptors::table(), Kind::Own);
        Gate::limited(&self.service.stream_limits, Some(holder), None)
    }

    fn bounds(&self) -> Arc<FlowBounds> {
        let (most, per_source) = flows(self);
        Arc::new(FlowBounds::new(most, per_source))
    }

    fn announcers(&self) -> &[Net] {
        &self.announced_by
    }

    fn limit(&self, entrance: &Entrance) {
        entrance.in_force().gate().set(&self.service.stream_limits);
        let (most, per_source) = flows(self);
        entrance.bounds.set(most, per_source);
    }

    // Flows to removed targets are ended by the end that sends to the targets.
    fn turns_flows(&self, _before: &Self) -> bool {
        false
    }

    fn tell(&self, before: Option<&Self>, address: &str) {
        let (name, aims) = (&self.service.name, self.service.aims());
        let does = if before.is_some() { "has changed" } else { "listens" };
        tracing::info!(
            service = name,
            address,
            "proxy {name} {does} at {address}; its visitors go to {aims}"
        );
    }
}

/// The maximum number of flows, in total and of one source.
fn flows(proxy: &Balancer) -> (u32, u32) {
    let limits = proxy.service.limits;
    let most = limits.most.map_or(FlowBounds::FLOWS, NonZeroU32::get);
    (most, limits.per_source.map_or(u32::MAX, NonZeroU32::get))
}
