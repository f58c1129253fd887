//! Private services: which client has which service, and how a visitor's stream is joined with a
//! stream to that client.
//!
//! ```text
//!   visitor's link ──OPEN home/ssh─> join ──may it? whose is it?─> bridge ──OPEN laptop/ssh─> home
//! ```
//!
//! In a cluster the client may have its links with another node (`abroad.rs`). The stream then
//! leads over the link to that node, which checks the rights once more and joins the stream with a
//! stream to the client.
//!
//! A visitor without the right, or one that the client of the service does not name, immediately
//! gets the answer of a service that does not exist. Where the visitor has the right and the client
//! is away, the stream waits like other visitors. So the right on the server decides who may learn
//! whether the client is connected, even where the client does not name the visitor.
//!
//! The right is checked when a stream is joined, that is, when a link between the two clients
//! begins. A reload that revokes the right ends no link.

mod abroad;
mod joins;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ::link::Link;
use proto::control::{Register, ServiceSpec};
use proto::greeting::{Features, Name};
use proto::{NamePattern, Open, Priority, ResetCode, Target};
use relay::Gate;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use abroad::{FarWay, FindsAbroad, Seeking};
pub(crate) use joins::{ClientVisit, Joins};
use node::session::Session;

/// The maximum number of streams, of all visitors, that wait for clients that are away: as many as
/// wait for one client at its ports. A waiting stream costs a task.
const WAITING_MAX: u32 = 1024;

/// The maximum number of waiting streams of one link. A visitor needs one stream per service.
const WAITING_OF_LINK: u32 = 64;

/// The poll interval for a live link of a client that has registered.
const LOOK: Duration = Duration::from_millis(100);

/// The private services of all clients.
#[derive(Debug, Default)]
pub(crate) struct PrivateServices {
    /// The processes of each client that have registered, the latest process last.
    clients: Mutex<HashMap<String, Vec<OfProcess>>>,
    /// Notified when a client has registered.
    registered: Notify,
    waiting: AtomicU32,
    /// The streams of visitors by the name of their outcome.
    outcomes: Mutex<BTreeMap<&'static str, u64>>,
    /// Finds clients at other nodes of the cluster.
    abroad: OnceLock<Weak<dyn FindsAbroad>>,
}

/// The name of a stream that was joined.
const JOINED: &str = "joined";

/// The name of the reason for which a stream is refused.
const fn reason(code: ResetCode) -> &'static str {
    match code {
        ResetCode::Unknown => "unknown",
        ResetCode::Unreachable => "away",
        ResetCode::Limit => "limit",
        ResetCode::Aborted => "left",
        ResetCode::Refused
        | ResetCode::Timeout
        | ResetCode::Denied
        | ResetCode::Shutdown
        | ResetCode::Internal
        | ResetCode::Moved
        | ResetCode::Other(_) => "other",
    }
}

/// The private services of one process of a client, which has registered.
#[derive(Debug)]
struct OfProcess {
    session: Arc<Session>,
    gate: Arc<Gate>,
    services: HashMap<Name, PrivateService>,
}

#[derive(Clone, Debug)]
struct PrivateService {
    visitors: Arc<[NamePattern]>,
    priority: Priority,
}

/// The destination of a visitor's stream.
#[derive(Debug)]
pub(crate) struct Found {
    session: Arc<Session>,
    gate: Arc<Gate>,
    priority: Priority,
}

/// Why a stream has no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absent {
    /// The client has not registered.
    Client,
    /// The client has no such service, or does not name the visitor.
    Service,
}

impl PrivateServices {
    fn clients(&self) -> MutexGuard<'_, HashMap<String, Vec<OfProcess>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on clients are also looked for at other nodes.
    pub(crate) fn seek_by(&self, abroad: Weak<dyn FindsAbroad>) {
        // A process is a node of one cluster.
        let _ = self.abroad.set(abroad);
    }

    /// Counts a stream that was joined, or refused for this reason.
    fn count(&self, outcome: Result<(), ResetCode>) {
        let name = outcome.map_or_else(reason, |()| JOINED);
        *self.outcomes().entry(name).or_default() += 1;
    }

    /// The streams of visitors by their outcome, for the status.
    pub(super) fn counted(&self) -> BTreeMap<String, u64> {
        let all = self.outcomes();
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    /// Applies the registration of a process of a client.
    pub(super) fn publish(&self, session: &Arc<Session>, gate: &Arc<Gate>, register: &Register) {
        let private = |spec: &ServiceSpec| {
            // A service with public addresses was refused.
            let visitors = spec.terms.private.clone().filter(|_| spec.public.is_empty())?;
            let priority = spec.terms.priority;
            Some((spec.name.clone(), PrivateService { visitors, priority }))
        };
        let services = register.services.iter().filter_map(private).collect();
        let (session, gate) = (Arc::clone(session), Arc::clone(gate));
        let (id, name) = (session.id, session.name.clone());
        let mut clients = self.clients();
        let all = clients.entry(name.clone()).or_default();
        all.retain(|known| known.session.id != id);
        if !register.leaving {
            let place = all.partition_point(|known| known.session.id < id);
            all.insert(place, OfProcess { session, gate, services });
        }
        if all.is_empty() {
            clients.remove(&name);
        }
        drop(clients);
        self.registered.notify_waiters();
    }

    /// Forgets the services of a session that has ended.
    pub(super) fn withdraw(&self, session: &Session) {
        self.withdraw_of(&session.name, session.id);
    }

    /// As [`Self::withdraw`], for the session of this number.
    pub(super) fn withdraw_of(&self, client: &str, id: u64) {
        let mut clients = self.clients();
        let Some(all) = clients.get_mut(client) else { return };
        all.retain(|known| known.session.id != id);
        if all.is_empty() {
            clients.remove(client);
        }
    }

    /// Whether a client has registered this private service.
    pub(super) fn has(&self, client: &str, service: &Name) -> bool {
        let clients = self.clients();
        let mut all = clients.get(client).into_iter().flatten();
        all.any(|of| of.services.contains_key(service))
    }

    /// The process that serves the visitor: the latest process that has the service for it and
    /// answers; if none answers, the latest that has the service.
    fn find(&self, client: &Name, service: &Name, visitor: &str) -> Result<Found, Absent> {
        let clients = self.clients();
        let all = clients.get(client.as_str()).ok_or(Absent::Client)?;
        let serving = || {
            all.iter().rev().filter_map(|of| {
                let known = of.services.get(service)?;
                known.visitors.iter().any(|pattern| pattern.has(visitor)).then_some((of, known))
            })
        };
        let found = serving().find(|(of, _)| of.session.answers());
        let (of, known) = found.or_else(|| serving().next()).ok_or(Absent::Service)?;
        let (session, gate) = (Arc::clone(&of.session), Arc::clone(&of.gate));
        Ok(Found { session, gate, priority: known.priority })
    }

    /// Waits for the client and a live link of it, until `until`. Returns a worker with the link.
    pub(super) async fn wait(
        &self,
        (client, service, visitor): (&Name, &Name, &str),
        from: usize,
        until: Instant,
        is_gone: impl Fn() -> bool,
    ) -> Result<(Found, usize), ResetCode> {
        loop {
            let registered = self.registered.notified();
            match self.find(client, service, visitor) {
                Err(Absent::Service) => return Err(ResetCode::Unknown),
                Err(Absent::Client) => {}
                Ok(found) => {
                    if let Some(worker) = found.session.live_worker(from) {
                        return Ok((found, worker));
                    }
                }
            }
            tokio::select! {
                () = registered => {}
                () = sleep_until(until) => return Err(ResetCode::Unreachable),
                // A link may have become live.
                () = sleep(LOOK) => {}
            }
            if is_gone() {
                return Err(ResetCode::Aborted);
            }
        }
    }
}

/// The request for the client of the service. `None`: the client is too old.
fn open(link: &Link, visitor: &str, service: &Name, priority: Priority) -> Option<Open> {
    if !link.features().have(Features::PRIVATE) {
        return None;
    }
    let target = Target::Private { client: Name::new(visitor).ok()?, service: service.clone() };
    Some(Open { target, visitor: None, priority, fields: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A registration of private services, which `laptop` may visit.
    fn register(services: &[&str], leaving: bool) -> Register {
        let visitors: Arc<[NamePattern]> = Arc::from(["laptop".parse().unwrap()]);
        let spec = |name: &&str| {
            let private = Some(Arc::clone(&visitors));
            let terms = proto::control::ServiceTerms { private, ..Default::default() };
            ServiceSpec { name: Name::new(name).unwrap(), public: Vec::new(), terms }
        };
        Register {
            generation: 1,
            services: services.iter().map(spec).collect(),
            leaving,
            standby: false,
        }
    }

    #[test]
    fn a_private_service_belongs_to_the_latest_process_that_has_it_and_answers() {
        let private = PrivateServices::default();
        let [first, second] = [(); 2].map(|()| {
            let session = Session::new("home", 1);
            session.set_live(0, true);
            session
        });
        let publish = |session: &Arc<Session>, services: &[&str], leaving| {
            private.publish(session, &Gate::new(None), &register(services, leaving));
        };
        let home = Name::new("home").unwrap();
        let of = |service: &str| {
            let found = private.find(&home, &Name::new(service).unwrap(), "laptop");
            found.map(|found| found.session.id)
        };
        publish(&second, &["ssh", "web"], false);
        // The former process registers again.
        publish(&first, &["ssh"], false);
        assert_eq!([of("ssh"), of("web")], [Ok(second.id), Ok(second.id)]);
        // The latest process is killed: its link waits for the process to return.
        second.set_live(0, false);
        assert_eq!([of("ssh"), of("web")], [Ok(first.id), Ok(second.id)]);
        second.set_live(0, true);
        assert_eq!(of("ssh"), Ok(second.id));
        publish(&second, &[], true);
        assert_eq!([of("ssh"), of("web")], [Ok(first.id), Err(Absent::Service)]);
        private.withdraw(&first);
        assert_eq!(of("ssh"), Err(Absent::Client));
    }
}
