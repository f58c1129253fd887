//! A session: all links of one client process with one server, and which workers they live on.
//! Both roles use it; what differs is who opens streams to whom.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::link::{Lease, Link};
use ops::status;
use relay::Stats;
use tokio::sync::Notify;

use crate::entrance::OpenEntrance;
use crate::{survey, workers};

/// The part of a session that all workers see. Off the data path: read where a worker has no live
/// link of its own.
#[derive(Debug)]
pub(crate) struct Session {
    /// Unique in this process.
    pub(crate) id: u64,
    /// The client's name.
    pub(crate) name: String,
    /// Links that take streams, by worker.
    live: Box<[AtomicU32]>,
    /// Links that have not ended: those that wait for a carrier and those that go away as well.
    links: AtomicU32,
    /// A link became live.
    pub(crate) revived: Notify,
    /// Visitors that wait for a link to become live.
    pub(crate) held: AtomicU32,
    /// Of links that have ended, by worker: received, sent, resumes.
    past: Box<[[AtomicU64; 3]]>,
}

/// Received and sent payload bytes, and resumes.
pub(crate) type Totals = [u64; 3];

/// Names whose counts are kept beyond their sessions: more than a configuration has, and than
/// strangers should cost.
const ENDED_MAX: usize = 16_384;

/// Of sessions that have ended, by name, so that what is counted by name never falls.
static ENDED: Mutex<BTreeMap<String, Totals>> = Mutex::new(BTreeMap::new());

/// What sessions of this name have carried that have ended.
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
            links: AtomicU32::new(0),
            revived: Notify::new(),
            held: AtomicU32::new(0),
            past: (0..workers).map(|_| Default::default()).collect(),
        })
    }

    /// A worker that has a live link, looked for from `from` on so that visitors spread.
    pub(crate) fn live_worker(&self, from: usize) -> Option<usize> {
        let count = self.live.len();
        (0..count)
            .map(|n| (from + n) % count)
            .find(|&worker| self.live[worker].load(Ordering::Relaxed) > 0)
    }

    /// Whether it has a link, live or waiting for a carrier.
    pub(crate) fn has_links(&self) -> bool {
        self.links.load(Ordering::Relaxed) > 0
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.past.len()
    }

    /// What links of this worker have carried that have ended.
    pub(crate) fn past(&self, worker: usize) -> Totals {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.past.get(worker).map(|past| past.each_ref().map(count)).unwrap_or_default()
    }

    /// Live links over all workers.
    pub(crate) fn live(&self) -> u32 {
        self.live.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

/// What a worker keeps, in either role.
pub(crate) struct State {
    /// Links by session.
    links: RefCell<HashMap<u64, Vec<Member>>>,
    /// Open entrances by their ids.
    pub(crate) entrances: RefCell<HashMap<u64, OpenEntrance>>,
    /// This worker's part of the memory budget.
    pub(crate) budget: Rc<Lease>,
    /// Counters of the services that streams are dialled for, by name; a client has them.
    services: RefCell<HashMap<String, Rc<Stats>>>,
    /// Of entrances that are closed, with what their streams are listed under.
    former: RefCell<Vec<(Weak<Stats>, String)>>,
    turn: Cell<usize>,
}

struct Member {
    session: Arc<Session>,
    link: Link,
    live: bool,
}

/// A worker of either role.
pub(crate) type Worker = workers::Worker<State>;
/// The way to one.
pub(crate) type Handle = workers::Handle<State>;
/// All of them.
pub(crate) type Workers = workers::Workers<State>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl State {
    pub(crate) fn new(budget: Lease) -> Self {
        Self {
            links: RefCell::default(),
            entrances: RefCell::default(),
            budget: Rc::new(budget),
            services: RefCell::default(),
            former: RefCell::default(),
            turn: Cell::new(0),
        }
    }

    /// A link of the session begins on this worker.
    pub(crate) fn add_link(&self, session: &Arc<Session>, link: &Link) {
        let member = Member { session: Arc::clone(session), link: link.clone(), live: false };
        self.links.borrow_mut().entry(session.id).or_default().push(member);
        session.links.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a link can take streams changed. One that is going away cannot, also when it comes
    /// back on another carrier.
    pub(crate) fn set_live(&self, worker: usize, session: &Session, serial: u64, live: bool) {
        let mut links = self.links.borrow_mut();
        let members = links.get_mut(&session.id).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(member) = members.iter_mut().find(|member| member.link.serial() == serial) else {
            return;
        };
        let live = live && !member.link.is_going_away();
        if member.live == live {
            return;
        }
        member.live = live;
        if live {
            session.live[worker].fetch_add(1, Ordering::Relaxed);
            session.revived.notify_waiters();
        } else {
            session.live[worker].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A link has ended.
    pub(crate) fn remove_link(&self, worker: usize, session: &Session, serial: u64) {
        self.set_live(worker, session, serial, false);
        let mut links = self.links.borrow_mut();
        if let Some(members) = links.get_mut(&session.id) {
            let before = members.len();
            members.retain(|member| {
                let stays = member.link.serial() != serial;
                if !stays {
                    let (received, sent, resumes) = member.link.totals();
                    let past = session.past.get(worker).into_iter().flatten();
                    for (sum, part) in past.zip([received, sent, resumes]) {
                        sum.fetch_add(part, Ordering::Relaxed);
                    }
                }
                stays
            });
            let gone = u32::try_from(before - members.len()).unwrap_or(0);
            session.links.fetch_sub(gone, Ordering::Relaxed);
            if members.is_empty() {
                links.remove(&session.id);
            }
        }
    }

    /// A live link of the session on this worker; several take turns.
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

    /// The counters of a service, shared by all links of this worker.
    pub(crate) fn service_stats(&self, name: &str) -> Rc<Stats> {
        Rc::clone(self.services.borrow_mut().entry(name.to_owned()).or_default())
    }

    /// Names of what streams on this worker count in: services and forwards, also of those that are
    /// closed as long as they have streams.
    pub(crate) fn counted_names(&self) -> HashMap<*const (), String> {
        let services = self.services.borrow();
        let targets = services.iter().map(|(name, stats)| (stats.identity(), name.clone()));
        let entrances = self.entrances.borrow();
        let doors = entrances.values().map(|open| (open.settings.stats.identity(), open.label()));
        let former = self.former.borrow();
        let gone = former
            .iter()
            .filter_map(|(stats, label)| Some((stats.upgrade()?.identity(), label.clone())));
        gone.chain(targets).chain(doors).collect()
    }

    /// An entrance is closed; its streams may go on for long.
    pub(crate) fn remember(&self, open: &OpenEntrance) {
        let mut former = self.former.borrow_mut();
        former.retain(|(stats, _)| stats.strong_count() > 0);
        former.push((Rc::downgrade(&open.settings.stats), open.label()));
    }

    /// What the services of this worker have counted.
    pub(crate) fn service_counts(&self) -> Vec<status::Service> {
        let services = self.services.borrow();
        let count = |(name, stats): (&String, &Rc<Stats>)| status::Service {
            name: name.clone(),
            streams: stats.live(),
            streams_total: stats.opened(),
            // The sockets here are those of targets: what they take came from visitors.
            bytes_in: stats.bytes_out(),
            bytes_out: stats.bytes_in(),
            refused: survey::refused(stats),
            ..status::Service::default()
        };
        services.iter().map(count).collect()
    }

    /// All links of this worker with their sessions, those that go away included.
    pub(crate) fn all_links(&self) -> Vec<(Arc<Session>, Link)> {
        let links = self.links.borrow();
        links.values().flatten().map(|m| (Arc::clone(&m.session), m.link.clone())).collect()
    }
}
