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
//! | [`channels`] | both sides: data channels of WebRTC in the place of QUIC (`p2p: webrtc`) |

#[cfg(feature = "webrtc")]
pub(crate) mod channels;
#[cfg(not(feature = "webrtc"))]
#[path = "without.rs"]
pub(crate) mod channels;
pub(crate) mod news;
pub(crate) mod offer;
pub(crate) mod seek;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use config::ClientConfig;
use link::Link;
use proto::control::ControlMessage;
use punch::Kinds;
use tokio::sync::mpsc;
use transport::{CarrierError, Transport};
use transport_quic::punched::{DIRECT, PunchSettings, Puncher, Trial};

use crate::client::ClientShared;
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
    /// Data channels.
    channels: channels::Peers,
    /// The trials that this client answers.
    answered: AtomicUsize,
    /// Held by whoever asks STUN servers without a trial.
    pub(crate) asking: tokio::sync::Mutex<()>,
}

impl DirectPaths {
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

/// Whether a carrier of this transport does not pass the server.
pub(crate) fn is_direct(transport: Transport) -> bool {
    transport == DIRECT || channels::is_one(transport)
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
