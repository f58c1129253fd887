//! An entrance: a listening address whose visitors become streams of a session. On a server an
//! entrance belongs to a published service, on a client to a forward. Both use the same code.
//!
//! ```text
//!   accepted on worker w --> live link on w? ------------------> stream
//!                              | no
//!                              +--> worker with a live link ----> socket handed over --> stream
//!                              | none
//!                              +--> held until a link is live: at most 10 s in all, over workers
//!                                   and flaps, at most 1,024 visitors per session
//! ```
//!
//! The socket of a visitor has a seat in the share that the client has of the descriptors
//! ([`relay::shares`]). A visitor beyond the share waits in the kernel's queue, or is refused.
//!
//! A visitor whose address may not visit (`allow_from`, `deny_from`) is turned away at once.
//!
//! A name has an entrance without a listener: a door finds the entrance and lets the visitor in by
//! [`visit`]. A visitor that speaks HTTP gets a page where another visitor is reset.
//!
//! A visitor is judged by the rules of its moment. Where the rules have changed while a visitor was
//! held or on its way to another worker, or since the last request of a kept connection, the
//! visitor goes back to its door ([`Lead`]).
//!
//! A Unix socket has one worker that accepts all visitors and hands them to the workers in turn.
//!
//! | file | content |
//! |---|---|
//! | `tcp` | visitors that a worker accepts itself, over TCP or a Unix socket |
//! | `udp` | flows of a UDP port |
//! | `name` | visitors that a door has led here by a host |
//! | `proxy` | visitors that name their target by SOCKS5 or to an HTTP proxy |
//! | `announcers` | the load balancers that say which address a visitor has |
//! | `admit` | from the visitor to the stream, or to the reason why not |
//! | `again` | from a refused stream of a shared entrance to another client |
//! | `hold` | the way to another worker, and the wait for a link |
//! | `open` | opens and closes entrances on all workers |
//! | `watch` | the state of targets and the access log, from the streams of an entrance |
//! | `openings` | the entrances that this process opens for itself, and their changes by a reload |

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::udp::Steering;
use proto::Target;
use relay::{FlowBounds, FlowSettings, Proxy, ProxyKind, Settings, Stats};

use crate::aim::ProxyTerms;
use crate::backends::{Backends, Picked};
use crate::session::{Session, SessionPort, Worker};

mod admit;
mod again;
mod announcers;
mod hold;
mod name;
mod open;
mod openings;
mod proxy;
mod tcp;
mod udp;
mod watch;

pub use admit::{Came, Guest, Past, Stays, seat, visit};
pub use again::is_counted;
pub use announcers::{Announcers, Balancers, Unannounced, announced};
pub use name::{Lead, NameDoor, NameVisitor};
pub use open::{close_everywhere, forget_everywhere, open_everywhere, renew_flows};
pub use openings::{Absent, Bound, Open, Opening, Openings};
pub use proxy::{NamedServices, connectors};
use watch::EntranceWatch;
pub use watch::{ForwardWatch, TargetWatch};

/// The part of an entrance that all workers share. Its backends decide what serves a visitor.
#[derive(Debug)]
pub struct Entrance {
    /// Unique in this process.
    pub id: u64,
    /// The listening address, as a URL.
    pub address: String,
    /// What serves its visitors.
    pub backends: Backends,
    /// Leads the peers of a UDP port to the workers.
    pub steering: Option<Arc<Steering>>,
    /// How many flows its peers may have.
    pub bounds: Arc<FlowBounds>,
    /// The load balancers that say which address a visitor has.
    pub announcers: Announcers,
}

/// Returns a new id for an entrance.
pub fn next_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

impl Entrance {
    /// The name in logs and status.
    pub fn name(&self) -> String {
        self.backends.name()
    }

    /// Whether its visitors may make flows: it is a UDP port, or a SOCKS5 proxy.
    fn carries_flows(&self) -> bool {
        let backend = self.backends.first();
        let aim = &backend.picked.aim;
        let is_socks = aim.proxy.as_ref().is_some_and(|terms| terms.kind == ProxyKind::Socks5);
        self.steering.is_some() || is_socks
    }

    /// Leads the peers of a UDP port to the workers that have a link of the session, now and after
    /// each change of these workers.
    pub fn steer(self: &Arc<Self>, session: &Session) {
        if self.steering.is_some() {
            session.add_port(&(Arc::clone(self) as Arc<dyn SessionPort>));
        }
    }
}

impl SessionPort for Entrance {
    fn leads_to(&self, session: u64) -> bool {
        self.backends.lead_to_session(session)
    }

    /// Leads the peers of a UDP port to the workers that have a link of a session that serves it; of a
    /// shared port, to those of the sessions that answer, if there are any. Flows that exist keep
    /// their worker.
    fn lead_peers(&self) {
        let Some(steering) = &self.steering else { return };
        let all = self.backends.all();
        let workers = |only: bool| -> Vec<_> {
            let serving = all.iter().filter(|one| !only || one.session.answers());
            serving.flat_map(|one| one.session.flow_workers()).collect()
        };
        let mut workers = Some(workers(self.backends.is_shared()))
            .filter(|some| !some.is_empty())
            .unwrap_or_else(|| workers(false));
        workers.sort_unstable();
        workers.dedup();
        // Without a link no worker can use a datagram, whoever reads it.
        if !workers.is_empty()
            && let Err(error) = steering.assign(&workers)
        {
            tracing::warn!(
                client = self.backends.first().session.name, address = self.address, %error,
                "the kernel does not lead the datagrams of {} to the workers with links: {error}",
                self.address
            );
        }
    }
}

/// The open entrances of a worker by their ids.
#[derive(Debug, Default)]
pub struct Entrances(pub RefCell<HashMap<u64, OpenEntrance>>);

/// An entrance that is open on one worker.
#[derive(Debug)]
pub struct OpenEntrance {
    /// The shared part.
    pub entrance: Arc<Entrance>,
    /// The listener, which closes on drop. `None` before this worker listens, and on workers that
    /// do not accept.
    listening: Option<open::Guard>,
    /// The settings that its new streams on this worker share: of one backend, or of each session
    /// that shares the entrance, the oldest first.
    settings: RefCell<Vec<(Arc<Picked>, Rc<Settings>)>>,
    /// The same of its flows, if it is a UDP port or a SOCKS5 proxy.
    pub flows: Option<Rc<FlowSettings>>,
    /// The proxy for its visitors, if they name their targets, and the terms that it has.
    proxy: RefCell<Option<(Arc<ProxyTerms>, Rc<Proxy>)>>,
}

impl OpenEntrance {
    /// The counters of the streams of this backend on this worker; `None`: it had no stream here.
    pub fn stats_by(&self, picked: &Picked) -> Option<Rc<Stats>> {
        let known = self.settings.borrow();
        let of = |known: &&(Arc<Picked>, Rc<Settings>)| known.0.session == picked.session;
        let (_, settings) = match &known[..] {
            [only] if !self.entrance.backends.is_shared() => only,
            all => all.iter().find(of)?,
        };
        Some(Rc::clone(&settings.stats))
    }

    /// All counters of its streams on this worker.
    pub fn all_stats(&self) -> Vec<Rc<Stats>> {
        self.settings.borrow().iter().map(|(_, settings)| Rc::clone(&settings.stats)).collect()
    }

    /// Forgets a session that shares the entrance no more. Returns its counters, because its streams
    /// go on.
    pub fn forget(&self, session: u64) -> Option<Rc<Stats>> {
        let mut known = self.settings.borrow_mut();
        let place = known.iter().position(|(picked, _)| picked.session == session)?;
        (known.len() > 1).then(|| Rc::clone(&known.remove(place).1.stats))
    }

    /// The settings that its streams on this worker have at present.
    pub fn settings(&self) -> Rc<Settings> {
        self.served_by(&self.entrance.backends.first().picked)
    }

    /// The settings for a stream that begins now. The stream keeps them, and what was picked with
    /// them, to its end. The counters are the same for all streams, or for those of each session
    /// that shares the entrance.
    fn served_by(&self, picked: &Arc<Picked>) -> Rc<Settings> {
        let mut known = self.settings.borrow_mut();
        let is_shared = self.entrance.backends.is_shared();
        let of = known.iter().position(|(of, _)| !is_shared || of.session == picked.session);
        if let Some((of, settings)) = of.and_then(|place| known.get(place))
            && Arc::ptr_eq(of, picked)
        {
            return Rc::clone(settings);
        }
        let before = of.and_then(|place| known.get(place)).or_else(|| known.first());
        let before = before.map(|(_, settings)| Settings::clone(settings)).unwrap_or_default();
        let stats = if of.is_some() { Rc::clone(&before.stats) } else { Rc::default() };
        let is_watched = before.watcher.is_some();
        let gate = self.entrance.backends.gate_of(picked);
        let settings = Rc::new(Settings {
            timeouts: picked.aim.terms.timeouts,
            gate: Some(gate),
            watcher: is_watched.then(|| EntranceWatch::of_streams(&self.entrance, picked)),
            stats,
            ..before
        });
        let entry = (Arc::clone(picked), Rc::clone(&settings));
        match of.and_then(|place| known.get_mut(place)) {
            Some(known) => *known = entry,
            None => known.push(entry),
        }
        settings
    }

    /// The name under which its streams are listed: the name of a service, the address of a
    /// forward.
    pub fn label(&self) -> String {
        let backend = self.entrance.backends.first();
        let aim = &backend.picked.aim;
        match aim.target {
            Target::Forward(_) | Target::Reported(_) | Target::Private { .. } => {
                self.entrance.address.clone()
            }
            Target::Service(_) | Target::Marked { .. } | Target::Measure(_) => aim.name.clone(),
        }
    }
}

/// The settings of new streams of this entrance. `None`: the entrance is closed.
pub fn settings_of(worker: &Worker, entrance: &Entrance) -> Option<Rc<Settings>> {
    let entrances = worker.state.of::<Entrances>();
    let entrances = entrances.0.borrow();
    entrances.get(&entrance.id).map(OpenEntrance::settings)
}

/// The counters of a backend of an entrance on this worker. `None`: the entrance was closed
/// meanwhile.
pub fn stats_of(worker: &Worker, entrance: &Entrance, picked: &Arc<Picked>) -> Option<Rc<Stats>> {
    served_by(worker, entrance, picked).map(|settings| Rc::clone(&settings.stats))
}

/// The settings for a stream of this entrance that is served by what was picked. `None`: the entrance
/// was closed meanwhile.
pub fn served_by(
    worker: &Worker,
    entrance: &Entrance,
    picked: &Arc<Picked>,
) -> Option<Rc<Settings>> {
    let entrances = worker.state.of::<Entrances>();
    let entrances = entrances.0.borrow();
    entrances.get(&entrance.id).map(|open| open.served_by(picked))
}
