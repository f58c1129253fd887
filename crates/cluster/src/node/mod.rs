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
//! | question | file | input | what comes out |
//! |---|---|---|---|
//! | what goes in and out of a node | `io.rs` | | |
//! | when is the node a member, and what ends its epoch | `membership.rs` | answers about lease and record | requests, `Joined`, `EpochOver`, `Anew`, `Lost` |
//! | what do all nodes follow | `follow.rs` | pages, the watch | requests, a watch, `Port`, revocations |
//! | how is something written once, although answers get lost | `chain.rs` | jobs, answers to batches | batches, `Done` |
//! | who gets a resource | `claims.rs` | claims, releases, what was written | jobs, answers to claims, losses |
//! | which process of a client is in charge, and who serves it | `homes.rs` | log-ins, log-outs, records | jobs, kicks, messages, `Yielded` |
//! | where is a client, or the holder of a resource | `look_ups.rs`, `cache.rs` | questions, answers of the engine and of nodes | requests, messages, `Looked`, `Answer` |
//! | what do nodes tell each other | `peers.rs` | links, what nodes say | messages, readiness |
//! | what does the server keep for all nodes | `blobs.rs` | wishes, answers to batches | requests, answers to wishes |
//! | how is the node doing, for a person | `snapshot.rs` | | |
//! | how does the epoch go on in another process of the node | `hand_over.rs` | wishes | `HandedOver` |
//! | who deletes what nobody needs | `sweep.rs` | pages | requests, jobs |
//!
//! **The parts do not know each other.** A part is a value with its own state. Each of its methods
//! gets the desk (`desk.rs`: name, time, random numbers, and the trays for outputs and jobs), and
//! where it needs it how the node stands (`standing.rs`: epoch, lease, followed tables). What
//! another part has to know is news (`news.rs`), and this file gives each news to whom it concerns.
//! So this file is the only one that knows all parts.

mod blobs;
mod cache;
mod chain;
mod claims;
mod desk;
mod follow;
mod hand_over;
mod homes;
mod io;
mod look_ups;
mod membership;
mod news;
mod peers;
pub(crate) mod random;
mod snapshot;
mod standing;
mod sweep;
mod writes;

use std::collections::BTreeMap;

use blobs::Blobs;
use chain::Chain;
use claims::Claims;
use desk::{Desk, What};
use follow::Follow;
use hand_over::HandOver;
use homes::Homes;
use look_ups::LookUps;
use membership::Membership;
use news::{News, Waiter};
use peers::PeerLinks;
use standing::NodeStanding;
use sweep::Sweep;
use writes::{Job, Write, WriteOutcome};

use crate::engine::{Done, NoReply, Revision};
use crate::heirloom::{self, Heirloom};
use crate::keys::RecordPlace;
use crate::moment::Moment;
use crate::names::{ClientName, Generation, Key, NodeId};
use crate::record::Holding;

pub use blobs::{BLOB_BATCH, BLOBS};
pub use chain::{BATCH, GATHER};
pub use claims::{CLAIMS, PATIENCE};
pub use follow::{SILENCE, SeenNode};
pub use hand_over::AWAITED;
pub use io::{
    Claimed, EngineReply, EngineRequest, Lane, Located, NodeEvent, NodeInput, NodeSettings,
    OpenVerdict, Output, PeerKnowledge, PeerMessage, PeerOpen, RequestId, ServerWish, Subject,
    Ticket, WatchId, Watched,
};
pub use look_ups::{ASKED, CONFIRMED, LOOK_UPS, NEGATIVE, WAITERS};
pub use membership::{LEASE, RENEWAL};
pub use peers::HEARD;
pub use snapshot::{NodeSnapshot, RequestCounts};
pub use sweep::SWEEP;

/// A node of the cluster.
#[derive(Clone, Debug, Hash)]
pub struct Node {
    desk: Desk,
    membership: Membership,
    follow: Follow,
    chain: Chain,
    claims: Claims,
    homes: Homes,
    look_ups: LookUps,
    peers: PeerLinks,
    sweep: Sweep,
    blobs: Blobs,
    hand_over: HandOver,
}

/// How the node stands. It borrows the followed tables alone, so that a part can change beside it.
macro_rules! standing {
    ($node:expr) => {
        &NodeStanding::of(&$node.desk, &$node.membership, &$node.peers, &$node.follow)
    };
}

impl Node {
    /// A node that joins at once.
    #[must_use]
    pub fn new(settings: NodeSettings, now: Moment) -> Self {
        let cache = settings.cache;
        let mut desk = Desk::new(settings, now);
        let sweep = Sweep::new(now.after(desk.random.about(SWEEP)));
        Self {
            desk,
            membership: Membership::new(now),
            follow: Follow::new(),
            chain: Chain::new(),
            claims: Claims::default(),
            homes: Homes::default(),
            look_ups: LookUps::new(cache),
            peers: PeerLinks::new(),
            sweep,
            blobs: Blobs::new(),
            hand_over: HandOver::No,
        }
    }

    /// A node that goes on with the epoch which a former process of the node has left. It is a
    /// member with its first renewal. An heirloom of another node or cluster counts for nothing.
    #[must_use]
    pub fn adopt(settings: NodeSettings, left: &Heirloom, now: Moment) -> Self {
        let is_own = settings.cluster == left.cluster && settings.node == left.node;
        let mut node = Self::new(settings, now);
        if !is_own {
            return node;
        }
        let (of, until) = (left.left_epoch(), now.after(AWAITED));
        node.desk.saw(of.revision);
        node.membership.adopt(&mut node.desk, of);
        node.chain.adopt(of.batch);
        node.claims.adopt(left, until);
        node.homes.adopt(&node.desk, left, until);
        for (key, generation) in &left.releases {
            if let Some(key) = heirloom::resource(&node.desk.keys, key) {
                node.desk.jobs.push_back(Job::Release(key, *generation, None));
            }
        }
        node.follow.begin(&mut node.desk);
        node
    }

    /// Handles an input.
    pub fn handle(&mut self, now: Moment, input: NodeInput) {
        self.desk.now = self.desk.now.max(now);
        match input {
            NodeInput::Wish(wish) => self.wish(wish),
            NodeInput::Wishes(wishes) => wishes.into_iter().for_each(|wish| self.wish(wish)),
            NodeInput::Answer(id, answer) => self.answered(id, answer),
            NodeInput::Watched(id, what) => {
                let life = self.membership.life().map(|life| life.number);
                self.follow.watched(&mut self.desk, id, what, life);
            }
            NodeInput::LinkUp(node) => self.peers.link_up(&mut self.desk, node),
            NodeInput::LinkDown(node) => {
                self.peers.link_down(&node);
                self.look_ups.answers_nothing(&mut self.desk, &node);
            }
            NodeInput::Message(from, message) => self.message(from, message),
            NodeInput::Timeout => {}
        }
        self.pass_on();
        self.turn_hand_over();
        if !self.membership.has_left() && self.hand_over != HandOver::Done {
            self.turn();
        }
    }

    /// Each part does what is due.
    fn turn(&mut self) {
        self.membership.turn(&mut self.desk, self.chain.last());
        self.follow.turn(&mut self.desk);
        self.claims.turn(&mut self.desk);
        let standing = standing!(self);
        self.homes.turn(&mut self.desk, standing);
        self.turn_chain();
        let standing = standing!(self);
        self.look_ups.turn(&mut self.desk, (standing, &self.peers));
        self.pass_on();
        let (standing, backlog) = (standing!(self), self.chain.backlog(&self.desk));
        self.sweep.turn(&mut self.desk, standing, backlog);
        self.blobs.turn(&mut self.desk, standing);
        let is_ready = self.is_ready();
        self.peers.turn(&mut self.desk, is_ready);
    }

    /// What has to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.desk.poll_output()
    }

    /// The moment at which the node wants [`NodeInput::Timeout`].
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        if self.membership.has_left() || self.hand_over == HandOver::Done {
            return None;
        }
        let moments = [
            self.membership.deadline(self.desk.now),
            self.follow.deadline(),
            self.claims.deadline(),
            self.homes.deadline(),
            self.chain.deadline(&self.desk).filter(|_| self.is_member()),
            self.look_ups.deadline(),
            self.sweep.deadline(),
            self.peers.deadline(&self.desk),
        ];
        moments.into_iter().flatten().min()
    }

    /// Whether the node is a member, and its lease is certainly alive.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.membership.is_leased(self.desk.now)
    }

    /// Whether visitors and clients should be sent to this node: it was a member, and the engine or
    /// another node is heard.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let is_near = self.is_member() || self.desk.has_heard(LEASE) || self.peers.count() > 0;
        self.membership.was_member() && !self.membership.has_left() && is_near
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
        self.chain.backlog(&self.desk)
    }

    /// The number of answers of look-ups that are kept.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.look_ups.cached()
    }

    /// How the node is doing at this moment.
    #[must_use]
    pub fn snapshot(&self, now: Moment) -> NodeSnapshot {
        let now = self.desk.now.max(now);
        NodeSnapshot {
            epoch: self.membership.epoch(),
            is_leased: self.membership.is_leased(now),
            is_ready: self.is_ready(),
            nodes: self.follow.nodes().len(),
            links: self.peers.count(),
            heard: self.desk.heard().map(|heard| now.since(heard)),
            tables: self.follow.heard().map(|heard| now.since(heard)),
            backlog: self.backlog(),
            cached: self.cached(),
            counts: self.desk.counts,
        }
    }

    /// Whether this node serves a stream that another node opens. The time counts: a process that
    /// was stopped for a while has to know that its lease may have ended.
    #[must_use]
    pub fn judge(&mut self, now: Moment, open: &PeerOpen) -> OpenVerdict {
        self.desk.now = self.desk.now.max(now);
        let local = self.homes.present(&open.client);
        if let Some(local) = local.filter(|local| local.instance == open.instance) {
            let is_sure = Homes::is_sure(&self.desk, standing!(self), local);
            return if is_sure { OpenVerdict::Serve } else { OpenVerdict::Ask };
        }
        let own = self.homes.known(&open.client).map(|(generation, at)| (*generation, at));
        match own.or_else(|| self.look_ups.kept(&open.client)) {
            Some((generation, at)) if generation > open.generation => {
                OpenVerdict::Moved(generation, at.clone())
            }
            Some(_) | None => OpenVerdict::Gone,
        }
    }

    fn wish(&mut self, wish: ServerWish) {
        let standing = standing!(self);
        let desk = &mut self.desk;
        match wish {
            ServerWish::Claim { ticket, key, client, instance, about, expected } => {
                let (wanted, by) = ((ticket, key), (client, instance));
                self.claims.claim(desk, standing.is_leased, wanted, by, about, expected);
            }
            ServerWish::Release { key, generation } => self.claims.release(desk, key, generation),
            ServerWish::Find { ticket, subject } => self.find(ticket, subject),
            ServerWish::Blob { ticket, wish } => {
                self.blobs.wish(desk, standing.is_leased, ticket, wish);
            }
            ServerWish::Refused { subject, generation, moved } => {
                self.look_ups.refused_by_owner(desk, standing, &subject, generation, moved);
            }
            ServerWish::LoggedIn { client, instance, links } => {
                self.homes.logged_in(desk, standing, (client, instance), links);
            }
            ServerWish::LoggedOut { client, instance } => {
                self.homes.logged_out(desk, standing, &client, instance);
            }
            ServerWish::Describe { draining, links } => {
                (desk.settings.record.draining, desk.settings.record.links) = (draining, links);
            }
            ServerWish::HandOver => self.hand_over = HandOver::Asked,
            ServerWish::GoOn => self.hand_over = HandOver::No,
            ServerWish::Leave => {
                self.membership.leave(desk);
                self.follow.end_watch(desk);
            }
        }
        self.pass_on();
    }

    /// The server asks where somebody is.
    fn find(&mut self, ticket: Ticket, subject: Subject) {
        let around = (standing!(self), &self.peers);
        let desk = &mut self.desk;
        let local = match &subject {
            Subject::Client(client) => self.homes.present(client),
            Subject::Resource(_) => None,
        };
        match local {
            Some(local) if Homes::is_sure(desk, around.0, local) => {
                desk.output(Output::Found(ticket, Located::Here(local.instance)));
            }
            Some(_) => self.look_ups.want(desk, around, subject, Waiter::Server(ticket)),
            None => self.look_ups.find(desk, around, ticket, subject),
        }
    }

    /// A message of another node.
    fn message(&mut self, from: NodeId, message: PeerMessage) {
        let standing = standing!(self);
        let desk = &mut self.desk;
        match message {
            PeerMessage::Status { hears_engine } => self.peers.says(desk, &from, hears_engine),
            PeerMessage::Ask { id, subject, ask_engine } => {
                // What this node has itself: a client that is logged in here, a resource that it
                // holds.
                let own = match &subject {
                    Subject::Client(client) => self
                        .homes
                        .own(desk, standing, client)
                        .map(|(generation, at)| PeerKnowledge::At(generation, at)),
                    Subject::Resource(key) => self
                        .claims
                        .own_holding(standing, key)
                        .map(|(generation, holding)| PeerKnowledge::Holding(generation, holding)),
                };
                if own.is_none() && ask_engine {
                    let waiter = Waiter::Peer(from, id);
                    return self.look_ups.want(desk, (standing, &self.peers), subject, waiter);
                }
                let known = own.unwrap_or(PeerKnowledge::Unknown);
                self.peers.answer(desk, standing.life(), (&from, id), known);
            }
            PeerMessage::Answer { id, incarnation, known } => {
                let is_same = standing.life() == Some(incarnation);
                let known = if is_same { known } else { PeerKnowledge::Unknown };
                self.look_ups.answered(desk, &from, id, known);
            }
            PeerMessage::Superseded { client, incarnation, generation, record } => {
                if standing.life() != Some(incarnation) {
                    return;
                }
                // The other node has seen this change in the same life of the store.
                desk.saw(generation.revision());
                if standing.is_leased {
                    // The message may be late, so the record is read.
                    self.homes.look_again(desk, standing, &client, generation);
                } else {
                    self.homes.learn(desk, standing, &client, (generation, record));
                }
            }
        }
    }

    /// The engine has answered a request, or not.
    fn answered(&mut self, id: RequestId, answer: Result<EngineReply, NoReply>) {
        let Some(what) = self.desk.answered(id, &answer) else { return };
        let done: Result<&Done, NoReply> = match &answer {
            Ok(EngineReply::Done(done)) => Ok(done),
            Ok(EngineReply::Granted(_) | EngineReply::Renewed(_)) => Err(NoReply::Unknown),
            Err(failure) => Err(*failure),
        };
        let standing = standing!(self);
        let desk = &mut self.desk;
        match (what, done) {
            (What::Grant { sent }, _) => self.membership.granted(desk, sent, answer),
            (What::KeepAlive { sent }, _) => self.membership.renewed(desk, sent, answer),
            (What::Survey, Ok(done)) => self.membership.surveyed(desk, done),
            (What::Prepare, Ok(_)) => self.membership.prepared(desk),
            (What::Enter, Ok(done)) => self.membership.entered(desk, done),
            (What::Survey | What::Prepare | What::Enter, Err(_)) => {
                self.membership.not_joined(desk);
            }
            (What::Beat { number, changed }, done) => {
                if let Some(written) = done.ok().filter(|done| done.held) {
                    self.follow.written(desk, written.revision);
                }
                let has_room = self.chain.backlog(desk) <= CLAIMS;
                self.membership.beaten(desk, (number, changed), has_room, done);
            }
            (What::Page, done) => self.follow.page(desk, done),
            (What::Batch, done) => {
                self.chain.answered(desk, done);
                if let Some(refused) = done.ok().filter(|done| !done.held)
                    && self.membership.fenced(desk, refused)
                {
                    self.chain.refused(desk, refused);
                }
            }
            (What::LookUp, done) => {
                self.look_ups.looked_up(desk, &self.peers, done);
                if let Some(refused) = done.ok().filter(|done| !done.held) {
                    self.membership.fenced(desk, refused);
                }
            }
            (What::Sweep, done) => self.sweep.swept(desk, standing, done),
            (What::BlobLease, _) => self.blobs.leased(desk, &answer),
            (What::Blobs, done) => {
                self.blobs.answered(desk, done);
                if let Some(refused) = done.ok().filter(|done| !done.held) {
                    self.membership.fenced(desk, refused);
                }
            }
            (What::Nothing, _) => {}
        }
    }

    /// Gives all news to whom they concern.
    fn pass_on(&mut self) {
        while let Some(news) = self.desk.next_news() {
            self.hear(news);
        }
    }

    fn hear(&mut self, news: News) {
        let standing = standing!(self);
        let desk = &mut self.desk;
        match news {
            News::Joined(change) => {
                self.chain.begin(change);
                self.follow.begin(desk);
                self.write_all();
            }
            News::EpochOver => {
                let jobs = self.chain.take_back();
                self.put_back(jobs);
                self.claims.forget_left();
                self.homes.await_no_more();
            }
            News::Fell => self.membership.fall(desk),
            News::Anew => {
                self.follow.forget(desk);
                self.look_ups.forget();
                self.claims.forget();
                self.claims.forget_left();
                self.homes.forget();
                self.sweep.forget();
                self.blobs.forget(desk);
                // Writes whose condition is a number of the former life.
                desk.jobs.retain(|job| !matches!(job, Job::Release(..) | Job::Delete(..)));
            }
            News::Lost { place, change, delete } => {
                match &place {
                    RecordPlace::At(client) => {
                        self.homes.look_again(desk, standing, client, change);
                    }
                    RecordPlace::Resource(key) => self.claims.keep(desk, key),
                    RecordPlace::Batch(_)
                    | RecordPlace::Blob(_)
                    | RecordPlace::Former(..)
                    | RecordPlace::Incarnation
                    | RecordPlace::Node(_)
                    | RecordPlace::Revoked(_) => {}
                }
                desk.jobs.push_back(delete);
            }
            News::Port(key, holder) => {
                if let Some((generation, holder)) = &holder {
                    self.claims.look_at_port(desk, standing, &key, *generation, holder);
                }
                desk.output(Output::Port { key, holder });
            }
            News::Done(job, write, outcome) => self.done(job, write, outcome),
            News::Yielded(client, generation, at) => {
                self.look_ups.keep_found(desk, standing, &client, generation, at);
            }
            News::Looked(client, known) => self.homes.looked_up(desk, standing, &client, known),
            News::Answer { waiter: Waiter::Peer(node, id), known, .. } => {
                self.peers.answer(desk, standing.life(), (&node, id), known);
            }
            News::Answer { waiter: Waiter::Server(ticket), subject, known, age } => {
                let local = match &subject {
                    Subject::Client(client) => self.homes.present(client),
                    Subject::Resource(_) => None,
                };
                let located = match local {
                    Some(local) if Homes::is_sure(desk, standing, local) => {
                        Located::Here(local.instance)
                    }
                    Some(_) => Located::Away,
                    None => look_ups::located(standing, known, age),
                };
                desk.output(Output::Found(ticket, located));
            }
        }
    }

    /// Sends the next batch of writes.
    fn turn_chain(&mut self) {
        let standing = standing!(self);
        let (claims, homes) = (&mut self.claims, &mut self.homes);
        let plan = |desk: &mut Desk, job: &Job| match job {
            Job::Claim(ticket, _) => claims.plan_claim(desk, standing, *ticket),
            Job::Keep(key) => claims.plan_keep(desk, standing, key),
            Job::Release(key, generation, rest) => {
                claims.plan_release(desk, standing, (key, *generation), rest.as_deref())
            }
            Job::Home(client) => homes.plan(desk, standing, client),
            Job::Delete(key, modified) => Some(Write::delete(key.clone(), *modified)),
        };
        let lease = self.membership.lease();
        let later = self.chain.turn(&mut self.desk, standing, lease, plan);
        self.put_back(later);
        self.pass_on();
    }

    /// Jobs that were planned wait again, before all others.
    fn put_back(&mut self, jobs: Vec<Job>) {
        for job in jobs.into_iter().rev() {
            match &job {
                Job::Home(client) => self.homes.waits_again(client),
                Job::Keep(key) => self.claims.waits_again(key),
                Job::Claim(..) | Job::Release(..) | Job::Delete(..) => {}
            }
            self.desk.jobs.push_front(job);
        }
    }

    fn done(&mut self, job: Job, write: Write, outcome: WriteOutcome) {
        if let WriteOutcome::Written(change) = outcome {
            self.follow.own_write(&mut self.desk, &write, change);
        }
        let standing = standing!(self);
        let desk = &mut self.desk;
        match job {
            Job::Claim(ticket, key) => {
                self.claims.claim_done(desk, standing, (ticket, key), (&write, outcome));
            }
            Job::Keep(key) => self.claims.keep_done(desk, standing, key, (&write, outcome)),
            Job::Home(client) => {
                let (around, (_, change)) = ((standing, &self.peers), self.chain.last());
                self.homes.done(desk, around, &client, (write, outcome, change));
            }
            Job::Release(key, ..) => self.claims.release_done(desk, standing, key, outcome),
            // Whatever is there now is newer.
            Job::Delete(..) => {}
        }
    }

    /// The node has a new epoch: all its records are written in it, in random order.
    fn write_all(&mut self) {
        enum Of {
            Key(Key),
            Client(ClientName),
        }
        let keys = self.claims.held().map(|(key, _)| Of::Key(key.clone()));
        let clients = self.homes.names().cloned().map(Of::Client);
        let mut all: Vec<_> = keys.chain(clients).collect();
        self.desk.random.shuffle(&mut all);
        let standing = standing!(self);
        for one in all {
            match one {
                Of::Key(key) => self.claims.keep(&mut self.desk, &key),
                Of::Client(client) => self.homes.check(&mut self.desk, standing, &client),
            }
        }
    }

    /// Says what this process leaves, once no batch is under way.
    fn turn_hand_over(&mut self) {
        let is_member = self.membership.epoch().is_some();
        if self.hand_over != HandOver::Asked || (is_member && !self.chain.is_idle()) {
            return;
        }
        let left = self.left().map(Box::new);
        // A node that is no member has nothing to hand over, and goes on until it leaves.
        self.hand_over = if left.is_some() { HandOver::Done } else { HandOver::No };
        self.desk.output(Output::HandedOver(left));
    }

    fn left(&mut self) -> Option<Heirloom> {
        let of = self.membership.left(&self.desk, self.chain.last())?;
        let desk = &mut self.desk;
        let mut left = Heirloom::new(&desk.settings.cluster, desk.node(), of);
        self.claims.leave_to(desk, &mut left);
        left.releases = hand_over::releases(desk);
        self.homes.leave_to(standing!(self), &mut left);
        Some(left)
    }
}
