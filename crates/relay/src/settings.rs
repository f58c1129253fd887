//! The settings that all streams of a service (or of a forward) share on one worker.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use net::SocketOptions;
use net::options::KeepAlive;
use net::resolve::Lookups;
use proto::control::{ServiceTerms, Timeouts};
use proto::{Budget, ResetCode};

use crate::dial::DialAccount;
use crate::{Gate, Held, Holder, Room, Stats, Watcher};

/// The settings that all streams of a service (or of a forward) share on one worker.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The time-outs. `keepalive` has no effect here, because `socket` has it.
    pub timeouts: Timeouts,
    /// The options of the sockets of visitors and targets.
    pub socket: SocketOptions,
    /// The counters of the streams. They survive a change of the settings.
    pub stats: Rc<Stats>,
    /// The descriptors that sockets to targets may use.
    pub room: Room,
    /// The holder for which the sockets to targets count; `None`: they count for no share.
    pub holder: Option<Arc<Holder>>,
    /// The resolver for the names of targets.
    pub lookups: Lookups,
    /// The account to which dials count.
    pub dials: DialAccount,
    /// The memory budget of this worker, for visitors that are not charged to a stream; `None`:
    /// nothing is charged.
    pub budget: Option<Rc<dyn Budget>>,
    /// The gate whose byte rates apply to the streams; `None`: no rate. Each stream has a permit of
    /// this gate.
    pub gate: Option<Arc<Gate>>,
    /// Receives the events of the streams.
    pub watcher: Option<Rc<dyn Watcher>>,
}

impl Settings {
    /// The budget that applies to the source of a visitor.
    pub(crate) fn budget_of(&self, visitor: Option<SocketAddr>) -> Option<Rc<dyn Budget>> {
        let budget = self.budget.as_ref()?;
        let of_source = visitor.and_then(|visitor| budget.of_visitor(visitor));
        Some(of_source.unwrap_or_else(|| Rc::clone(budget)))
    }

    /// Charges memory for a visitor to the budget. `None`: the budget is exhausted, and the visitor
    /// was counted as refused.
    pub(crate) fn hold(&self, bytes: u64, visitor: Option<SocketAddr>) -> Option<Held> {
        let held = Held::none(self.budget_of(visitor).as_ref());
        if !held.affords(bytes) {
            self.stats.count_refused(ResetCode::Limit);
            return None;
        }
        held.set(bytes);
        Some(held)
    }
}

/// The options of the sockets of visitors and targets under these terms.
#[must_use]
pub fn socket_options(terms: &ServiceTerms) -> SocketOptions {
    let ServiceTerms { timeouts: Timeouts { keepalive: idle, .. }, dscp, .. } = *terms;
    SocketOptions {
        dscp: dscp.number(),
        keepalive: KeepAlive { idle, ..KeepAlive::DEFAULT },
        ..SocketOptions::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_probed_by_default_as_the_terms_of_a_service_say() {
        assert_eq!(socket_options(&ServiceTerms::default()), SocketOptions::default());
    }
}
