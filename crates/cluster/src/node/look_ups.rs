//! Where clients and the holders of resources are.
//!
//! ```text
//!             own client            kept and alive           batch of 120          peers, 1 s
//!   Find ──► Here        ──no──► There, Held     ──no──► asks the engine ──fails──► asks all nodes
//! ```
//!
//! One batch of look-ups is under way at a time, so batches grow exactly when the engine is slow.
//! What was found is kept, with its age, until a node refuses an OPEN, its nodes die, or other
//! answers were used more. An answer that is older than 60 s is used and asked for again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

use super::cache::Cache;
use super::io::{EngineRequest, Lane, Located, Output, PeerKnowledge, Subject, Ticket};
use super::{Node, What};
use crate::engine::{Done, KeyValue, NoReply, Operation, Performed, Range, Transaction};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, NodeId};
use crate::record::{At, Holding, Record as _};

/// The most queries of a batch.
pub const LOOK_UPS: usize = 120;

/// The most questions that wait for an answer.
pub const WAITERS: usize = 10_000;

/// The age after which an answer is asked for again while it is used.
const FRESH: Duration = Duration::from_secs(60);

/// The time for which the answer that there is no record is kept.
pub const NEGATIVE: Duration = Duration::from_secs(1);

/// The time for which nodes are asked in the place of an engine that has failed, and the time that
/// they have for an answer.
pub const ASKED: Duration = Duration::from_secs(1);

/// The age up to which the confirmation of an own client by another node counts, while this node is
/// cut off from an engine that others hear. The lease has ended by then, so a process that was
/// superseded is served for 13 s at most.
pub const CONFIRMED: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Waiter {
    /// The server.
    Server(Ticket),
    /// A node that has asked, and the number of its question.
    Peer(NodeId, u64),
}

/// What happens to a subject that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LookUpWay {
    /// The engine is asked, or will be.
    Engine,
    /// Other nodes are asked.
    Peers {
        id: u64,
        /// Those that have not answered.
        open: BTreeSet<NodeId>,
        /// A node has asked the engine: there is no record.
        is_absent: bool,
        until: Moment,
    },
}

#[derive(Clone, Debug, Hash)]
struct WantedSubject {
    waiters: Vec<Waiter>,
    way: LookUpWay,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct LookUps {
    cache: Cache,
    wanted: BTreeMap<Subject, WantedSubject>,
    queue: VecDeque<Subject>,
    asked: Option<(Moment, Vec<Subject>)>,
    waiters: usize,
    /// Until then the engine is taken for away.
    away_until: Moment,
    questions: u64,
}

impl LookUps {
    pub(super) const fn new(cache: usize) -> Self {
        Self {
            cache: Cache::new(cache),
            wanted: BTreeMap::new(),
            queue: VecDeque::new(),
            asked: None,
            waiters: 0,
            away_until: Moment(Duration::ZERO),
            questions: 0,
        }
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        let until = |wanted: &WantedSubject| match wanted.way {
            LookUpWay::Engine => None,
            LookUpWay::Peers { until, .. } => Some(until),
        };
        self.wanted.values().filter_map(until).min()
    }

    pub(super) fn cached(&self) -> usize {
        self.cache.len()
    }
}

impl Node {
    /// The server asks where somebody is.
    pub(super) fn find(&mut self, ticket: Ticket, subject: Subject) {
        if let Subject::Client(client) = &subject
            && let Some(local) = self.homes.present(client)
        {
            if self.is_sure(local) {
                let found = Located::Here(local.instance);
                self.outputs.push_back(Output::Found(ticket, found));
                return;
            }
            return self.want(subject, Waiter::Server(ticket));
        }
        let now = self.now;
        let entry = self.look_ups.cache.used(&subject).cloned();
        let Some(entry) = entry else { return self.want(subject, Waiter::Server(ticket)) };
        let age = now.since(entry.read);
        let found = self.found(entry.known, age);
        if matches!(found, Located::Nowhere | Located::Away) && age >= NEGATIVE {
            return self.want(subject, Waiter::Server(ticket));
        }
        self.outputs.push_back(Output::Found(ticket, found));
        if age >= FRESH && self.is_engine_near() && !self.look_ups.wanted.contains_key(&subject) {
            self.look_ups.wanted.insert(
                subject.clone(),
                WantedSubject { waiters: Vec::new(), way: LookUpWay::Engine },
            );
            self.look_ups.queue.push_back(subject);
        }
    }

    /// What a record says to a visitor: homes and holders in dead epochs are none.
    fn found(&self, known: PeerKnowledge, age: Duration) -> Located {
        match known {
            PeerKnowledge::Unknown => Located::Away,
            PeerKnowledge::Absent => Located::Nowhere,
            PeerKnowledge::At(generation, mut record) => {
                record.homes.retain(|home| !self.is_void(&home.node, home.epoch));
                // This node has no such client, or it would not have asked.
                record.homes.retain(|home| home.node != self.settings.node);
                if record.homes.is_empty() {
                    return Located::Nowhere;
                }
                Located::There { generation, record, age }
            }
            PeerKnowledge::Holding(generation, record) => {
                if self.is_void(&record.node, record.epoch) {
                    return Located::Nowhere;
                }
                Located::Held { generation, record, age }
            }
        }
    }

    /// Somebody waits for a subject.
    pub(super) fn want(&mut self, subject: Subject, waiter: Waiter) {
        if self.look_ups.waiters >= WAITERS {
            return self.tell(&waiter, &subject, PeerKnowledge::Unknown, Duration::ZERO);
        }
        self.look_ups.waiters += 1;
        if let Some(wanted) = self.look_ups.wanted.get_mut(&subject) {
            wanted.waiters.push(waiter);
            if wanted.way != LookUpWay::Engine {
                self.answer_waiting_peers(&subject);
            }
            return;
        }
        let wanted = WantedSubject { waiters: vec![waiter], way: LookUpWay::Engine };
        self.look_ups.wanted.insert(subject.clone(), wanted);
        if self.is_engine_near() {
            self.look_ups.queue.push_back(subject);
        } else {
            self.ask_peers(subject);
        }
    }

    /// Whether the engine is worth a question.
    fn is_engine_near(&self) -> bool {
        self.is_leased() && self.look_ups.away_until <= self.now
    }

    pub(super) fn turn_look_ups(&mut self) {
        let now = self.now;
        let is_due = |wanted: &WantedSubject| matches!(wanted.way, LookUpWay::Peers { until, .. } if until <= now);
        let wanted = self.look_ups.wanted.iter().filter(|(_, wanted)| is_due(wanted));
        let due: Vec<_> = wanted.map(|(subject, _)| subject.clone()).collect();
        for subject in due {
            self.resolve(&subject, PeerKnowledge::Unknown, now);
        }
        if self.look_ups.asked.is_some() || self.look_ups.queue.is_empty() {
            return;
        }
        let Some(compare) = self.same_epoch().filter(|_| self.is_engine_near()) else {
            for subject in mem::take(&mut self.look_ups.queue) {
                self.ask_peers(subject);
            }
            return;
        };
        let count = self.look_ups.queue.len().min(LOOK_UPS);
        let subjects: Vec<_> = self.look_ups.queue.drain(..count).collect();
        let query = |subject: &Subject| Operation::Range(Range::of(self.keys.of(&place(subject))));
        let then = subjects.iter().map(query).collect();
        let transaction = Transaction { compare, then, otherwise: self.why_not().into() };
        self.look_ups.asked = Some((now, subjects));
        self.request(What::LookUp, EngineRequest::Transact(Lane::LookUps, transaction));
    }

    /// The answer to a batch of look-ups, or none.
    pub(super) fn looked_up(&mut self, done: Result<&Done, NoReply>) {
        let Some((sent, subjects)) = self.look_ups.asked.take() else { return };
        match done {
            Ok(done) if done.held => {
                for (subject, answer) in subjects.iter().zip(&done.answers) {
                    let known = match answer {
                        Performed::Range { keys, .. } => self.read(subject, keys.first()),
                        Performed::Put | Performed::Delete(_) | Performed::Inner { .. } => {
                            PeerKnowledge::Unknown
                        }
                    };
                    self.resolve(subject, known, sent);
                }
            }
            Ok(done) => {
                self.look_ups.queue.extend(subjects);
                if let [life, own] = done.answers.as_slice() {
                    self.fenced(life, own);
                }
            }
            Err(_) => {
                self.look_ups.away_until = self.now.after(ASKED);
                for subject in subjects {
                    self.ask_peers(subject);
                }
            }
        }
    }

    fn read(&mut self, subject: &Subject, found: Option<&KeyValue>) -> PeerKnowledge {
        let Some(found) = found else { return PeerKnowledge::Absent };
        let generation = found.modified.into();
        let known = match subject {
            Subject::Client(_) => {
                At::decode(&found.value).map(|at| PeerKnowledge::At(generation, at))
            }
            Subject::Resource(_) => Holding::decode(&found.value)
                .map(|holding| PeerKnowledge::Holding(generation, holding)),
        };
        known.unwrap_or_else(|error| {
            self.bad_record(&found.key, &error);
            PeerKnowledge::Unknown
        })
    }

    /// Asks all nodes, and one of those that hear the engine to ask it.
    fn ask_peers(&mut self, subject: Subject) {
        self.answer_waiting_peers(&subject);
        if !self.look_ups.wanted.contains_key(&subject) {
            return;
        }
        self.look_ups.questions += 1;
        let (id, until) = (self.look_ups.questions, self.now.after(ASKED));
        let open = self.send_questions(id, &subject);
        let is_none = open.is_empty();
        if let Some(wanted) = self.look_ups.wanted.get_mut(&subject) {
            wanted.way = LookUpWay::Peers { id, open, is_absent: false, until };
        }
        if is_none {
            self.resolve(&subject, PeerKnowledge::Unknown, self.now);
        }
    }

    /// A question of another node is not passed on to a third. A subject that nobody else waits for
    /// is forgotten.
    fn answer_waiting_peers(&mut self, subject: &Subject) {
        let Some(wanted) = self.look_ups.wanted.get_mut(subject) else { return };
        let is_peer = |waiter: &mut Waiter| matches!(waiter, Waiter::Peer(..));
        let peers: Vec<_> = wanted.waiters.extract_if(.., is_peer).collect();
        if wanted.waiters.is_empty() {
            self.look_ups.wanted.remove(subject);
        }
        self.look_ups.waiters -= peers.len();
        for waiter in peers {
            self.tell(&waiter, subject, PeerKnowledge::Unknown, Duration::ZERO);
        }
    }

    /// A node has answered a question.
    pub(super) fn answered(&mut self, from: &NodeId, id: u64, known: PeerKnowledge) {
        let is_asked = |wanted: &&mut WantedSubject| matches!(wanted.way, LookUpWay::Peers { id: asked, .. } if asked == id);
        let mut wanted =
            self.look_ups.wanted.iter_mut().map(|(subject, wanted)| (subject.clone(), wanted));
        let Some((subject, wanted)) = wanted.find(|(_, wanted)| is_asked(wanted)) else { return };
        let LookUpWay::Peers { open, is_absent, .. } = &mut wanted.way else { return };
        if !open.remove(from) {
            return;
        }
        *is_absent |= known == PeerKnowledge::Absent;
        let (was_last, is_absent) = (open.is_empty(), *is_absent);
        match known {
            PeerKnowledge::At(..) | PeerKnowledge::Holding(..) => {
                self.resolve(&subject, known, self.now)
            }
            PeerKnowledge::Absent | PeerKnowledge::Unknown if was_last => {
                let known = if is_absent { PeerKnowledge::Absent } else { PeerKnowledge::Unknown };
                self.resolve(&subject, known, self.now);
            }
            PeerKnowledge::Absent | PeerKnowledge::Unknown => {}
        }
    }

    /// The link to a node has ended: it answers nothing.
    pub(super) fn answers_nothing(&mut self, node: &NodeId) {
        let asked = |wanted: &WantedSubject| match &wanted.way {
            LookUpWay::Peers { id, open, .. } if open.contains(node) => Some(*id),
            LookUpWay::Peers { .. } | LookUpWay::Engine => None,
        };
        let ids: Vec<_> = self.look_ups.wanted.values().filter_map(asked).collect();
        for id in ids {
            self.answered(node, id, PeerKnowledge::Unknown);
        }
    }

    /// All that will be known of a subject is known.
    fn resolve(&mut self, subject: &Subject, known: PeerKnowledge, read: Moment) {
        let Some(wanted) = self.look_ups.wanted.remove(subject) else { return };
        self.look_ups.waiters -= wanted.waiters.len();
        if let Subject::Client(client) = subject {
            self.confirmed_by(client, &known);
        }
        match &known {
            PeerKnowledge::At(Generation(0), _) => {}
            PeerKnowledge::At(..) | PeerKnowledge::Holding(..) | PeerKnowledge::Absent => {
                self.look_ups.cache.insert(subject.clone(), known.clone(), read);
            }
            PeerKnowledge::Unknown => {
                // Kept as "nowhere" for 1 s, so that an unknown name asks all nodes once a second.
                if wanted.way != LookUpWay::Engine {
                    self.look_ups.cache.insert(subject.clone(), PeerKnowledge::Unknown, read);
                }
            }
        }
        let age = self.now.since(read);
        for waiter in &wanted.waiters {
            self.tell(waiter, subject, known.clone(), age);
        }
    }

    /// The answer about an own client: it is in charge, or it yields.
    fn confirmed_by(&mut self, client: &ClientName, known: &PeerKnowledge) {
        match known {
            // Another home has the client, and no record is known.
            PeerKnowledge::At(Generation(0), _) => {}
            PeerKnowledge::At(generation, at) => {
                self.learn(client, *generation, at.clone());
                self.confirm(client);
            }
            PeerKnowledge::Absent => self.is_absent(client),
            PeerKnowledge::Holding(..) | PeerKnowledge::Unknown => {}
        }
    }

    fn tell(&mut self, waiter: &Waiter, subject: &Subject, known: PeerKnowledge, age: Duration) {
        let ticket = match waiter {
            Waiter::Server(ticket) => *ticket,
            Waiter::Peer(node, id) => return self.answer_peer(node, *id, known),
        };
        let local = match subject {
            Subject::Client(client) => self.homes.present(client),
            Subject::Resource(_) => None,
        };
        let found = match local {
            Some(local) if self.is_sure(local) => Located::Here(local.instance),
            Some(_) => Located::Away,
            None => self.found(known, age),
        };
        self.outputs.push_back(Output::Found(ticket, found));
    }

    /// A node has refused an OPEN.
    pub(super) fn refused_by_owner(
        &mut self,
        subject: Subject,
        generation: Generation,
        moved: Option<(Generation, At)>,
    ) {
        if let (Subject::Client(client), Some((newer, at))) = (&subject, moved) {
            return self.keep_found(client, newer, at);
        }
        let is_refused = match self.look_ups.cache.peek(&subject).map(|entry| &entry.known) {
            Some(PeerKnowledge::At(kept, _) | PeerKnowledge::Holding(kept, _)) => {
                *kept <= generation
            }
            Some(PeerKnowledge::Absent | PeerKnowledge::Unknown) | None => false,
        };
        if is_refused {
            self.look_ups.cache.remove(&subject);
        }
    }

    /// Keeps the record of a client, unless a later record is kept.
    pub(super) fn keep_found(&mut self, client: &ClientName, generation: Generation, at: At) {
        if self.found_record(client).is_none_or(|(kept, _)| kept < generation) {
            let subject = Subject::Client(client.clone());
            let known = PeerKnowledge::At(generation, at);
            // A record without a living home is no answer of the engine: the next question asks.
            if self.found(known.clone(), Duration::ZERO) == Located::Nowhere {
                self.look_ups.cache.remove(&subject);
            } else {
                self.look_ups.cache.insert(subject, known, self.now);
            }
        }
    }

    /// The kept record of a client.
    pub(super) fn found_record(&self, client: &ClientName) -> Option<(Generation, &At)> {
        match &self.look_ups.cache.peek(&Subject::Client(client.clone()))?.known {
            PeerKnowledge::At(generation, at) => Some((*generation, at)),
            PeerKnowledge::Holding(..) | PeerKnowledge::Absent | PeerKnowledge::Unknown => None,
        }
    }

    /// The store has another life: what was found is void, and what is under way is asked again.
    pub(super) fn forget_found(&mut self) {
        self.look_ups.cache.clear();
        if let Some((_, subjects)) = self.look_ups.asked.take() {
            self.look_ups.queue.extend(subjects);
        }
    }
}

/// The place of the record about a subject.
fn place(subject: &Subject) -> RecordPlace {
    match subject {
        Subject::Client(client) => RecordPlace::At(client.clone()),
        Subject::Resource(key) => RecordPlace::Resource(key.clone()),
    }
}
