//! The shared state of the direct paths of a client: limits, paces, and the outcomes of trials.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use config::ClientConfig;
use families::quic;
use node::session::PathBytes;
use ops::status;
use punch::{Decline, Kinds, Pace};
use tokio::time::Instant;
use transport::CarrierError;
use transport_quic::punched::{PunchSettings, Puncher};

use super::failed::{Declined, Failed};
use super::peers::Peers;
use super::ports::Ports;
use crate::turns::{Bounds, Turn, Turns};
use crate::visit::VisitKey;

/// The limits of concurrent trials that a client answers. Each has a socket for at most 10 s, and
/// then the handshake and the greeting of the visitor. A visitor may have many links.
const ANSWERED: Bounds = Bounds { all: 64, of_visitor: 8, of_service: 8 };

/// The maximum number of clients with their own pace. The server names the clients, and additional
/// clients share a pace.
const PACES: usize = 1_024;

/// The name of the pace that additional clients share. No client has this name.
const OTHERS: &str = "";

/// The shared state of the direct paths of a client.
#[derive(Debug)]
pub struct DirectPaths {
    pub(super) puncher: OnceLock<Puncher>,
    /// Data channels.
    #[cfg_attr(not(feature = "webrtc"), allow(dead_code, reason = "there are none"))]
    pub(super) channels: Peers,
    /// The trials that this client answers.
    pub(super) answered: Arc<Turns>,
    /// The pace of sending to addresses that have not answered, by the client that names them.
    pub(super) paces: Mutex<HashMap<String, Arc<Mutex<Pace>>>>,
    /// Held by the caller that queries STUN servers without a trial.
    pub asking: tokio::sync::Mutex<()>,
    /// The trials that have ended, by the name of the outcome.
    pub(super) outcomes: Mutex<BTreeMap<&'static str, u64>>,
    /// The bytes over all links with other clients.
    pub(super) bytes: Arc<PathBytes>,
    /// The ports of the router.
    pub ports: Arc<Ports>,
}

/// The name of a trial that has found a path.
const FOUND: &str = "direct";

/// The name of a trial that this client declines, because it answers too many.
const BUSY: &str = "busy";

impl DirectPaths {
    /// Must be called in the runtime in which the client is stopped.
    pub fn counting(bytes: &Arc<PathBytes>) -> Self {
        Self {
            puncher: OnceLock::new(),
            channels: Peers::default(),
            answered: Turns::new(ANSWERED),
            paces: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            outcomes: Mutex::default(),
            bytes: Arc::clone(bytes),
            ports: Arc::new(Ports::new()),
        }
    }

    /// The counter of the bytes over links with other clients.
    pub const fn bytes(&self) -> &Arc<PathBytes> {
        &self.bytes
    }

    /// Records the end of a trial; `None`: it has found a path.
    pub fn note(&self, failure: Option<&Failed>) {
        self.count(failure.map_or(FOUND, Failed::name));
    }

    /// Records that a trial is declined.
    pub(super) fn busy(&self) {
        self.count(BUSY);
    }

    fn count(&self, outcome: &'static str) {
        *self.outcomes().entry(outcome).or_default() += 1;
    }

    fn outcomes(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters for the status. `programs` visit at present.
    pub fn counted(&self, programs: u64) -> status::Peers {
        let outcomes = self.outcomes();
        let trials = outcomes.iter().map(|(name, count)| ((*name).to_owned(), *count));
        let trials = trials.collect();
        status::Peers { trials, bytes: self.bytes.all(), programs, ..status::Peers::default() }
    }

    /// Returns a puncher with the settings in force.
    pub(super) fn puncher(&self, config: &ClientConfig) -> Result<Puncher, CarrierError> {
        let settings = settings(config);
        if let Some(known) = self.puncher.get() {
            return Ok(known.with(settings));
        }
        let made = Puncher::new(settings.clone())?;
        Ok(self.puncher.get_or_init(|| made).with(settings))
    }

    /// The pace of checks at addresses that this client names, over all its links, services and
    /// offers.
    pub fn pace(&self, peer: &str) -> Arc<Mutex<Pace>> {
        let now = Instant::now().into_std();
        let mut all = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(peer) {
            return Arc::clone(known);
        }
        if all.len() >= PACES {
            all.retain(|_, pace| {
                let is_used = Arc::strong_count(pace) > 1;
                is_used || !pace.lock().unwrap_or_else(PoisonError::into_inner).is_at_rest(now)
            });
        }
        let peer = if all.len() < PACES { peer } else { OTHERS };
        Arc::clone(all.entry(peer.to_owned()).or_default())
    }

    /// Reserves a slot among the trials that are answered. `None`: there are too many.
    pub(crate) fn answer(&self, whose: &VisitKey) -> Option<Turn> {
        self.answered.take(whose)
    }
}

/// The settings of trials.
pub fn settings(config: &ClientConfig) -> PunchSettings {
    let (p2p, common) = (&config.p2p, &config.common);
    PunchSettings {
        quic: quic::settings(common),
        buffers: quic::sizes(&common.quic),
        kinds: Kinds { host: p2p.host, mapped: p2p.mapped, reflexive: p2p.reflexive },
        ports: p2p.ports.map(|(first, last)| first..=last),
        // A loopback address of the peer would make this client send to itself.
        loopback: false,
    }
}

impl Declined {
    /// Counts the declined offer; returns the reason.
    pub(crate) fn into_failure(self, paths: &DirectPaths) -> Failed {
        if self.why == Decline::Often {
            paths.busy();
        } else {
            paths.note(Some(&self.failed));
        }
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_has_one_pace_and_too_many_clients_share_one() {
        let paths = DirectPaths::counting(&Arc::default());
        let pace = paths.pace("laptop");
        assert!(Arc::ptr_eq(&pace, &paths.pace("laptop")));
        assert!(!Arc::ptr_eq(&pace, &paths.pace("phone")));
        let now = Instant::now().into_std();
        for n in 0..2 * PACES {
            let pace = paths.pace(&format!("client-{n}"));
            pace.lock().unwrap().ask(now, [192, 0, 2, 1].into());
        }
        assert!(paths.paces.lock().unwrap().len() <= PACES + 1);
        assert!(Arc::ptr_eq(&paths.pace("x"), &paths.pace("y")));
        assert!(Arc::ptr_eq(&pace, &paths.pace("laptop")), "a pace in use is not forgotten");
        sleep(Duration::from_secs(10)).await;
        assert!(!Arc::ptr_eq(&paths.pace("x"), &paths.pace("y")), "the others are at rest");
    }
}
