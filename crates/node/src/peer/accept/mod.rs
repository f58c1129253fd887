//! Accepts the links of visitors. A stream of the server becomes a carrier: TLS and the greeting run
//! in a task with a deadline, and the number of such tasks is bounded.

mod begun;
#[cfg(feature = "webrtc")]
mod offers;
#[cfg(not(feature = "webrtc"))]
#[path = "without.rs"]
mod offers;
mod owner;
mod places;
mod verifier;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::link::GreetError;
use ::link::server::{LogInError, log_in};
use config::ClientConfig;
use logging::{AUDIT, RepeatLimit};
use net::brake::Failures;
use proto::ResetCode;
use proto::greeting::{GREETING_TIMEOUT, Name, Refusal, StoredCredential};
use relay::{StreamLane, accept_duplex, refuse_stream};
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{Carrier, CarrierError, Incoming, Inlet, LocalFuture, Outlet};
use transport_tcp::accept_inside;

use super::{RELAY, server_tls, wire};
use crate::client::ClientShared;
use crate::session::{Handle, Worker};
use begun::Begun;
use places::{Arrival, Places};
use verifier::PeerVerifier;

/// Visitors before the end of their greeting. Each costs a handshake of TLS and 160 KiB for at most
/// 20 s.
const GREETING_MAX: u32 = 256;

/// The same of one visitor to one service. A visitor has one link to a service, and dials a second
/// time where the first carrier is silent.
const GREETING_OF_SERVICE: u32 = 8;

/// The same of one visitor to all services.
const GREETING_OF_VISITOR: u32 = 64;

/// Pairs of visitor and service whose wrong tokens are remembered. The server names the visitors.
const GUESSERS: usize = 1024;

/// Doublings of the pause after a wrong token: up to 3.2 s.
const DOUBLINGS: u32 = 5;

/// The time between two looks for idle links of a process that is stopping.
const IDLE_LOOK: Duration = Duration::from_millis(100);

/// The links of visitors with this client, over all workers.
#[derive(Debug)]
pub(crate) struct PeerHost {
    places: Places,
    /// Those before the end of their greeting.
    greeting: Mutex<Greeting>,
    brake: Mutex<Failures<Whose>>,
    told: Mutex<RepeatLimit<Whose>>,
    /// Programs that visit without a tunnel.
    pub(crate) programs: offers::Programs,
}

/// A visitor, and the service that it visits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    pub(crate) visitor: Name,
    pub(crate) service: Name,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for PeerHost {
    fn default() -> Self {
        let (places, greeting) = Default::default();
        let brake = Mutex::new(Failures::new(GUESSERS, DOUBLINGS));
        let (told, programs) = (Mutex::new(RepeatLimit::new()), offers::Programs::default());
        Self { places, greeting, brake, told, programs }
    }
}

impl PeerHost {
    /// Takes a stream that the server has joined with a stream of a visitor.
    pub(crate) fn take(
        &self,
        worker: &Rc<Worker>,
        shared: &Arc<ClientShared>,
        whose: Whose,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        let refuse = |code| refuse_stream(&*inlet, None, code);
        if !may_visit(&shared.config.load(), &whose) {
            let Whose { visitor, service } = &whose;
            tracing::debug!(%visitor, %service, "the service is not private, or is for others");
            return refuse(ResetCode::Unknown);
        }
        let Some(turn) = Turn::new(shared, &whose) else {
            return refuse(ResetCode::Limit);
        };
        let (outlet, stream) = accept_duplex(inlet, None, &Rc::default(), None);
        let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
        spawn_local(async move {
            let mut lane = StreamLane::new(stream);
            match timeout(GREETING_TIMEOUT, wire::byte(&mut lane)).await {
                Ok(Ok(Some(wire::OFFER))) => {
                    offers::take(&worker, &shared, &whose, lane, turn).await;
                }
                Ok(Ok(Some(first))) => {
                    welcome(&worker, &shared, &whose, Box::new(Stream { first, lane })).await;
                    drop(turn);
                }
                Ok(Ok(None) | Err(_)) | Err(_) => {}
            }
        });
        outlet
    }

    /// This process is stopping: ends each link once it is idle. A link that retires would wait for a
    /// successor. Never ready.
    pub(crate) async fn leave(&self, handles: &[Handle]) {
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
    pub(crate) async fn review(&self, shared: &ClientShared, handles: &[Handle]) {
        let config = shared.config.load_full();
        self.programs.close(|whose, token| !is_valid(&config, whose, token));
        self.places.close(handles, |whose, token| !is_valid(&config, whose, token)).await;
    }
}

/// The private service with its visitors.
fn private<'a>(config: &'a ClientConfig, service: &Name) -> Option<&'a config::Private> {
    let found = config.services.iter().find(|known| known.name == service.as_str());
    found.and_then(|found| found.private.as_ref())
}

/// Whether the service is private and names the visitor.
fn may_visit(config: &ClientConfig, whose: &Whose) -> bool {
    let names = |visitor: &config::Visitor| visitor.name.has(whose.visitor.as_str());
    private(config, &whose.service).is_some_and(|private| private.visitors.iter().any(names))
}

/// The credentials of a visitor.
fn credentials(config: &ClientConfig, whose: &Whose) -> Vec<StoredCredential> {
    let tokens = private(config, &whose.service).map(|own| own.tokens_of(whose.visitor.as_str()));
    let tokens = tokens.unwrap_or_default().iter();
    // The configuration has checked the tokens.
    tokens.filter_map(|token| StoredCredential::of(token.secret.reveal()).ok()).collect()
}

/// Whether a link that began with this token may stay.
fn is_valid(config: &ClientConfig, whose: &Whose, token: &StoredCredential) -> bool {
    may_visit(config, whose) && credentials(config, whose).contains(token)
}

/// Counts visitors before the end of their greeting.
#[derive(Debug, Default)]
struct Greeting(HashMap<Whose, u32>);

impl Greeting {
    /// Counts one, if the bounds permit it.
    fn add(&mut self, whose: &Whose) -> bool {
        let own = self.0.get(whose).copied().unwrap_or(0);
        let of_visitor = self.0.iter().filter(|(other, _)| other.visitor == whose.visitor);
        let of_visitor: u32 = of_visitor.map(|(_, count)| count).sum();
        let all: u32 = self.0.values().sum();
        if own >= GREETING_OF_SERVICE || of_visitor >= GREETING_OF_VISITOR || all >= GREETING_MAX {
            return false;
        }
        self.0.insert(whose.clone(), own + 1);
        true
    }

    fn remove(&mut self, whose: &Whose) {
        match self.0.get_mut(whose) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(self.0.remove(whose)),
        }
    }
}

/// A place among the visitors before the end of their greeting.
struct Turn {
    shared: Arc<ClientShared>,
    whose: Whose,
}

impl Turn {
    fn new(shared: &Arc<ClientShared>, whose: &Whose) -> Option<Self> {
        let has_room = lock(&shared.host.greeting).add(whose);
        has_room.then(|| Self { shared: Arc::clone(shared), whose: whose.clone() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.shared.host.greeting).remove(&self.whose);
    }
}

/// Logs a visitor in, or says why not.
pub(super) async fn welcome(
    worker: &Rc<Worker>,
    shared: &Arc<ClientShared>,
    whose: &Whose,
    incoming: Box<dyn Incoming>,
) {
    let verifier = PeerVerifier::new(shared, whose);
    let arrival = Arrival { worker, shared, whose };
    let Err(error) = log_in(incoming, &verifier, &arrival).await else { return };
    let Whose { visitor, service } = whose;
    let why = match &error {
        LogInError::Greeting(error) => reason(error, shared, whose),
        LogInError::Handshake(_) | LogInError::LinkGone => None,
    };
    let why = why.map_or_else(|| error.to_string(), str::to_owned);
    if lock(&shared.host.told).pass(whose.clone(), Instant::now()).is_some() {
        tracing::warn!(
            target: AUDIT, client = visitor.as_str(), service = service.as_str(),
            "client {visitor} does not visit the private service {service}: {why}"
        );
    }
}

/// Why a visitor is refused, for the log. The visitor gets fewer details.
fn reason(error: &GreetError, shared: &ClientShared, whose: &Whose) -> Option<&'static str> {
    if error.refusal() != Some(Refusal::BadCredential) {
        return None;
    }
    Some(if credentials(&shared.config.load(), whose).is_empty() {
        "its entry in `visitors` has no token"
    } else {
        "wrong token: `token` or `token_file` of its forward must be that of its entry in `visitors`"
    })
}

/// A stream of the server, before the handshake of TLS.
#[derive(Debug)]
struct Stream {
    /// Was read already.
    first: u8,
    lane: StreamLane,
}

impl Incoming for Stream {
    fn remote(&self) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let lane = Box::new(Begun::new(self.first, Box::new(self.lane)));
            accept_inside(lane, RELAY, &*server_tls()?).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(visitor: &str, service: u32) -> Whose {
        let service = Name::new(&format!("s{service}")).unwrap();
        Whose { visitor: Name::new(visitor).unwrap(), service }
    }

    #[test]
    fn greetings_at_one_service_leave_room_at_others_up_to_the_bounds_of_a_visitor_and_of_all() {
        let mut greeting = Greeting::default();
        let fill = |greeting: &mut Greeting, visitor| {
            let all = (0..100).flat_map(|service| std::iter::repeat_n(service, 9));
            all.filter(|service| greeting.add(&whose(visitor, *service))).count()
        };
        for _ in 0..8 {
            assert!(greeting.add(&whose("laptop", 0)));
        }
        assert!(!greeting.add(&whose("laptop", 0)));
        assert!(greeting.add(&whose("laptop", 1)), "another service");
        assert_eq!(fill(&mut greeting, "laptop"), 64 - 9);
        let others = ["a", "b", "c", "d"].map(|visitor| fill(&mut greeting, visitor));
        assert_eq!(others, [64, 64, 64, 0]);
        greeting.remove(&whose("laptop", 1));
        assert!(greeting.add(&whose("d", 1)) && !greeting.add(&whose("laptop", 1)));
        for _ in 0..8 {
            greeting.remove(&whose("laptop", 0));
        }
        assert!(!greeting.0.contains_key(&whose("laptop", 0)));
    }
}
