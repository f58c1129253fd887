//! What a worker of a client has beside the state of every worker: the counters of the services whose
//! targets it dials.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use link::client::Redial;
use ops::status;
use relay::{FlowStats, FlowTargets, Stats, TargetAddr};

use super::ClientShared;
use super::targets::Services;
use crate::peer::links::{Peer, named};
use crate::survey;

/// The state of a client on one worker.
#[derive(Default)]
pub(crate) struct ClientState {
    /// By the name of the service.
    services: RefCell<HashMap<String, Counters>>,
    /// The command that ends the pauses of the links of this worker.
    pub(crate) redial: Rc<Redial>,
    /// The targets of the services, which all links of this worker share.
    pub(super) targets: RefCell<Option<Services>>,
    shared: RefCell<Weak<ClientShared>>,
}

/// The counters of a service on one worker.
#[derive(Clone, Default)]
struct Counters {
    streams: Rc<Stats>,
    flows: Rc<FlowStats>,
    /// The flows themselves, which outlive a change of the service.
    targets: Rc<FlowTargets>,
}

impl ClientState {
    /// The client has started on this worker.
    pub(super) fn start(&self, shared: &Arc<ClientShared>) {
        *self.shared.borrow_mut() = Arc::downgrade(shared);
    }

    /// The private service that the target of a program names. `None`: it names none. The error is a
    /// name that nobody knows.
    pub(crate) fn service_named(&self, target: &str) -> Option<Result<Arc<Peer>, String>> {
        let shared = self.shared.borrow().upgrade()?;
        let config = shared.config.load();
        Some(named(&config, target)?.map(|service| shared.visits.peer(service)))
    }

    /// The counters of a service, which all links of this worker share.
    pub(super) fn stats_of(&self, name: &str) -> Rc<Stats> {
        Rc::clone(&self.services.borrow_mut().entry(name.to_owned()).or_default().streams)
    }

    /// The same of the flows of a service, and the flows.
    pub(super) fn flows_of(&self, name: &str) -> (Rc<FlowStats>, Rc<FlowTargets>) {
        let mut services = self.services.borrow_mut();
        let Counters { flows, targets, .. } = services.entry(name.to_owned()).or_default();
        (Rc::clone(flows), Rc::clone(targets))
    }

    /// Ends the flows that lead elsewhere than `targets` says of their service.
    pub(super) fn lead_flows(&self, targets: impl Fn(&str) -> Vec<TargetAddr>) {
        let services = self.services.borrow();
        let all: Vec<_> = services
            .iter()
            .map(|(name, counters)| (name.clone(), Rc::clone(&counters.targets)))
            .collect();
        drop(services);
        for (name, flows) in all {
            flows.lead_to(&targets(&name));
        }
    }

    /// The counts of the services of this worker.
    pub(crate) fn counts(&self) -> Vec<status::Service> {
        let services = self.services.borrow();
        let count = |(name, counters): (&String, &Counters)| {
            let Counters { streams: stats, flows, .. } = counters;
            let mut service = status::Service {
                name: name.clone(),
                streams: stats.live(),
                streams_total: stats.opened(),
                // The sockets here belong to targets: bytes written to a target came from a visitor.
                bytes_in: stats.bytes_out(),
                bytes_out: stats.bytes_in(),
                refused: survey::refused(stats),
                ..status::Service::default()
            };
            // As with streams: what was sent to a target came from a visitor.
            survey::add_flows(&mut service, flows, true);
            service
        };
        services.iter().map(count).collect()
    }

    /// The name of each service, by the identities of its counters.
    pub(crate) fn counted_names(&self) -> Vec<(*const (), String)> {
        let services = self.services.borrow();
        let names = services.iter().flat_map(|(name, counters)| {
            let identities = [counters.streams.identity(), counters.flows.identity()];
            identities.map(|identity| (identity, name.clone()))
        });
        names.collect()
    }
}
