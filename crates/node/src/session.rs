//! A session: all links between one client process and one server, and the workers of the links.
//! Both roles use sessions; they differ in which side opens streams.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::link::{Lease, Link};
use ops::status;
use relay::{Dials, FlowStats, FlowTargets, Listening, Stats, Straight, TargetAddr};
use tokio::sync::Notify;

use crate::entrance::OpenEntrance;
use crate::memory::Accounts;
use crate::{survey, workers};

/// The part of a session that all workers share. It is not on the data path: a worker reads it only
/// when it has no live link of its own.
#[derive(Debug)]
pub(crate) struct Session {
    /// Unique in this process.
    pub(crate) id: u64,
    /// The client's name.
    pub(crate) name: String,
    /// The number of links that take streams, by worker.
    live: Box<[AtomicU32]>,
    /// The number of links that have not ended, by worker. Links that wait for a carrier or are going
    /// away count.
    links: Box<[AtomicU32]>,
    /// Those of them that are not going away.
    staying: Box<[AtomicU32]>,
    /// Notified when a link becomes live.
    pub(crate) revived: Notify,
    /// The number of visitors that wait for a live link.
    pub(crate) held: AtomicU32,
    /// The totals of links that have ended, by worker: bytes received, bytes sent, resumes.
    past: Box<[[AtomicU64; 3]]>,
}

/// Received and sent payload bytes, and resumes.
pub(crate) type Totals = [u64; 3];

/// The number of names whose totals outlive their sessions. It is above the number of names in a
/// configuration, and it bounds the memory that clients with invented names cost.
const ENDED_MAX: usize = 16_384;

/// The totals of sessions that have ended, by name. With them the counters of a name never fall.
static ENDED: Mutex<BTreeMap<String, Totals>> = Mutex::new(BTreeMap::new());

/// The totals of the ended sessions of this name.
pub(crate) fn ended(name: &str) -> Totals {
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    ended.get(name).copied().unwrap_or_default()
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() >= ENDED_MAX && !ended.contains_key(&self.name) {
            return;
        }
        let sum = ended.entry(self.name.clone()).or_default();
        for worker in 0..self.past.len() {
            for (sum, part) in sum.iter_mut().zip(self.past(worker)) {
                *sum += part;
            }
        }
    }
}

impl Session {
    pub(crate) fn new(name: &str, workers: usize) -> Arc<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            live: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            links: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            staying: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            revived: Notify::new(),
            held: AtomicU32::new(0),
            past: (0..workers).map(|_| Default::default()).collect(),
        })
    }

    /// Returns a worker with a live link. The search starts at worker `from`, so different callers
    /// spread their visitors.
    pub(crate) fn live_worker(&self, from: usize) -> Option<usize> {
        let count = self.live.len();
        (0..count)
            .map(|n| (from + n) % count)
            .find(|&worker| self.live[worker].load(Ordering::Relaxed) > 0)
    }

    #[cfg(test)]
    pub(crate) fn set_live(&self, worker: usize, is_live: bool) {
        self.live[worker].store(is_live.into(), Ordering::Relaxed);
        self.revived.notify_waiters();
    }

    /// Whether the session has a link that is live or waits for a carrier.
    pub(crate) fn has_links(&self) -> bool {
        self.links.iter().any(|links| links.load(Ordering::Relaxed) > 0)
    }

    /// The workers with a link for new flows; if there is none, the workers with any link.
    pub(crate) fn flow_workers(&self) -> Vec<usize> {
        let with = |links: &[AtomicU32]| -> Vec<usize> {
            let counts = links.iter().map(|links| links.load(Ordering::Relaxed)).enumerate();
            counts.filter(|(_, count)| *count > 0).map(|(worker, _)| worker).collect()
        };
        let staying = with(&self.staying);
        if staying.is_empty() { with(&self.links) } else { staying }
    }

    /// The number of links of this worker that are going away.
    pub(crate) fn leaving(&self, worker: usize) -> usize {
        let [links, staying] =
            [&self.links, &self.staying].map(|links| links[worker].load(Ordering::Relaxed));
        usize::try_from(links.saturating_sub(staying)).unwrap_or(0)
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.past.len()
    }

    /// The totals of the ended links of this worker.
    pub(crate) fn past(&self, worker: usize) -> Totals {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.past.get(worker).map(|past| past.each_ref().map(count)).unwrap_or_default()
    }

    /// The number of live links on all workers.
    pub(crate) fn live(&self) -> u32 {
        self.live.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

/// The state of a worker, in either role.
pub(crate) struct State {
    /// The links by session id.
    links: RefCell<HashMap<u64, Vec<Member>>>,
    /// Open entrances by their ids.
    pub(crate) entrances: RefCell<HashMap<u64, OpenEntrance>>,
    /// The listeners of doors. Only a server has doors.
    pub(crate) doors: RefCell<Vec<Listening>>,
    /// The default targets of `mux://` doors, with the URLs of the doors.
    pub(crate) defaults: RefCell<Vec<(String, Rc<Straight>)>>,
    /// The memory of visitors, and the number of those that were refused.
    pub(crate) accounts: Accounts,
    /// Notified when this process leaves: connections that its HTTP proxy serves end.
    pub(crate) leaving: Notify,
    /// The share of this worker in the memory budget.
    pub(crate) budget: Rc<Lease>,
    /// The dials of this worker: an account is a client on a server, and a service on a client.
    pub(crate) dials: Dials,
    /// The counters of the services whose targets this worker dials, by name. Only a client has
    /// such services.
    services: RefCell<HashMap<String, Counters>>,
    /// The counters of closed entrances, with the label of their streams.
    former: RefCell<Vec<(Weak<Stats>, String)>>,
    turn: Cell<usize>,
}

/// The counters of a service on one worker.
#[derive(Clone, Default)]
struct Counters {
    streams: Rc<Stats>,
    flows: Rc<FlowStats>,
    /// The flows themselves, which outlive a change of the service.
    targets: Rc<FlowTargets>,
}

struct Member {
    session: Arc<Session>,
    link: Link,
    live: bool,
    stays: bool,
}

/// A worker of either role.
pub(crate) type Worker = workers::Worker<State>;
/// A handle of one worker.
pub(crate) type Handle = workers::Handle<State>;
/// The set of all workers.
pub(crate) type Workers = workers::Workers<State>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl State {
    pub(crate) fn new(budget: Lease) -> Self {
        let budget = Rc::new(budget);
        Self {
            links: RefCell::default(),
            entrances: RefCell::default(),
            doors: RefCell::default(),
            defaults: RefCell::default(),
            accounts: Accounts::new(&budget),
            leaving: Notify::new(),
            dials: Dials::charged_to(Rc::<Lease>::clone(&budget)),
            budget,
            services: RefCell::default(),
            former: RefCell::default(),
            turn: Cell::new(0),
        }
    }

    /// Adds a new link of the session to this worker.
    pub(crate) fn add_link(&self, worker: usize, session: &Arc<Session>, link: &Link) {
        let member =
            Member { session: Arc::clone(session), link: link.clone(), live: false, stays: true };
        self.links.borrow_mut().entry(session.id).or_default().push(member);
        session.links[worker].fetch_add(1, Ordering::Relaxed);
        session.staying[worker].fetch_add(1, Ordering::Relaxed);
        self.steer(session);
    }

    /// Leads the peers of the session's UDP entrances to the workers that have links.
    fn steer(&self, session: &Session) {
        for open in self.entrances.borrow().values() {
            if open.entrance.route.session.load().id == session.id {
                open.entrance.steer(session);
            }
        }
    }

    /// Records whether a link takes streams. A link that is going away takes none, even after it
    /// comes back on another carrier.
    pub(crate) fn set_live(&self, worker: usize, session: &Session, serial: u64, live: bool) {
        let mut links = self.links.borrow_mut();
        let members = links.get_mut(&session.id).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(member) = members.iter_mut().find(|member| member.link.serial() == serial) else {
            return;
        };
        let goes = member.link.is_going_away() || member.link.has_ended();
        let left = goes && std::mem::replace(&mut member.stays, false);
        if left {
            session.staying[worker].fetch_sub(1, Ordering::Relaxed);
        }
        let live = live && !goes;
        if std::mem::replace(&mut member.live, live) != live {
            if live {
                session.live[worker].fetch_add(1, Ordering::Relaxed);
                session.revived.notify_waiters();
            } else {
                session.live[worker].fetch_sub(1, Ordering::Relaxed);
            }
        }
        drop(links);
        if left {
            self.steer(session);
        }
    }

    /// Removes a link that has ended and keeps its totals.
    pub(crate) fn remove_link(&self, worker: usize, session: &Session, serial: u64) {
        self.set_live(worker, session, serial, false);
        let mut links = self.links.borrow_mut();
        if let Some(members) = links.get_mut(&session.id) {
            let before = members.len();
            members.retain(|member| {
                let stays = member.link.serial() != serial;
                if !stays {
                    let stayed = u32::from(member.stays);
                    session.staying[worker].fetch_sub(stayed, Ordering::Relaxed);
                    let (received, sent, resumes) = member.link.totals();
                    let past = session.past.get(worker).into_iter().flatten();
                    for (sum, part) in past.zip([received, sent, resumes]) {
                        sum.fetch_add(part, Ordering::Relaxed);
                    }
                }
                stays
            });
            let gone = u32::try_from(before - members.len()).unwrap_or(0);
            session.links[worker].fetch_sub(gone, Ordering::Relaxed);
            if members.is_empty() {
                links.remove(&session.id);
            }
        }
        drop(links);
        self.steer(session);
    }

    /// A link of the session for a new flow: a live one, or one that waits for a carrier, where the
    /// flow waits with it.
    pub(crate) fn flow_link(&self, session: &Session) -> Option<Link> {
        self.live_link(session).or_else(|| {
            let links = self.links.borrow();
            let mut members = links.get(&session.id)?.iter();
            let waits = members.find(|member| !member.link.is_going_away())?;
            Some(waits.link.clone())
        })
    }

    /// Returns a live link of the session on this worker. Several live links take turns.
    pub(crate) fn live_link(&self, session: &Session) -> Option<Link> {
        let links = self.links.borrow();
        let members = links.get(&session.id)?;
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        (0..members.len())
            .map(|n| &members[(turn.wrapping_add(n)) % members.len()])
            .find(|member| member.live)
            .map(|member| member.link.clone())
    }

    /// The link with this serial.
    pub(crate) fn link(&self, session: &Session, serial: u64) -> Option<Link> {
        let links = self.links.borrow();
        let member = links.get(&session.id)?.iter().find(|m| m.link.serial() == serial)?;
        Some(member.link.clone())
    }

    /// The counters of a service, which all links of this worker share.
    pub(crate) fn service_stats(&self, name: &str) -> Rc<Stats> {
        Rc::clone(&self.services.borrow_mut().entry(name.to_owned()).or_default().streams)
    }

    /// The same of the flows of a service, and the flows.
    pub(crate) fn service_flows(&self, name: &str) -> (Rc<FlowStats>, Rc<FlowTargets>) {
        let mut services = self.services.borrow_mut();
        let Counters { flows, targets, .. } = services.entry(name.to_owned()).or_default();
        (Rc::clone(flows), Rc::clone(targets))
    }

    /// Ends the flows that lead elsewhere than `target` says of their service.
    pub(crate) fn lead_flows(&self, target: impl Fn(&str) -> Option<TargetAddr>) {
        let services = self.services.borrow();
        let all: Vec<_> = services
            .iter()
            .map(|(name, counters)| (name.clone(), Rc::clone(&counters.targets)))
            .collect();
        drop(services);
        for (name, flows) in all {
            flows.lead_to(target(&name).as_ref());
        }
    }

    /// The names under which the streams on this worker are counted: services and forwards. A
    /// closed entrance is included as long as it has streams. The key is the identity of the
    /// counters.
    pub(crate) fn counted_names(&self) -> HashMap<*const (), String> {
        let services = self.services.borrow();
        let targets = services.iter().flat_map(|(name, counters)| {
            let identities = [counters.streams.identity(), counters.flows.identity()];
            identities.map(|identity| (identity, name.clone()))
        });
        let entrances = self.entrances.borrow();
        let doors = entrances.values().flat_map(|open| {
            let flows = open.flows.as_ref().map(|flows| flows.stats.identity());
            let all = [Some(open.settings.stats.identity()), flows];
            all.into_iter().flatten().map(|identity| (identity, open.label()))
        });
        let former = self.former.borrow();
        let gone = former
            .iter()
            .filter_map(|(stats, label)| Some((stats.upgrade()?.identity(), label.clone())));
        gone.chain(targets).chain(doors).collect()
    }

    /// Keeps the counters of an entrance that closes, because its streams may outlive it.
    pub(crate) fn remember(&self, open: &OpenEntrance) {
        let mut former = self.former.borrow_mut();
        former.retain(|(stats, _)| stats.strong_count() > 0);
        former.push((Rc::downgrade(&open.settings.stats), open.label()));
    }

    /// The counts of the services of this worker.
    pub(crate) fn service_counts(&self) -> Vec<status::Service> {
        let services = self.services.borrow();
        let count = |(name, counters): (&String, &Counters)| {
            let Counters { streams: stats, flows, .. } = counters;
            let mut service = status::Service {
                name: name.clone(),
                streams: stats.live(),
                streams_total: stats.opened(),
                // The sockets here belong to targets: bytes written to a target came from a visitor.
                bytes_in: stats.bytes_out(),
                bytes_out: stats.bytes_in(),
                refused: survey::refused(stats),
                ..status::Service::default()
            };
            // As with streams: what was sent to a target came from a visitor.
            survey::add_flows(&mut service, flows, true);
            service
        };
        services.iter().map(count).collect()
    }

    /// All links of this worker with their sessions. Links that are going away are included.
    pub(crate) fn all_links(&self) -> Vec<(Arc<Session>, Link)> {
        let links = self.links.borrow();
        links.values().flatten().map(|m| (Arc::clone(&m.session), m.link.clone())).collect()
    }
}
