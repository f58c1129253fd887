//! Accepts the links of visitors. A stream of the server becomes a carrier: TLS and the greeting
//! run in a task with a deadline, and the number of such tasks is bounded.

mod begun;
mod incoming;
#[cfg(feature = "webrtc")]
mod offers;
#[cfg(not(feature = "webrtc"))]
#[path = "without.rs"]
mod offers;
mod owner;
mod places;
mod proof;
mod verifier;

pub use offers::Programs;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::link::server::{LogInError, log_in};
use logging::{AUDIT, RepeatLimit};
use net::brake::Failures;
use proto::ResetCode;
use proto::greeting::{GREETING_TIMEOUT, Name, Refusal};
use relay::{StreamLane, Visitor, accept_duplex, refuse_stream};
use tls::Shown;
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{CarrierError, Incoming, Inlet, Outlet};

use super::turns::{Bounds, Turn, Turns};
use super::wire;
use crate::home::Home;
pub(super) use incoming::Ready;
use incoming::Stream;
use node::session::{Handle, Worker};
use places::{Arrival, Places};
use proof::{Proved, is_valid, may_visit, reason};
use verifier::PeerVerifier;

/// Visitors before the end of their greeting. Each costs a handshake of TLS and 160 KiB for at most
/// 30 s. A visitor has one link to a service, and dials a second time where the first carrier is
/// silent.
const GREETING: Bounds = Bounds { all: 256, of_visitor: 64, of_service: 8 };

/// Pairs of visitor and service whose wrong tokens are remembered. The server names the visitors.
const GUESSERS: usize = 1024;

/// Doublings of the pause after a wrong token: up to 3.2 s.
const DOUBLINGS: u32 = 5;

/// The time between two looks for idle links of a process that is stopping.
const IDLE_LOOK: Duration = Duration::from_millis(100);

/// The links of visitors with this client, over all workers.
#[derive(Debug)]
pub struct PeerHost {
    places: Places,
    /// Those before the end of their greeting.
    greeting: Arc<Turns>,
    brake: Mutex<Failures<Whose>>,
    told: Mutex<RepeatLimit<Whose>>,
    /// Programs that visit without a tunnel.
    pub programs: Programs,
}

/// A visitor, and the service that it visits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Whose {
    pub visitor: Name,
    pub service: Name,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for PeerHost {
    fn default() -> Self {
        let (places, greeting) = (Places::default(), Turns::new(GREETING));
        let brake = Mutex::new(Failures::new(GUESSERS, DOUBLINGS));
        let (told, programs) = (Mutex::new(RepeatLimit::new()), Programs::default());
        Self { places, greeting, brake, told, programs }
    }
}

impl PeerHost {
    /// Takes a stream that the server has joined with a stream of a visitor.
    pub fn take(
        &self,
        worker: &Rc<Worker>,
        shared: &Arc<dyn Home>,
        whose: Whose,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let refuse = |code| refuse_stream(&*inlet, None, code);
        if !may_visit(&shared.config().load(), &whose) {
            let Whose { visitor, service } = &whose;
            tracing::debug!(%visitor, %service, "the service is not private, or is for others");
            return refuse(ResetCode::Unknown);
        }
        let Some(turn) = self.greet(&whose) else {
            return refuse(ResetCode::Limit);
        };
        let (outlet, stream) = accept_duplex(inlet, Visitor::Unknown, &Rc::default(), None);
        let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
        spawn_local(async move {
            let mut lane = StreamLane::new(stream);
            match timeout(GREETING_TIMEOUT, wire::byte(&mut lane)).await {
                Ok(Ok(Some(wire::OFFER))) => {
                    offers::take(&worker, &shared, &whose, lane, turn).await;
                }
                Ok(Ok(Some(first))) => {
                    let stream = Stream::new(&shared, &whose, first, lane);
                    let shown = stream.shown.clone();
                    welcome(&worker, &shared, &whose, (Box::new(stream), &shown)).await;
                    drop(turn);
                }
                Ok(Ok(None) | Err(_)) | Err(_) => {}
            }
        });
        outlet
    }

    /// Takes a place among the visitors before the end of their greeting. `None`: there are too
    /// many.
    pub(super) fn greet(&self, whose: &Whose) -> Option<Turn> {
        self.greeting.take(whose)
    }

    /// This process is stopping: ends each link once it is idle. A link that retires would wait for
    /// a successor. Never ready.
    pub async fn leave(&self, handles: &[Handle]) {
        loop {
            self.places.close_idle(handles).await;
            tokio::time::sleep(IDLE_LOOK).await;
        }
    }

    /// Forgets a link that has ended.
    fn forget(&self, link: proto::LinkId) {
        self.places.forget(link);
    }

    /// Ends the links of those who may not visit any more, after a change of the configuration.
    pub async fn review(&self, shared: &Arc<dyn Home>, handles: &[Handle]) {
        let config = shared.config().load_full();
        let gone = |whose: &Whose, proved: &Proved| !is_valid(shared, &config, whose, proved);
        self.programs.close(gone);
        self.places.close(handles, gone).await;
    }
}

/// Logs a visitor in, or says why not. `shown` is the certificate of the visitor, once it has shown
/// one.
pub(super) async fn welcome(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    whose: &Whose,
    (incoming, shown): (Box<dyn Incoming>, &Shown),
) {
    let verifier = PeerVerifier::new(shared, whose);
    let arrival = Arrival { worker, shared, whose, shown };
    let Err(error) = log_in(incoming, &verifier, &arrival).await else { return };
    let Whose { visitor, service } = whose;
    if let LogInError::Greeting(error) = &error
        && error.refusal() == Some(Refusal::UnknownLink)
    {
        // The visitor begins another link at once. A line about this link would suppress the line
        // that has the reason why the other link is refused.
        tracing::debug!(%visitor, %service, "a carrier of a link that has ended, or may not go on");
        return;
    }
    let why = match &error {
        LogInError::Greeting(error) => reason(error, shared, whose, shown),
        LogInError::Handshake(CarrierError::Certificate(_)) => {
            Some("it does not trust our certificate; its log has the reason".to_owned())
        }
        LogInError::Handshake(_) | LogInError::LinkGone => None,
    };
    let why = why.unwrap_or_else(|| error.to_string());
    if lock(&shared.host().told).pass(whose.clone(), Instant::now()).is_some() {
        tracing::warn!(
            target: AUDIT, client = visitor.as_str(), service = service.as_str(),
            "client {visitor} does not visit the private service {service}: {why}"
        );
    }
}
