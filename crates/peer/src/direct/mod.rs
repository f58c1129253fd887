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
//! | `offer` | the side that has the service: answers the trials of a visitor |
//! | `seek` | the side that visits: the path that the keeper of the link dials |
//! | [`news`] | notices that this machine has other addresses |
//! | `failed` | both sides: why a trial gave no carrier |
//! | [`ports`] | the ports that the router opened for trials |
//! | `channels` | both sides: data channels of WebRTC in the place of QUIC (`p2p: webrtc`) |

#[cfg(feature = "webrtc")]
pub(crate) mod channels;
#[cfg(not(feature = "webrtc"))]
#[path = "without.rs"]
pub(crate) mod channels;
mod failed;
pub mod news;
pub mod offer;
pub mod ports;
pub(crate) mod seek;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use config::ClientConfig;
use link::Link;
use ops::status::Peers;
use proto::control::ControlMessage;
use punch::{Kinds, Pace};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use transport::CarrierError;
use transport_quic::punched::{PunchSettings, Puncher, Trial};

use super::accept::Whose;
use super::turns::{Bounds, Turn, Turns};
use families::quic;
use node::session::PathBytes;

use failed::Declined;
pub use failed::Failed;
use ports::Ports;

/// The trials that a client answers at a time. Each has a socket for at most 10 s, and then the
/// handshake and the greeting of the visitor. A visitor may have many links.
const ANSWERED: Bounds = Bounds { all: 64, of_visitor: 8, of_service: 8 };

/// Clients whose paces are remembered. The server names the clients, and further ones share a pace.
const PACES: usize = 1_024;

/// The name of the pace that further clients share. No client has this name.
const OTHERS: &str = "";

/// Signals that wait while names of STUN servers are looked up. A signal repeats all candidates, so
/// the loss of one delays a trial at most.
const WAITING_MAX: usize = 16;

/// The time between two looks for room on the control stream.
const ROOM: Duration = Duration::from_millis(100);

/// What the direct paths of a client share.
#[derive(Debug)]
pub struct DirectPaths {
    puncher: OnceLock<Puncher>,
    /// Data channels.
    #[cfg_attr(not(feature = "webrtc"), allow(dead_code, reason = "there are none"))]
    channels: channels::Peers,
    /// The trials that this client answers.
    answered: Arc<Turns>,
    /// How often addresses that have not answered are sent to, by the client that names them.
    paces: Mutex<HashMap<String, Arc<Mutex<Pace>>>>,
    /// Held by whoever asks STUN servers without a trial.
    pub asking: tokio::sync::Mutex<()>,
    /// The trials that have ended, by the name of the outcome.
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
    /// The bytes over all links with other clients.
    bytes: Arc<PathBytes>,
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
            channels: channels::Peers::default(),
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

    /// A trial has ended; `None`: it has found a path.
    pub fn note(&self, failure: Option<&Failed>) {
        self.count(failure.map_or(FOUND, Failed::name));
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

    /// What was counted, for the status. `programs` visit at present.
    pub fn counted(&self, programs: u64) -> Peers {
        let outcomes = self.outcomes();
        let trials = outcomes.iter().map(|(name, count)| ((*name).to_owned(), *count));
        let trials = trials.collect();
        Peers { trials, bytes: self.bytes.all(), programs, ..Peers::default() }
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

    /// Takes a place among the trials that are answered. `None`: there are too many.
    pub(super) fn answer(&self, whose: &Whose) -> Option<Turn> {
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

/// Carries the signals of a trial, until the future is dropped.
async fn converse(link: &Link, trial: &Trial, inbox: &mut mpsc::Receiver<Bytes>) -> Infallible {
    let send = |signal: &[u8]| said(link, signal);
    let saying = say_all(|| trial.signal(), send);
    let hearing = async {
        while let Some(signal) = inbox.recv().await {
            if let Err(error) = trial.handle_signal(&signal) {
                tracing::debug!(link = link.serial(), %error, "a signal is not understood");
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        never = saying => never,
        never = hearing => never,
    }
}

/// Sends each signal. A signal that finds no room is sent again, unless there is a newer one, which
/// repeats everything: it may be the last signal of its trial.
async fn say_all<F: Future<Output = Vec<u8>>>(
    mut next: impl FnMut() -> F,
    send: impl Fn(&[u8]) -> bool,
) -> Infallible {
    let mut signal = next().await;
    loop {
        let newer = next();
        tokio::pin!(newer);
        signal = tokio::select! {
            newer = &mut newer => newer,
            () = say(&signal, &send) => newer.await,
        };
    }
}

/// Sends a signal, as soon as there is room for it.
async fn say(signal: &[u8], send: impl Fn(&[u8]) -> bool) {
    while !send(signal) {
        sleep(ROOM).await;
    }
}

/// Sends a signal. `false`: there is no room on the control stream.
fn said(link: &Link, signal: &[u8]) -> bool {
    let is_said = link.send_message(&ControlMessage::Signal(Bytes::copy_from_slice(signal)));
    if !is_said {
        tracing::debug!(link = link.serial(), "no room for a signal");
    }
    // A link that has ended carries no signal any more.
    is_said || link.has_ended()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::time::timeout;

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

    #[tokio::test(start_paused = true)]
    async fn the_last_signal_of_a_trial_is_sent_when_there_is_room_again() {
        let (begin, sent) = (Instant::now(), RefCell::new(Vec::new()));
        let number = Cell::new(0);
        let next = || async {
            number.set(number.get() + 1);
            match number.get() {
                1 => vec![1],
                2 => {
                    sleep(ROOM / 2).await;
                    vec![2]
                }
                _ => std::future::pending().await,
            }
        };
        let send = |signal: &[u8]| {
            let has_room = begin.elapsed() >= ROOM * 4;
            if has_room {
                sent.borrow_mut().push(signal[0]);
            }
            has_room
        };
        let never = timeout(ROOM * 20, say_all(next, send)).await;
        assert!(never.is_err());
        assert_eq!(*sent.borrow(), [2], "the newer signal has all of the older one");
    }
}
