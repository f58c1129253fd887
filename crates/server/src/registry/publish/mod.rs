//! Makes entrances of registered services: rights, binding, takeover, withdrawal.
//!
//! ```text
//!   Published ── directory  which client holds which resource
//!             ── budget     the descriptors of all listeners
//!             ── clients    by name: the entrances of one client, with their own lock
//!             ── answers    the last registration of each session, and its answer
//! ```
//!
//! Ports are opened under the lock of their client only, so a client with many ports delays no
//! other client. The directory decides between two clients that request the same port.

mod abouts;
mod address;
mod budget;
mod claims;
mod of_client;
mod of_names;
mod registrant;
mod shares;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use link::Held;
use logging::{AUDIT, RepeatLimit};
use ops::events::Changed;
use ops::status::{self, ServiceState, Told};
use proto::control::{
    Register, Registered, ServiceError, ServiceErrorCode, ServiceResult, ServiceSpec,
};
use tokio::sync::{OwnedMutexGuard, watch};
use tracing::field::display;

use node::session::{Handle, Session};
use survey::Prints;

use crate::directory::{ChosenPorts, Directory, Generation, Key, Revision, Topic};
use budget::Budget;
use doors::hosts::Hosts;
use of_client::{Closed, OfClient};
pub(super) use registrant::Registrant;
use shares::Shares;

/// All entrances of a server.
#[derive(Debug)]
pub(super) struct Published {
    directory: Arc<dyn Directory>,
    chosen: Arc<ChosenPorts>,
    budget: Arc<Budget>,
    shares: Arc<Shares>,
    clients: Mutex<HashMap<String, ClientSlot>>,
    /// The last registration of each session, by its id.
    answers: Mutex<HashMap<u64, Answer>>,
    /// Limits the log lines about refusals, by client and service, because a client can register
    /// repeatedly.
    complaints: Mutex<RepeatLimit<(String, String)>>,
}

/// The entrances of one client, and the newest of its sessions.
#[derive(Debug)]
struct ClientSlot {
    of: Arc<tokio::sync::Mutex<OfClient>>,
    /// The highest number of the sessions of the client that have registered.
    newest: watch::Sender<u64>,
}

/// A registration that was applied, and its answer.
#[derive(Debug)]
struct Answer {
    register: Register,
    registered: Registered,
    /// The memory of both in the budget.
    held: Held,
    /// The directory does not know all of the registration, because it did not answer.
    is_behind: bool,
}

/// The exclusive access to the entrances of one client.
pub(crate) struct ClientTurn<'a> {
    published: &'a Published,
    mine: OwnedMutexGuard<OfClient>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Published {
    /// The listeners of all clients together may use at most `descriptors`, and at most `kept` of
    /// them may be in the part of the descriptor table that is reserved for others.
    pub(super) fn new(
        (descriptors, kept): (usize, usize),
        directory: Arc<dyn Directory>,
        public_bind: IpAddr,
    ) -> Self {
        let (shares, clients, answers, complaints) = Default::default();
        Self {
            chosen: Arc::new(ChosenPorts::new(Arc::clone(&directory), public_bind)),
            directory,
            budget: Budget::new(descriptors, kept),
            shares,
            clients,
            answers,
            complaints,
        }
    }

    /// Waits for exclusive access to the entrances of the client of this name.
    pub(super) async fn turn(&self, name: &str) -> ClientTurn<'_> {
        let mine = {
            let mut clients = lock(&self.clients);
            let make = || {
                let from = (&self.directory, &self.chosen);
                let of = OfClient::new(from, &self.budget, &self.shares, name);
                ClientSlot {
                    of: Arc::new(tokio::sync::Mutex::new(of)),
                    newest: watch::Sender::default(),
                }
            };
            Arc::clone(&clients.entry(name.to_owned()).or_insert_with(make).of)
        };
        ClientTurn { published: self, mine: mine.lock_owned().await }
    }

    /// Waits until a session of a client has registered that logged in later than the session of
    /// this number. Returns at once if nothing of the client is published.
    pub(super) async fn succeeded(&self, client: &str, session: u64) {
        let newest = lock(&self.clients).get(client).map(|slot| slot.newest.subscribe());
        if let Some(mut newest) = newest {
            // Fails when nothing of the client is published any more.
            drop(newest.wait_for(|newest| *newest > session).await);
        }
    }

    /// Closes the entrances of an ended session. Entrances that a newer session took over stay
    /// open.
    pub(super) async fn withdraw(&self, session: &Session, at: (&[Handle], &Hosts)) {
        self.withdraw_of(&session.name, session.id, at).await;
    }

    /// As [`Self::withdraw`], for the session of this number.
    pub(super) async fn withdraw_of(&self, client: &str, id: u64, at: (&[Handle], &Hosts)) {
        let mut turn = self.turn(client).await;
        lock(&self.answers).remove(&id);
        turn.mine.close_of(id, at).await;
        let is_empty = turn.mine.is_empty();
        drop(turn);
        if is_empty {
            let mut clients = lock(&self.clients);
            // No task can get the lock of a client while the map is locked.
            let is_unused = |ClientSlot { of, .. }: &ClientSlot| {
                Arc::strong_count(of) == 1 && of.try_lock().is_ok_and(|of| of.is_empty())
            };
            if clients.get(client).is_some_and(is_unused) {
                clients.remove(client);
            }
        }
    }

    /// Closes the entrances of a client at the resource of this claim, which another owner has.
    pub(super) async fn lose(
        &self,
        client: &str,
        (key, generation): (&Key, Generation),
        at: (&[Handle], &Hosts),
    ) {
        let mut turn = self.turn(client).await;
        let why = Closed { is_news: true, is_final: false };
        turn.mine.close(|entry| entry.held.0.is(key, generation), at, why).await;
    }

    /// The services at the resource of this claim, as another node has to know them.
    pub(super) async fn services_at(
        &self,
        client: &str,
        claim: (&Key, Generation),
    ) -> Vec<ServiceSpec> {
        let mut services = self.turn(client).await.mine.services_at(claim);
        services.extend(self.shares.services_at(claim).await);
        services
    }

    /// Closes the shared entrances at the resource of this claim. Returns the clients that shared
    /// them.
    pub(super) async fn lose_shared(
        &self,
        claim: (&Key, Generation),
        at: (&[Handle], &Hosts),
    ) -> BTreeSet<String> {
        self.shares.lose(claim, at).await
    }

    /// Records that a session has registered: the entrances that it wants lead to it.
    fn note_registered(&self, session: &Session) {
        if let Some(ClientSlot { newest, .. }) = lock(&self.clients).get(&session.name) {
            newest.send_if_modified(|newest| {
                let is_newer = session.id > *newest;
                *newest = session.id.max(*newest);
                is_newer
            });
        }
    }

    /// Whether a session has requested a public address that it does not share.
    pub(super) fn has_own(&self, session: u64) -> bool {
        let answers = lock(&self.answers);
        let asked = answers.get(&session).into_iter().flat_map(|known| &known.register.services);
        let mut asked = asked.filter(|spec| spec.terms.shared.is_none());
        asked.any(|spec| !spec.public.is_empty())
    }

    /// The clients that publish.
    pub(super) fn clients(&self) -> Vec<String> {
        lock(&self.clients).keys().cloned().collect()
    }

    /// Forgets the ports that the server chose for a client that was removed.
    pub(super) async fn forget(&self, client: &str) {
        if self.chosen.change(|table| table.forget(client)).await.is_err() {
            tracing::warn!(
                client,
                "the ports of client {client} stay recorded: the directory does not answer"
            );
        }
    }

    /// Whether a service of one of these sessions waits for the directory.
    pub(super) fn waits(&self, sessions: &[Arc<Session>]) -> bool {
        let answers = lock(&self.answers);
        let mut known = sessions.iter().filter_map(|session| answers.get(&session.id));
        known.any(|Answer { registered, is_behind, .. }| *is_behind || waits(registered))
    }

    /// Changes when the directory answers again after an outage.
    pub(super) fn outages(&self) -> watch::Receiver<Revision> {
        self.directory.follow(Topic::Answers)
    }

    pub(super) async fn close_all(&self, at: (&[Handle], &Hosts)) {
        let all: Vec<_> = lock(&self.clients).values().map(|slot| Arc::clone(&slot.of)).collect();
        for one in all {
            one.lock().await.close_all(at).await;
        }
    }

    /// Adds the services that could not be published to the sessions of a status.
    pub(super) fn add_failures(&self, sessions: &mut BTreeMap<u64, status::Session>) {
        for (id, Answer { registered, .. }) in lock(&self.answers).iter() {
            let Some(session) = sessions.get_mut(id) else { continue };
            session.services.extend(registered.results.iter().flat_map(failures));
        }
    }

    /// For each session with failures, the fingerprint of what [`Self::add_failures`] adds to it.
    pub(super) fn failure_prints(&self) -> Prints {
        let answers = lock(&self.answers);
        let of_session = |(id, Answer { registered, .. }): (&u64, &Answer)| {
            let (id, failures) = (*id, registered.results.iter().flat_map(failures));
            failures.map(move |service| (id, survey::print_of(&service))).collect::<Vec<_>>()
        };
        Prints::of(answers.iter().flat_map(of_session).collect())
    }

    /// Logs a new outcome of a service.
    fn tell(&self, to: Registrant<'_>, result: &ServiceResult) {
        let (owner, source) = (to.session.name.as_str(), to.client.source.map(display));
        let ServiceResult { name, outcome, refused } = result;
        let service = name.as_str();
        let event = || {
            let refused = refused.iter().map(|one| (&*one.address, &one.error));
            to.hosts.events.tell(|| Changed::service(owner, service, outcome, refused));
        };
        // A client can register repeatedly.
        let may_warn = (outcome.is_err() || !refused.is_empty()) && {
            let key = (owner.to_owned(), service.to_owned());
            lock(&self.complaints).pass(key, Instant::now()).is_some()
        };
        if outcome.is_ok() || may_warn {
            event();
        }
        if let Ok(at) = outcome
            && at.is_empty()
        {
            tracing::info!(target: AUDIT, client = owner, service, source, "service {service} of client {owner} is private");
        } else if let Ok(at) = outcome {
            tracing::info!(target: AUDIT, client = owner, service, source, "service {service} of client {owner} is published at {}", at.join(", "));
        }
        if !may_warn {
            return;
        }
        match outcome {
            Err(e) if refused.is_empty() => {
                tracing::warn!(target: AUDIT, client = owner, service, source, "service {service} of client {owner} is not published: {e}");
            }
            Ok(_) | Err(_) => {
                let refused = ops::term::few(
                    refused.iter().map(|one| format!("{}: {}", one.address, one.error)),
                );
                tracing::warn!(target: AUDIT, client = owner, service, source, "service {service} of client {owner} is not published at {refused}");
            }
        }
    }
}

/// Whether a service, or one of its addresses, waits for the directory.
pub(super) fn waits(registered: &Registered) -> bool {
    let mut errors = registered.results.iter().flat_map(ServiceResult::errors);
    errors.any(|error| error.code == ServiceErrorCode::Waits)
}

/// What a status shows of the service, or of its addresses, that could not be published.
fn failures(result: &ServiceResult) -> impl Iterator<Item = status::Service> {
    let ServiceResult { name, outcome, refused } = result;
    let failed = |address: &str, error: &ServiceError| status::Service {
        name: name.as_str().to_owned(),
        address: address.to_owned(),
        state: if error.code == ServiceErrorCode::Waits {
            Told::because(ServiceState::Waiting, error)
        } else {
            Told::because(ServiceState::Refused, error)
        },
        ..status::Service::default()
    };
    let whole = outcome.as_ref().err().filter(|_| refused.is_empty());
    let each = refused.iter().map(move |one| failed(&one.address, &one.error));
    whole.map(|error| failed("", error)).into_iter().chain(each)
}

/// The addresses at which others reach a service. Two addresses of this server may map to the same
/// one.
fn addresses(to: Registrant<'_>, at: Vec<String>) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::with_capacity(at.len());
    for address in at.iter().map(|address| to.hosts.public_form(address)) {
        if addresses.last() != Some(&address) {
            addresses.push(address);
        }
    }
    addresses
}

impl ClientTurn<'_> {
    /// Whether the client publishes at this resource.
    #[cfg(test)]
    pub(super) fn has(&self, key: &Key) -> bool {
        self.mine.entrances.keys().any(|place| place.key == *key)
    }

    /// The answer to the last registration of a session, if it has this generation.
    pub(super) fn known(&self, session: &Session, generation: u64) -> Option<Registered> {
        let answers = lock(&self.published.answers);
        let known = &answers.get(&session.id)?.registered;
        (known.generation == generation).then(|| known.clone())
    }

    /// Applies a registration: new entrances open, known entrances stay open and lead to this
    /// session, other entrances of the client close. A registration of the last generation gets the
    /// known answer again; an older one gets `None`.
    pub(super) async fn apply(
        mut self,
        to: Registrant<'_>,
        register: Register,
        held: Held,
    ) -> Option<Registered> {
        if let Some(Answer { registered: known, .. }) =
            lock(&self.published.answers).get(&to.session.id)
        {
            if known.generation == register.generation {
                return Some(known.clone());
            }
            if known.generation > register.generation {
                return None;
            }
        }
        Some(self.set(to, register, Some(held)).await)
    }

    /// Whether a registration gives up an address that the last registration of the session
    /// requested.
    pub(super) fn gives_up(&self, session: &Session, register: &Register) -> bool {
        let answers = lock(&self.published.answers);
        let Some(before) = answers.get(&session.id) else { return false };
        let now: HashSet<_> = register.services.iter().flat_map(|spec| &spec.public).collect();
        let mut before = before.register.services.iter().flat_map(|spec| &spec.public);
        before.any(|text| !now.contains(text))
    }

    /// Applies the last registration of a session again, after the rights of the client or its
    /// other processes have changed. `None` when the session has not registered.
    pub(super) async fn review(&mut self, to: Registrant<'_>) -> Option<Registered> {
        let register = lock(&self.published.answers).get(&to.session.id)?.register.clone();
        Some(self.set(to, register, None).await)
    }

    /// `held`: the memory of the registration; `None`: the registration is charged already.
    async fn set(
        &mut self,
        to: Registrant<'_>,
        register: Register,
        held: Option<Held>,
    ) -> Registered {
        let settled = self.mine.set(to, &register).await;
        to.private.publish(to.session, &to.client.gate, &register);
        self.published.note_registered(to.session);
        let results: Vec<_> = register
            .services
            .iter()
            .zip(settled)
            .map(|(spec, (outcome, refused))| ServiceResult {
                name: spec.name.clone(),
                outcome: outcome.map(|at| addresses(to, at)),
                refused,
            })
            .collect();
        {
            // A client requests refused services again; an answer that is known already is not
            // logged again.
            let answers = lock(&self.published.answers);
            let before = answers.get(&to.session.id);
            let before = before.map(|before| before.registered.results.as_slice());
            let before: HashMap<_, _> =
                before.unwrap_or_default().iter().map(|r| (r.name.as_str(), r)).collect();
            for result in &results {
                if before.get(result.name.as_str()) != Some(&result) {
                    self.published.tell(to, result);
                }
            }
        }
        let registered = Registered { generation: register.generation, results };
        let mut answers = lock(&self.published.answers);
        let before = answers.remove(&to.session.id);
        if let Some(held) = held.or_else(|| before.map(|before| before.held)) {
            let is_behind = self.mine.is_behind;
            let answer = Answer { register, registered: registered.clone(), held, is_behind };
            answers.insert(to.session.id, answer);
        }
        registered
    }
}
