//! A node of the cluster as a state machine.
//!
//! **Inputs** are [`Node::handle`]: wishes of the server, answers of the engine, reports of the
//! watch, messages of other nodes, and the deadline of [`Node::deadline`]. **Outputs** are
//! [`Node::poll_output`]. [`Node::judge`] decides about a stream of another node at once.
//! **Queries** are as of the last input: [`Node::nodes`], [`Node::ports`], [`Node::held`],
//! [`Node::is_member`], [`Node::is_ready`].
//!
//! The rule for a driver: take all outputs after each input, carry out requests to the engine in
//! any order, and answer each once, after 1 s at the latest.
//!
//! | question | file |
//! |---|---|
//! | what goes in and out | `io.rs` |
//! | when is the node a member, and what ends its epoch | `membership.rs` |
//! | what do all nodes follow | `follow.rs` |
//! | how is something written once, although answers get lost | `chain.rs` |
//! | who gets a resource | `claims.rs` |
//! | which process of a client is in charge, and who serves it | `homes.rs` |
//! | where is a client, or the holder of a resource | `look_ups.rs`, `cache.rs` |
//! | what do nodes tell each other, and when is a node ready | `peers.rs` |
//! | who deletes what nobody needs | `sweep.rs` |

mod cache;
mod chain;
mod claims;
mod follow;
mod homes;
mod io;
mod look_ups;
mod membership;
mod peers;
pub(crate) mod random;
mod sweep;

use std::collections::{BTreeMap, VecDeque};

use chain::Chain;
use claims::Claims;
use follow::Follow;
use homes::Homes;
use look_ups::LookUps;
use membership::Membership;
use peers::PeerLinks;
use random::Random;
use sweep::Sweep;

use crate::engine::{Done, NoReply, Revision};
use crate::keys::Keyspace;
use crate::moment::Moment;
use crate::names::{Generation, Key, NodeId};
use crate::record::Holding;

pub use chain::BATCH;
pub use claims::{CLAIMS, PATIENCE};
pub use follow::{SILENCE, SeenNode};
pub use io::{
    Claimed, EngineReply, EngineRequest, Lane, Located, NodeEvent, NodeInput, NodeSettings,
    OpenVerdict, Output, PeerKnowledge, PeerMessage, PeerOpen, RequestId, ServerWish, Subject,
    Ticket, WatchId, Watched,
};
pub use look_ups::{ASKED, CONFIRMED, LOOK_UPS, NEGATIVE, WAITERS};
pub use membership::{LEASE, RENEWAL};
pub use peers::HEARD;
pub use sweep::SWEEP;

/// A node of the cluster.
#[derive(Clone, Debug, Hash)]
pub struct Node {
    settings: NodeSettings,
    keys: Keyspace,
    random: Random,
    now: Moment,
    outputs: VecDeque<Output>,
    /// The requests to the engine that have no answer yet.
    asked: BTreeMap<RequestId, Outstanding>,
    requests: u64,
    /// The highest revision of any answer.
    revision: Revision,
    /// When the engine answered last.
    heard: Option<Moment>,
    membership: Membership,
    follow: Follow,
    chain: Chain,
    claims: Claims,
    homes: Homes,
    look_ups: LookUps,
    peers: PeerLinks,
    sweep: Sweep,
}

/// A request to the engine without an answer.
#[derive(Clone, Debug, Hash)]
struct Outstanding {
    what: What,
    /// The highest revision of the answers before the request was sent. An answer is linearizable,
    /// so a lower revision in it shows that the store has gone back.
    floor: Revision,
}

/// What a request to the engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// A lease for a new epoch.
    Grant { sent: Moment },
    /// What there is before the record of the node is created.
    Survey,
    /// An incarnation, or the end of a former record of the node.
    Prepare,
    /// The record of the node.
    Enter,
    /// The renewal of the lease.
    KeepAlive { sent: Moment },
    /// The renewal of the record, after this batch, which was written by this change.
    Beat { number: u64, changed: Revision },
    /// A page of the followed tables.
    Page,
    /// A batch of writes.
    Batch,
    /// A batch of look-ups.
    LookUp,
    /// A page of the sweep.
    Sweep,
    /// Nobody waits for the answer.
    Nothing,
}

impl What {
    /// Whether the request is void once the epoch has ended.
    const fn is_of_epoch(self) -> bool {
        match self {
            Self::Grant { .. }
            | Self::Survey
            | Self::Prepare
            | Self::Enter
            | Self::KeepAlive { .. }
            | Self::Beat { .. }
            | Self::Batch => true,
            Self::Page | Self::LookUp | Self::Sweep | Self::Nothing => false,
        }
    }
}

impl Node {
    /// A node that joins at once.
    #[must_use]
    pub fn new(settings: NodeSettings, now: Moment) -> Self {
        let mut random = Random(settings.seed);
        let sweep = Sweep::new(now.after(random.about(SWEEP)));
        Self {
            keys: Keyspace::new(&settings.cluster),
            random,
            now,
            outputs: VecDeque::new(),
            asked: BTreeMap::new(),
            requests: 0,
            revision: Revision(0),
            heard: None,
            membership: Membership::new(now),
            follow: Follow::new(),
            chain: Chain::new(),
            claims: Claims::default(),
            homes: Homes::default(),
            look_ups: LookUps::new(settings.cache),
            peers: PeerLinks::new(),
            sweep,
            settings,
        }
    }

    /// Handles an input.
    pub fn handle(&mut self, now: Moment, input: NodeInput) {
        self.now = self.now.max(now);
        match input {
            NodeInput::Wish(wish) => self.wish(wish),
            NodeInput::Wishes(wishes) => wishes.into_iter().for_each(|wish| self.wish(wish)),
            NodeInput::Answer(id, answer) => self.answer_of_engine(id, answer),
            NodeInput::Watched(id, what) => self.watched(id, what),
            NodeInput::LinkUp(node) => self.link_up(node),
            NodeInput::LinkDown(node) => self.link_down(&node),
            NodeInput::Message(from, message) => self.message(from, message),
            NodeInput::Timeout => {}
        }
        if self.has_left() {
            return;
        }
        self.turn_membership();
        self.turn_follow();
        self.turn_claims();
        self.turn_chain();
        self.turn_look_ups();
        self.turn_sweep();
        self.turn_peers();
    }

    /// What has to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The moment at which the node wants [`NodeInput::Timeout`].
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        if self.has_left() {
            return None;
        }
        let is_leased = self.is_leased();
        let moments = [
            self.membership.deadline(),
            self.membership.member().map(membership::Member::until).filter(|_| is_leased),
            self.follow.deadline(),
            self.claims.deadline(),
            self.chain.deadline().filter(|_| is_leased),
            self.look_ups.deadline(),
            self.sweep.deadline(),
            self.peers.deadline(),
            self.silence_deadline(),
        ];
        moments.into_iter().flatten().min()
    }

    /// Whether the node is a member, and its lease is certainly alive.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.is_leased()
    }

    /// The living nodes, as far as this node knows.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<NodeId, SeenNode> {
        self.follow.nodes()
    }

    /// The ports and their holders, as far as this node knows.
    #[must_use]
    pub const fn ports(&self) -> &BTreeMap<Key, (Revision, Holding)> {
        self.follow.ports()
    }

    /// The resources that this node holds for its clients, each with the number of its claim.
    pub fn held(&self) -> impl Iterator<Item = (&Key, Generation)> {
        self.claims.held()
    }

    /// The number of writes that wait for the engine.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.chain.backlog()
    }

    /// The number of answers of look-ups that are kept.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.look_ups.cached()
    }

    fn has_left(&self) -> bool {
        matches!(self.membership.stage, membership::Joining::Left)
    }

    fn wish(&mut self, wish: ServerWish) {
        match wish {
            ServerWish::Claim { ticket, key, client, instance, about, expected } => {
                self.claim((ticket, key), (client, instance), about, expected);
            }
            ServerWish::Release { key, generation } => self.release(key, generation),
            ServerWish::Find { ticket, subject } => self.find(ticket, subject),
            ServerWish::Refused { subject, generation, moved } => {
                self.refused_by_owner(subject, generation, moved);
            }
            ServerWish::LoggedIn { client, instance, links } => {
                self.logged_in(client, instance, links)
            }
            ServerWish::LoggedOut { client, instance } => self.logged_out(&client, instance),
            ServerWish::Describe { draining, links } => {
                self.settings.record.draining = draining;
                self.settings.record.links = links;
            }
            ServerWish::Leave => self.leave(),
        }
    }

    fn request(&mut self, what: What, request: EngineRequest) {
        self.requests += 1;
        let id = RequestId(self.requests);
        if what != What::Nothing {
            self.asked.insert(id, Outstanding { what, floor: self.revision });
        }
        self.outputs.push_back(Output::Request(id, request));
    }

    /// Answers to these requests are ignored from now on.
    fn forget_requests(&mut self, is_void: fn(What) -> bool) {
        self.asked.retain(|_, asked| !is_void(asked.what));
    }

    fn answer_of_engine(&mut self, id: RequestId, answer: Result<EngineReply, NoReply>) {
        let Some(Outstanding { what, floor }) = self.asked.remove(&id) else { return };
        if answer.is_ok() {
            self.heard = Some(self.now);
        }
        if let Ok(EngineReply::Done(done)) = &answer {
            if done.revision < floor {
                return self.fall();
            }
            self.revision = self.revision.max(done.revision);
        }
        let done: Result<&Done, NoReply> = match &answer {
            Ok(EngineReply::Done(done)) => Ok(done),
            Ok(EngineReply::Granted(_) | EngineReply::Renewed(_)) => Err(NoReply::Unknown),
            Err(failure) => Err(*failure),
        };
        match (what, done) {
            (What::Grant { sent }, _) => self.granted(sent, answer),
            (What::KeepAlive { sent }, _) => self.renewed(sent, answer),
            (What::Survey, Ok(done)) => self.surveyed(done),
            (What::Prepare, Ok(_)) => self.prepared(),
            (What::Enter, Ok(done)) => self.entered(done),
            (What::Survey | What::Prepare | What::Enter, Err(_)) => self.not_joined(),
            (What::Beat { number, changed }, done) => self.beaten((number, changed), done),
            (What::Page, done) => self.page(done),
            (What::Batch, done) => self.batched(done),
            (What::LookUp, done) => self.looked_up(done),
            (What::Sweep, done) => self.swept(done),
            (What::Nothing, _) => {}
        }
    }

    /// The node has a new epoch: all its records are written in it, in random order.
    fn write_all(&mut self) {
        enum Of {
            Key(Key),
            Client(crate::names::ClientName),
        }
        let keys = self.claims.held().map(|(key, _)| Of::Key(key.clone()));
        let clients = self.homes.names().cloned().map(Of::Client);
        let mut all: Vec<_> = keys.chain(clients).collect();
        self.random.shuffle(&mut all);
        for one in all {
            match one {
                Of::Key(key) => self.keep(&key),
                Of::Client(client) => self.check_home(&client),
            }
        }
    }
}
