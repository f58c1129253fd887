//! What a worker of a client has beside the state of every worker: the counters of the services whose
//! targets it dials.

use ops::status;
use relay::{FlowStats, FlowTargets, Stats, TargetAddr};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::targets::Services;
use crate::survey;

/// The state of a client on one worker.
#[derive(Default)]
pub(crate) struct ClientState {
    /// By the name of the service.
    services: RefCell<HashMap<String, Counters>>,
    /// The targets of the services, which all links of this worker share.
    pub(super) targets: RefCell<Option<Services>>,
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
