//! Direct paths between two clients: a carrier of a peer link that does not pass the server.
//!
//! ```text
//!   visitor                                         client of the service
//!   dial: trial, signals ──── peer link, relayed ───> first signal of a round: trial
//!         <──────────────── signals of both ───────>
//!         QUIC over the pair ──────────────────────> greeting, as on any carrier
//! ```
//!
//! The signals travel inside the peer link, so the server sees no address. A trial is the business of
//! `transport_quic::punched`; this module carries its signals, bounds the number of trials, and knows
//! for the status why there is no direct path.
//!
//! | module | content |
//! |---|---|
//! | [`offer`] | the side that has the service: answers the trials of a visitor |
//! | [`seek`] | the side that visits: the path that the keeper of the link dials |
//! | [`news`] | notices that this machine has other addresses |

pub(crate) mod news;
pub(crate) mod offer;
pub(crate) mod seek;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use config::ClientConfig;
use link::Link;
use ops::status::Peers;
use proto::control::ControlMessage;
use punch::Kinds;
use tokio::sync::mpsc;
use transport::CarrierError;
use transport_quic::punched::{Failure, PunchSettings, Puncher, Trial};

use crate::client::ClientShared;
use crate::session::PathBytes;
use crate::transports::quic;

/// The trials that a client answers at a time. Each has a socket for at most 10 s.
const ANSWERED_MAX: usize = 64;

/// Signals that wait while names of STUN servers are looked up. A signal repeats all candidates, so
/// the loss of one delays a trial at most.
const WAITING_MAX: usize = 16;

/// What the direct paths of a client share.
#[derive(Debug, Default)]
pub(crate) struct DirectPaths {
    puncher: OnceLock<Puncher>,
    /// The trials that this client answers.
    answered: AtomicUsize,
    /// Held by whoever asks STUN servers without a trial.
    pub(crate) asking: tokio::sync::Mutex<()>,
    /// The trials that have ended, by the name of the outcome.
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
    /// The bytes over all links with other clients.
    bytes: Arc<PathBytes>,
}

/// The name of a trial that has found a path.
const FOUND: &str = "direct";

/// The name of a trial that this client declines, because it answers too many.
const BUSY: &str = "busy";

impl DirectPaths {
    pub(crate) fn counting(bytes: &Arc<PathBytes>) -> Self {
        Self { bytes: Arc::clone(bytes), ..Self::default() }
    }

    /// The counter of the bytes over links with other clients.
    pub(crate) const fn bytes(&self) -> &Arc<PathBytes> {
        &self.bytes
    }

    /// A trial has ended; `None`: it has found a path.
    fn note(&self, failure: Option<&Failure>) {
        self.count(failure.map_or(FOUND, Failure::name));
    }

    /// A trial is declined.
    fn busy(&self) {
        self.count(BUSY);
    }

    fn count(&self, outcome: &'static str) {
        *self.outcomes().entry(outcome).or_default() += 1;
    }

    fn outcomes(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted, for the status.
    pub(crate) fn counted(&self) -> Peers {
        let outcomes = self.outcomes();
        let trials = outcomes.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Peers { trials: trials.collect(), bytes: self.bytes.all(), ..Peers::default() }
    }

    /// Makes trials by the settings in force.
    fn puncher(&self, config: &ClientConfig) -> Result<Puncher, CarrierError> {
        let settings = settings(config);
        if let Some(known) = self.puncher.get() {
            return Ok(known.with(settings));
        }
        let made = Puncher::new(settings.clone())?;
        Ok(self.puncher.get_or_init(|| made).with(settings))
    }

    /// Counts a trial that is answered. `None`: there are too many.
    fn answer(shared: &Arc<ClientShared>) -> Option<Answered> {
        let count = &shared.direct.answered;
        let is_taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < ANSWERED_MAX).then_some(count + 1)
        });
        is_taken.is_ok().then(|| Answered(Arc::clone(shared)))
    }
}

/// A place among the trials that this client answers.
struct Answered(Arc<ClientShared>);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.direct.answered.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The settings of trials.
pub(crate) fn settings(config: &ClientConfig) -> PunchSettings {
    let (p2p, common) = (&config.p2p, &config.common);
    PunchSettings {
        quic: quic::settings(common),
        buffers: quic::sizes(&common.quic),
        kinds: Kinds { host: p2p.host, mapped: false, reflexive: p2p.reflexive },
        ports: p2p.ports.map(|(first, last)| first..=last),
        // A loopback address of the peer would make this client send to itself.
        loopback: false,
    }
}

/// Carries the signals of a trial, until the future is dropped.
async fn converse(link: &Link, trial: &Trial, inbox: &mut mpsc::Receiver<Bytes>) -> Infallible {
    loop {
        tokio::select! {
            signal = trial.signal() => say(link, signal),
            heard = inbox.recv() => match heard {
                Some(signal) => {
                    if let Err(error) = trial.handle_signal(&signal) {
                        tracing::debug!(link = link.serial(), %error, "a signal is not understood");
                    }
                }
                None => std::future::pending().await,
            },
        }
    }
}

/// Sends a signal. Without room on the control stream the peer gets the next signal, which repeats
/// everything.
fn say(link: &Link, signal: Vec<u8>) {
    if !link.send_message(&ControlMessage::Signal(signal.into())) {
        tracing::debug!(link = link.serial(), "no room for a signal");
    }
}
