//! The state of a worker that dials targets: the counters of the services.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use relay::{FlowStats, FlowTargets, MovedSocket, Stats, TargetAddr};

/// The counters of services on one worker.
#[derive(Default)]
pub struct TargetsState {
    /// By the name of the service.
    services: RefCell<HashMap<String, Counters>>,
}

impl std::fmt::Debug for TargetsState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetsState").finish_non_exhaustive()
    }
}

/// The counters of a service on one worker.
#[derive(Clone, Default)]
struct Counters {
    streams: Rc<Stats>,
    flows: Rc<FlowStats>,
    /// The flows themselves, which outlive a change of the service.
    targets: Rc<FlowTargets>,
}

impl TargetsState {
    /// The counters of a service, which all links of this worker share.
    pub(super) fn stats_of(&self, name: &str) -> Rc<Stats> {
        Rc::clone(&self.services.borrow_mut().entry(name.to_owned()).or_default().streams)
    }

    /// The counters of the flows of a service, and the flows.
    pub(super) fn flows_of(&self, name: &str) -> (Rc<FlowStats>, Rc<FlowTargets>) {
        let mut services = self.services.borrow_mut();
        let Counters { flows, targets, .. } = services.entry(name.to_owned()).or_default();
        (Rc::clone(flows), Rc::clone(targets))
    }

    /// Takes the socket of a flow of a service for the next flow of its visitor, on another worker.
    pub(super) fn release(&self, service: &str, flow: u64) -> Option<MovedSocket> {
        let services = self.services.borrow();
        let flows = Rc::clone(&services.get(service)?.targets);
        drop(services);
        flows.release(flow)
    }

    /// Ends the flows to targets that `targets` does not return for their service.
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

    /// Passes the counters of each service of this worker to `show`.
    pub fn each(&self, mut show: impl FnMut(&str, &Stats, &FlowStats)) {
        for (name, counters) in self.services.borrow().iter() {
            show(name, &counters.streams, &counters.flows);
        }
    }

    /// The name of each service, by the identities of its counters.
    pub fn counted_names(&self) -> Vec<(*const (), String)> {
        let services = self.services.borrow();
        let names = services.iter().flat_map(|(name, counters)| {
            let identities = [counters.streams.identity(), counters.flows.identity()];
            identities.map(|identity| (identity, name.clone()))
        });
        names.collect()
    }
}
