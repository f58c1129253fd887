//! The side that has the service: answers the trials of a visitor.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use link::Link;
use punch::{Body, Decline, Described, Signal, Why};
use tls::Shown;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::Instant;
use transport_quic::punched::{Begin, Failure};

use super::channels;
use super::failed::Failed;
use super::signals::{WAITING_MAX, converse, said, say};
use crate::accept::{Ready, welcome};
use crate::home::Home;
use crate::turns::Turn;
use crate::visit::VisitKey;
use node::session::{Found, Session, Worker};

/// The minimum interval between the trials of one link. Each trial resolves names, binds a socket
/// and queries STUN servers, so a visitor must not begin an unlimited number. The pauses of an
/// honest visitor are 5 s and longer, except after a change of its network.
const APART: Duration = Duration::from_secs(1);

/// Answers the trials of one link, one at a time.
pub struct Offers {
    worker: Rc<Worker>,
    shared: Arc<dyn Home>,
    whose: VisitKey,
    session: Arc<Session>,
    current: RefCell<Option<Round>>,
    /// Informs the visitor that its last round has no trial.
    declining: RefCell<Option<Task>>,
}

impl std::fmt::Debug for Offers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offers").finish_non_exhaustive()
    }
}

/// A task that ends when it is dropped.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The trial that is running, or the last one.
struct Round {
    number: u32,
    began: Instant,
    inbox: mpsc::Sender<Bytes>,
    _task: Task,
}

impl Offers {
    pub fn new(
        worker: &Rc<Worker>,
        shared: &Arc<dyn Home>,
        whose: &VisitKey,
        session: &Arc<Session>,
    ) -> Self {
        let (worker, shared, whose) = (Rc::clone(worker), Arc::clone(shared), whose.clone());
        let session = Arc::clone(session);
        let (current, declining) = Default::default();
        Self { worker, shared, whose, session, current, declining }
    }

    /// Handles a signal of the visitor. The first signal of a newer round begins a trial, and ends
    /// the previous one.
    pub(crate) fn hear(&self, link: &Link, bytes: Bytes) {
        let Signal { round, body } = match Signal::decode(&bytes) {
            Ok(signal) => signal,
            Err(error) => {
                tracing::debug!(link = link.serial(), %error, "a signal is not understood");
                return;
            }
        };
        let offer = match body {
            Body::Description(Described::Offer, text) => Some(text),
            Body::Description(Described::Answer, _) | Body::Offer(_) | Body::Decline(_) => None,
        };
        let known = self.current.borrow().as_ref().map(|known| (known.number, known.began));
        let now = Instant::now();
        match judged(known, round, now) {
            Judged::Older => return,
            Judged::TooSoon => {
                let link = link.clone();
                let task = spawn_local(async move { decline(&link, round, Decline::Often).await });
                drop(self.declining.replace(Some(Task(task.abort_handle()))));
                return;
            }
            Judged::Begins => {
                drop(self.current.replace(Some(self.begin(link, (round, offer), now))));
            }
            Judged::UnderWay => {}
        }
        if let Some(known) = &*self.current.borrow() {
            // A signal that does not fit is repeated by the next one.
            let _ = known.inbox.try_send(bytes);
        }
    }

    /// Ends the trial of the link, which has ended.
    pub fn end(&self) {
        drop((self.current.take(), self.declining.take()));
    }

    /// `offer`: the WebRTC session description that begins the round.
    fn begin(&self, link: &Link, (number, offer): (u32, Option<String>), began: Instant) -> Round {
        let (inbox, heard) = mpsc::channel(WAITING_MAX);
        let trying = Trying {
            worker: Rc::clone(&self.worker),
            shared: Arc::clone(&self.shared),
            whose: self.whose.clone(),
            session: Arc::clone(&self.session),
            link: link.clone(),
            number,
        };
        let task = Task(spawn_local(trying.run(heard, offer)).abort_handle());
        Round { number, began, inbox, _task: task }
    }
}

/// How a signal relates to the trials of a link.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// The signal is of a trial that a newer one has ended.
    Older,
    UnderWay,
    Begins,
    /// The trial before it began less than [`APART`] ago.
    TooSoon,
}

/// Classifies a signal of this round by the known round and its start.
fn judged(known: Option<(u32, Instant)>, round: u32, now: Instant) -> Judged {
    match known {
        Some((known, _)) if round < known => Judged::Older,
        Some((known, _)) if round == known => Judged::UnderWay,
        Some((_, began)) if now.saturating_duration_since(began) < APART => Judged::TooSoon,
        Some(_) | None => Judged::Begins,
    }
}

/// Informs the visitor that this round has no trial here.
async fn decline(link: &Link, round: u32, why: Decline) {
    let signal = Signal { round, body: Body::Decline(why) }.encode();
    say(&signal, |signal| said(link, signal)).await;
}

/// The answer to one trial.
struct Trying {
    worker: Rc<Worker>,
    shared: Arc<dyn Home>,
    whose: VisitKey,
    session: Arc<Session>,
    link: Link,
    number: u32,
}

impl Trying {
    async fn run(self, mut heard: mpsc::Receiver<Bytes>, offer: Option<String>) {
        if self.shared.config().load().p2p.is_relayed() {
            self.shared.direct().note(Some(&Failed::because(Why::Relay)));
            self.session.paths.failed(&self.link, Why::Relay.to_string());
            return decline(&self.link, self.number, Decline::Relay).await;
        }
        let Some(turn) = self.shared.direct().answer(&self.whose) else {
            self.shared.direct().busy();
            return decline(&self.link, self.number, Decline::Often).await;
        };
        let outcome = match offer {
            Some(offer) => self.answer(&offer, turn).await,
            None => {
                self.attempt(&mut heard, turn).await.map_err(Failed::from).inspect_err(|error| {
                    self.shared.direct().note(Some(error));
                })
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(link = self.link.serial(), %error, "no direct path to the visitor");
            self.session.paths.failed(&self.link, error.to_string());
        }
    }

    /// Answers an offer of data channels, and accepts the resulting carrier.
    async fn answer(&self, offer: &str, _turn: Turn) -> Result<(), Failed> {
        let answered =
            match channels::answer(&self.shared, self.whose.visitor.as_str(), offer).await {
                Ok(answered) => answered,
                Err(declined) => {
                    decline(&self.link, self.number, declined.why).await;
                    return Err(declined.into_failure(self.shared.direct()));
                }
            };
        let body = Body::Description(Described::Answer, answered.answer().to_owned());
        let signal = Signal { round: self.number, body }.encode();
        say(&signal, |signal| said(&self.link, signal)).await;
        let carrier = answered.carrier().await.map_err(Failed::Channels).inspect_err(|error| {
            self.shared.direct().note(Some(error));
        })?;
        self.shared.direct().note(None);
        self.session.paths.found(&self.link, Found::Channels(carrier.peer.address));
        // The link that this path joins has begun with a certificate, if one is required.
        let (incoming, shown) = (Box::new(Ready(carrier)), Shown::default());
        welcome(&self.worker, &self.shared, &self.whose, (incoming, &shown)).await;
        Ok(())
    }

    async fn attempt(&self, heard: &mut mpsc::Receiver<Bytes>, _turn: Turn) -> Result<(), Failure> {
        let config = self.shared.config().load_full();
        let stun = self.shared.stun().await;
        let puncher = self.shared.direct().puncher(&config);
        let is_mapping = config.p2p.mapped;
        let pace = self.shared.direct().pace(self.whose.visitor.as_str());
        let begin = Begin { round: self.number, stun, is_mapping, pace };
        let trial = puncher.map_err(Failure::Quic).and_then(|made| Ok(made.publisher(&begin)?));
        let trial = match trial {
            Ok(trial) => trial,
            Err(error) => {
                decline(&self.link, self.number, Decline::Unable).await;
                return Err(error);
            }
        };
        if is_mapping {
            self.shared.direct().ports.map(&trial);
        }
        let incoming = tokio::select! {
            incoming = trial.accept() => incoming?,
            never = converse(&self.link, &trial, heard) => match never {},
        };
        self.shared.direct().note(None);
        self.session.paths.found(&self.link, Found::Quic(trial.path()));
        // The link that this path joins has begun with a certificate, if one is required.
        let shown = Shown::default();
        tokio::select! {
            () = welcome(&self.worker, &self.shared, &self.whose, (incoming, &shown)) => {}
            // The visitor may not have received the signal that names the pair yet.
            never = converse(&self.link, &trial, heard) => match never {},
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_round_begins_a_trial_but_not_many_in_a_second() {
        let begin = Instant::now();
        let soon = begin + APART - Duration::from_millis(1);
        assert_eq!(judged(None, 7, begin), Judged::Begins);
        let known = Some((7, begin));
        assert_eq!(judged(known, 6, begin + APART), Judged::Older);
        assert_eq!(judged(known, 7, soon), Judged::UnderWay);
        assert_eq!(judged(known, 8, soon), Judged::TooSoon);
        assert_eq!(judged(known, u32::MAX, begin + APART), Judged::Begins);
    }
}
