//! The side that has the service: answers the trials of a visitor.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use link::Link;
use punch::{Body, Decline, Signal};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, spawn_local};
use transport_quic::punched::{Begin, Failure};

use super::{Answered, DirectPaths, WAITING_MAX, converse, is_local, say};
use crate::client::{ClientShared, stun};
use crate::peer::accept::{Whose, welcome};
use crate::session::{Session, Worker};

/// Answers the trials of one link, one at a time.
pub(crate) struct Offers {
    worker: Rc<Worker>,
    shared: Arc<ClientShared>,
    whose: Whose,
    session: Arc<Session>,
    current: RefCell<Option<Round>>,
}

/// The trial that is under way, or the last one.
struct Round {
    number: u32,
    inbox: mpsc::Sender<Bytes>,
    task: AbortHandle,
}

impl Drop for Round {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Offers {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        shared: &Arc<ClientShared>,
        whose: &Whose,
        session: &Arc<Session>,
    ) -> Self {
        let (worker, shared, whose) = (Rc::clone(worker), Arc::clone(shared), whose.clone());
        let session = Arc::clone(session);
        Self { worker, shared, whose, session, current: RefCell::default() }
    }

    /// Takes a signal of the visitor. The first signal of a newer round begins a trial, and ends the
    /// one before it.
    pub(crate) fn hear(&self, link: &Link, signal: Bytes) {
        let round = match Signal::decode(&signal) {
            Ok(signal) => signal.round,
            Err(error) => {
                tracing::debug!(link = link.serial(), %error, "a signal is not understood");
                return;
            }
        };
        let mut current = self.current.borrow_mut();
        let known = current.as_ref().map(|known| known.number);
        if known.is_none_or(|known| round > known) {
            *current = Some(self.begin(link, round));
        }
        if let Some(known) = current.as_ref().filter(|known| known.number == round) {
            // A signal that finds no room is repeated by the next one.
            let _ = known.inbox.try_send(signal);
        }
    }

    fn begin(&self, link: &Link, number: u32) -> Round {
        let (inbox, heard) = mpsc::channel(WAITING_MAX);
        let trying = Trying {
            worker: Rc::clone(&self.worker),
            shared: Arc::clone(&self.shared),
            whose: self.whose.clone(),
            session: Arc::clone(&self.session),
            link: link.clone(),
            number,
        };
        let task = spawn_local(trying.run(heard)).abort_handle();
        Round { number, inbox, task }
    }
}

/// The answer to one trial.
struct Trying {
    worker: Rc<Worker>,
    shared: Arc<ClientShared>,
    whose: Whose,
    session: Arc<Session>,
    link: Link,
    number: u32,
}

impl Trying {
    async fn run(self, mut heard: mpsc::Receiver<Bytes>) {
        let Some(turn) = DirectPaths::answer(&self.shared) else {
            return self.decline(Decline::Unable);
        };
        let serial = self.link.serial();
        if let Err(error) = self.attempt(&mut heard, turn).await {
            tracing::debug!(link = serial, %error, "no direct path to the visitor");
            self.session.paths.failed(serial, error.to_string());
        }
    }

    async fn attempt(
        &self,
        heard: &mut mpsc::Receiver<Bytes>,
        _turn: Answered,
    ) -> Result<(), Failure> {
        let config = self.shared.config.load_full();
        let stun = stun::of(self.shared.uplink(), &config, stun::LOOKUPS).await;
        let puncher = self.shared.direct.puncher(&config, is_local(&stun));
        let begin = Begin { round: self.number, stun, is_mapping: false };
        let trial = puncher.map_err(Failure::Quic).and_then(|made| Ok(made.publisher(&begin)?));
        let trial = trial.inspect_err(|_| self.decline(Decline::Unable))?;
        let incoming = tokio::select! {
            incoming = trial.accept() => incoming?,
            () = converse(&self.link, &trial, heard) => return Ok(()),
        };
        self.session.paths.found(self.link.serial(), trial.path());
        tokio::select! {
            () = welcome(&self.worker, &self.shared, &self.whose, incoming) => {}
            // The visitor may still miss the signal that says which pair it is.
            () = converse(&self.link, &trial, heard) => {}
        }
        Ok(())
    }

    fn decline(&self, why: Decline) {
        let signal = Signal { round: self.number, body: Body::Decline(why) };
        say(&self.link, signal.encode());
    }
}
