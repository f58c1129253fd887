//! Where clients and the holders of resources are.
//!
//! ```text
//!             own client            kept and alive           batch of 120          peers, 1 s
//!   Find ──► Here        ──no──► There, Held     ──no──► asks the engine ──fails──► asks all nodes
//! ```
//!
//! One batch of look-ups is under way at a time, and the next begins four times as late as the
//! answer came, 100 ms after the last at the latest. So batches grow exactly when the engine is
//! slow, and the first question after a pause is asked at once.
//! What was found is kept, with its age, until a node refuses an OPEN, its nodes die, or other
//! answers were used more. An answer that is older than 60 s is used and asked for again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::time::Duration;

use super::cache::Cache;
use super::desk::{Desk, What};
use super::io::{Lane, Located, Output, PeerKnowledge, Subject, Ticket};
use super::news::{News, Waiter};
use super::peers::PeerLinks;
use super::standing::NodeStanding;
use crate::engine::{Done, KeyValue, NoReply, Operation, Performed, Range, Transaction};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, NodeId};
use crate::record::{At, Holding, Record as _};

/// The most queries of a batch.
pub const LOOK_UPS: usize = 120;

/// The time from the start of a batch to the next, in times of the answer to the first: a look-up
/// that meets an idle engine is hardly held up, and a busy engine has fewer batches.
const PAUSE: u32 = 4;

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
    /// When the next batch may begin.
    next_at: Moment,
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
            next_at: Moment(Duration::ZERO),
            questions: 0,
        }
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        let until = |wanted: &WantedSubject| match wanted.way {
            LookUpWay::Engine => None,
            LookUpWay::Peers { until, .. } => Some(until),
        };
        let until = self.wanted.values().filter_map(until).min();
        let next = (self.asked.is_none() && !self.queue.is_empty()).then_some(self.next_at);
        [until, next].into_iter().flatten().min()
    }

    pub(super) fn cached(&self) -> usize {
        self.cache.len()
    }
}

/// How the node stands, and its links to other nodes.
pub(super) type Around<'a> = (&'a NodeStanding<'a>, &'a PeerLinks);

impl LookUps {
    /// The server asks where somebody is who is not at this node.
    pub(super) fn find(
        &mut self,
        desk: &mut Desk,
        around: Around<'_>,
        ticket: Ticket,
        subject: Subject,
    ) {
        let now = desk.now;
        let entry = self.cache.used(&subject).cloned();
        let Some(entry) = entry else {
            return self.want(desk, around, subject, Waiter::Server(ticket));
        };
        let age = now.since(entry.read);
        let located = located(around.0, entry.known, age);
        if matches!(located, Located::Nowhere | Located::Away) && age >= NEGATIVE {
            return self.want(desk, around, subject, Waiter::Server(ticket));
        }
        desk.output(Output::Found(ticket, located));
        let is_near = self.is_engine_near(desk, around.0);
        if age >= FRESH && is_near && !self.wanted.contains_key(&subject) {
            let wanted = WantedSubject { waiters: Vec::new(), way: LookUpWay::Engine };
            self.wanted.insert(subject.clone(), wanted);
            self.queue.push_back(subject);
        }
    }

    /// Somebody waits for a subject.
    pub(super) fn want(
        &mut self,
        desk: &mut Desk,
        around: Around<'_>,
        subject: Subject,
        waiter: Waiter,
    ) {
        if self.waiters >= WAITERS {
            return answer(desk, waiter, subject, PeerKnowledge::Unknown, Duration::ZERO);
        }
        self.waiters += 1;
        if let Some(wanted) = self.wanted.get_mut(&subject) {
            wanted.waiters.push(waiter);
            if wanted.way != LookUpWay::Engine {
                self.answer_waiting_peers(desk, &subject);
            }
            return;
        }
        let wanted = WantedSubject { waiters: vec![waiter], way: LookUpWay::Engine };
        self.wanted.insert(subject.clone(), wanted);
        if self.is_engine_near(desk, around.0) {
            self.queue.push_back(subject);
        } else {
            self.ask_peers(desk, around.1, subject);
        }
    }

    /// Whether the engine is worth a question.
    fn is_engine_near(&self, desk: &Desk, standing: &NodeStanding<'_>) -> bool {
        standing.is_leased && self.away_until <= desk.now
    }

    pub(super) fn turn(&mut self, desk: &mut Desk, around: Around<'_>) {
        let now = desk.now;
        let is_due = |wanted: &WantedSubject| matches!(wanted.way, LookUpWay::Peers { until, .. } if until <= now);
        let wanted = self.wanted.iter().filter(|(_, wanted)| is_due(wanted));
        let due: Vec<_> = wanted.map(|(subject, _)| subject.clone()).collect();
        for subject in due {
            self.resolve(desk, subject, PeerKnowledge::Unknown, now);
        }
        if self.asked.is_some() || self.queue.is_empty() {
            return;
        }
        let (standing, peers) = around;
        let is_near = self.is_engine_near(desk, standing);
        let Some(compare) = standing.same_epoch(desk).filter(|_| is_near) else {
            for subject in mem::take(&mut self.queue) {
                self.ask_peers(desk, peers, subject);
            }
            return;
        };
        if now < self.next_at && self.queue.len() < LOOK_UPS {
            return;
        }
        let count = self.queue.len().min(LOOK_UPS);
        let subjects: Vec<_> = self.queue.drain(..count).collect();
        let query = |subject: &Subject| Operation::Range(Range::of(desk.keys.of(&place(subject))));
        let then = subjects.iter().map(query).collect();
        let transaction = Transaction { compare, then, otherwise: desk.why_not().into() };
        desk.counts.look_up_batches += 1;
        desk.counts.look_ups += count as u64;
        self.asked = Some((now, subjects));
        desk.transact(What::LookUp, Lane::LookUps, transaction);
    }

    /// The answer to a batch of look-ups, or none. A batch whose conditions did not hold is asked
    /// again.
    pub(super) fn looked_up(
        &mut self,
        desk: &mut Desk,
        peers: &PeerLinks,
        done: Result<&Done, NoReply>,
    ) {
        let Some((sent, subjects)) = self.asked.take() else { return };
        let pause = (desk.now.since(sent) * PAUSE).min(desk.settings.gather);
        self.next_at = sent.after(pause);
        match done {
            Ok(done) if done.held => {
                for (subject, answer) in subjects.into_iter().zip(&done.answers) {
                    let known = match answer {
                        Performed::Range { keys, .. } => read(desk, &subject, keys.first()),
                        Performed::Put | Performed::Delete(_) | Performed::Inner { .. } => {
                            PeerKnowledge::Unknown
                        }
                    };
                    self.resolve(desk, subject, known, sent);
                }
            }
            Ok(_) => self.queue.extend(subjects),
            Err(_) => {
                self.away_until = desk.now.after(ASKED);
                for subject in subjects {
                    self.ask_peers(desk, peers, subject);
                }
            }
        }
    }

    /// Asks all nodes, and one of those that hear the engine to ask it.
    fn ask_peers(&mut self, desk: &mut Desk, peers: &PeerLinks, subject: Subject) {
        self.answer_waiting_peers(desk, &subject);
        if !self.wanted.contains_key(&subject) {
            return;
        }
        self.questions += 1;
        let (id, until) = (self.questions, desk.now.after(ASKED));
        let open = peers.ask(desk, id, &subject);
        let is_none = open.is_empty();
        if let Some(wanted) = self.wanted.get_mut(&subject) {
            wanted.way = LookUpWay::Peers { id, open, is_absent: false, until };
        }
        if is_none {
            let now = desk.now;
            self.resolve(desk, subject, PeerKnowledge::Unknown, now);
        }
    }

    /// A question of another node is not passed on to a third. A subject that nobody else waits for
    /// is forgotten.
    fn answer_waiting_peers(&mut self, desk: &mut Desk, subject: &Subject) {
        let Some(wanted) = self.wanted.get_mut(subject) else { return };
        let is_peer = |waiter: &mut Waiter| matches!(waiter, Waiter::Peer(..));
        let peers: Vec<_> = wanted.waiters.extract_if(.., is_peer).collect();
        if wanted.waiters.is_empty() {
            self.wanted.remove(subject);
        }
        self.waiters -= peers.len();
        for waiter in peers {
            answer(desk, waiter, subject.clone(), PeerKnowledge::Unknown, Duration::ZERO);
        }
    }

    /// A node has answered a question.
    pub(super) fn answered(
        &mut self,
        desk: &mut Desk,
        from: &NodeId,
        id: u64,
        known: PeerKnowledge,
    ) {
        let is_asked = |wanted: &WantedSubject| matches!(wanted.way, LookUpWay::Peers { id: asked, .. } if asked == id);
        let mut wanted = self.wanted.iter_mut();
        let Some((subject, wanted)) = wanted.find(|(_, wanted)| is_asked(wanted)) else { return };
        let LookUpWay::Peers { open, is_absent, .. } = &mut wanted.way else { return };
        if !open.remove(from) {
            return;
        }
        *is_absent |= known == PeerKnowledge::Absent;
        let (was_last, is_absent, subject) = (open.is_empty(), *is_absent, subject.clone());
        let now = desk.now;
        match known {
            PeerKnowledge::At(..) | PeerKnowledge::Holding(..) => {
                self.resolve(desk, subject, known, now);
            }
            PeerKnowledge::Absent | PeerKnowledge::Unknown if was_last => {
                let known = if is_absent { PeerKnowledge::Absent } else { PeerKnowledge::Unknown };
                self.resolve(desk, subject, known, now);
            }
            PeerKnowledge::Absent | PeerKnowledge::Unknown => {}
        }
    }

    /// The link to a node has ended: it answers nothing.
    pub(super) fn answers_nothing(&mut self, desk: &mut Desk, node: &NodeId) {
        let asked = |wanted: &WantedSubject| match &wanted.way {
            LookUpWay::Peers { id, open, .. } if open.contains(node) => Some(*id),
            LookUpWay::Peers { .. } | LookUpWay::Engine => None,
        };
        let ids: Vec<_> = self.wanted.values().filter_map(asked).collect();
        for id in ids {
            self.answered(desk, node, id, PeerKnowledge::Unknown);
        }
    }

    /// All that will be known of a subject is known.
    fn resolve(&mut self, desk: &mut Desk, subject: Subject, known: PeerKnowledge, read: Moment) {
        let Some(wanted) = self.wanted.remove(&subject) else { return };
        self.waiters -= wanted.waiters.len();
        if let Subject::Client(client) = &subject {
            desk.tell(News::Looked(client.clone(), known.clone()));
        }
        match &known {
            PeerKnowledge::At(Generation(0), _) => {}
            PeerKnowledge::At(..) | PeerKnowledge::Holding(..) | PeerKnowledge::Absent => {
                self.cache.insert(subject.clone(), known.clone(), read);
            }
            PeerKnowledge::Unknown => {
                // Kept as "nowhere" for 1 s, so that an unknown name asks all nodes once a second.
                if wanted.way != LookUpWay::Engine {
                    self.cache.insert(subject.clone(), PeerKnowledge::Unknown, read);
                }
            }
        }
        let age = desk.now.since(read);
        for waiter in wanted.waiters {
            answer(desk, waiter, subject.clone(), known.clone(), age);
        }
    }

    /// A node has refused an OPEN.
    pub(super) fn refused_by_owner(
        &mut self,
        desk: &Desk,
        standing: &NodeStanding<'_>,
        subject: &Subject,
        generation: Generation,
        moved: Option<(Generation, At)>,
    ) {
        if let (Subject::Client(client), Some((newer, at))) = (subject, moved) {
            return self.keep_found(desk, standing, client, newer, at);
        }
        let is_refused = match self.cache.peek(subject).map(|entry| &entry.known) {
            Some(PeerKnowledge::At(kept, _) | PeerKnowledge::Holding(kept, _)) => {
                *kept <= generation
            }
            Some(PeerKnowledge::Absent | PeerKnowledge::Unknown) | None => false,
        };
        if is_refused {
            self.cache.remove(subject);
        }
    }

    /// Keeps the record of a client, unless a later record is kept.
    pub(super) fn keep_found(
        &mut self,
        desk: &Desk,
        standing: &NodeStanding<'_>,
        client: &ClientName,
        generation: Generation,
        at: At,
    ) {
        if self.kept(client).is_none_or(|(kept, _)| kept < generation) {
            let subject = Subject::Client(client.clone());
            let known = PeerKnowledge::At(generation, at);
            // A record without a living home is no answer of the engine: the next question asks.
            if located(standing, known.clone(), Duration::ZERO) == Located::Nowhere {
                self.cache.remove(&subject);
            } else {
                self.cache.insert(subject, known, desk.now);
            }
        }
    }

    /// The kept record of a client.
    pub(super) fn kept(&self, client: &ClientName) -> Option<(Generation, &At)> {
        match &self.cache.peek(&Subject::Client(client.clone()))?.known {
            PeerKnowledge::At(generation, at) => Some((*generation, at)),
            PeerKnowledge::Holding(..) | PeerKnowledge::Absent | PeerKnowledge::Unknown => None,
        }
    }

    /// The store has another life: what was found is void, and what is under way is asked again.
    pub(super) fn forget(&mut self) {
        self.cache.clear();
        if let Some((_, subjects)) = self.asked.take() {
            self.queue.extend(subjects);
        }
    }
}

/// What a record says to a visitor: homes and holders in dead epochs are none.
pub(super) fn located(standing: &NodeStanding<'_>, known: PeerKnowledge, age: Duration) -> Located {
    match known {
        PeerKnowledge::Unknown => Located::Away,
        PeerKnowledge::Absent => Located::Nowhere,
        PeerKnowledge::At(generation, mut record) => {
            record.homes.retain(|home| !standing.is_void(&home.node, home.epoch));
            // This node has no such client, or it would not have asked.
            record.homes.retain(|home| home.node != standing.node);
            if record.homes.is_empty() {
                return Located::Nowhere;
            }
            Located::There { generation, record, age }
        }
        PeerKnowledge::Holding(generation, record) => {
            let left = record.without(|it| standing.is_void(&it.node, it.epoch));
            left.map_or(Located::Nowhere, |record| Located::Held { generation, record, age })
        }
    }
}

fn answer(desk: &mut Desk, waiter: Waiter, subject: Subject, known: PeerKnowledge, age: Duration) {
    desk.tell(News::Answer { waiter, subject, known, age });
}

/// What a record of the engine says.
fn read(desk: &mut Desk, subject: &Subject, found: Option<&KeyValue>) -> PeerKnowledge {
    let Some(found) = found else { return PeerKnowledge::Absent };
    let generation = found.modified.into();
    let known = match subject {
        Subject::Client(_) => At::decode(&found.value).map(|at| PeerKnowledge::At(generation, at)),
        Subject::Resource(_) => {
            Holding::decode(&found.value).map(|holding| PeerKnowledge::Holding(generation, holding))
        }
    };
    known.unwrap_or_else(|error| {
        desk.bad_record(&found.key, &error);
        PeerKnowledge::Unknown
    })
}

/// The place of the record about a subject.
fn place(subject: &Subject) -> RecordPlace {
    match subject {
        Subject::Client(client) => RecordPlace::At(client.clone()),
        Subject::Resource(key) => RecordPlace::Resource(key.clone()),
    }
}
