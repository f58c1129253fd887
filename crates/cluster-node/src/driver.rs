//! The driver of a node: which input the node gets next, and what follows from its outputs. It
//! waits for inputs alone, never for the receiver of an output.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use cluster::engine::{Lease, NoReply};
use cluster::heirloom::Heirloom;
use cluster::node::{
    EngineRequest, Node, NodeEvent, NodeInput, NodeSettings, OpenVerdict, Output, PeerOpen,
    RequestId, ServerWish, WatchId, Watched,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error};

use crate::clock::NodeClock;
use crate::events::{EventSender, Overflow, ServerEvent};
use crate::follower::WantedWatch;
use crate::handle::{NodeEnds, Question};
use crate::lanes::{EngineAnswer, Lanes};
use crate::mailbox::Mailbox;
use crate::open::OpenQuestions;
use crate::peers::PeerMail;
use crate::views::ViewSenders;
use crate::words::{self, EngineWords};

/// The most batches and questions that the node takes at once. What they write goes into one batch
/// of the engine.
const AT_ONCE: usize = 64;

/// The least time between two time-outs of the node: timers of tokio are as coarse.
const LEAST: Duration = Duration::from_millis(1);

/// Where the inputs from the engine arrive.
#[derive(Debug)]
pub(crate) struct FromEngine {
    pub(crate) answers: mpsc::Receiver<EngineAnswer>,
    pub(crate) reports: mpsc::Receiver<(WatchId, Watched)>,
}

/// Where the outputs go.
#[derive(Debug)]
pub(crate) struct Outlets<M> {
    pub(crate) mail: M,
    pub(crate) lanes: Lanes,
    pub(crate) watch: watch::Sender<WantedWatch>,
    pub(crate) events: EventSender,
    pub(crate) views: ViewSenders,
}

/// A node and all that is around it.
#[derive(Debug)]
pub(crate) struct NodeDriver<M> {
    node: Node,
    clock: NodeClock,
    out: Outlets<M>,
    mailbox: Arc<Mailbox>,
    open: OpenQuestions,
    engine: EngineWords,
    /// The earliest next time-out.
    least: Instant,
    /// The server does not take its events.
    is_stuck: bool,
    is_leaving: bool,
    /// The lease that the node has left behind.
    lease: Option<Lease>,
    /// Who waits for what this process leaves to the next.
    heirloom: Option<oneshot::Sender<Option<Box<Heirloom>>>>,
}

impl<M: PeerMail> NodeDriver<M> {
    /// A node that joins, or that goes on with what a former process has left.
    pub(crate) fn new(
        settings: NodeSettings,
        left: Option<&Heirloom>,
        out: Outlets<M>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        let clock = NodeClock::start();
        let node = match left {
            Some(left) => Node::adopt(settings, left, clock.now()),
            None => Node::new(settings, clock.now()),
        };
        Self {
            node,
            clock,
            out,
            open: OpenQuestions::new(Arc::clone(&mailbox)),
            mailbox,
            engine: EngineWords::default(),
            least: Instant::now(),
            is_stuck: false,
            is_leaving: false,
            lease: None,
            heirloom: None,
        }
    }

    /// Gives the node its inputs until it leaves. Returns the lease that is to be ended.
    pub(crate) async fn serve(mut self, mut ends: NodeEnds, from: FromEngine) -> Option<Lease> {
        let FromEngine { mut answers, mut reports } = from;
        self.give(NodeInput::Timeout);
        // What has arrived before this process was to serve.
        self.take_mail();
        while !self.is_leaving {
            if self.is_stuck {
                self.leave();
                break;
            }
            self.out.views.publish(&self.node);
            let wake = self.wake();
            // In random order, so that no source of inputs starves another.
            tokio::select! {
                () = ends.mailbox.arrived() => self.take_mail(),
                Some((open, reply)) = ends.judgements.recv() => self.judge(&open, reply),
                Some(answer) = answers.recv() => self.answered(answer),
                Some((id, watched)) = reports.recv() => {
                    self.out.views.nodes_changed = true;
                    self.give(NodeInput::Watched(id, watched));
                }
                question = ends.questions.recv() => match question {
                    Some(question) => self.ask(question, &mut ends.questions),
                    // Nobody has the handle any more.
                    None => self.leave(),
                },
                () = due(wake) => {
                    self.least = Instant::now() + LEAST;
                    self.give(NodeInput::Timeout);
                }
            }
        }
        self.out.views.end();
        self.lease
    }

    /// When the node wants to be woken.
    fn wake(&self) -> Option<Instant> {
        let node = self.node.deadline().map(|at| self.clock.instant(at));
        let at = [node, self.out.views.deadline()].into_iter().flatten().min();
        at.map(|at| at.max(self.least))
    }

    /// Takes what the server and the links have told.
    fn take_mail(&mut self) {
        let mail = self.mailbox.take();
        let leaves = mail.leaves();
        for input in mail.into_inputs() {
            self.give(input);
        }
        if leaves {
            self.leave();
        }
    }

    /// Takes a question, and some of those behind it. What was told before them is known first.
    fn ask(&mut self, first: Question, more: &mut mpsc::Receiver<Question>) {
        let (mut wishes, mut count) = (Vec::new(), 1);
        let mut is_over = false;
        let mut question = Some(first);
        while let Some(asked) = question {
            match asked {
                Question::Claim(wanted, reply) => wishes.extend(self.open.claim(wanted, reply)),
                Question::Find(subject, reply) => wishes.extend(self.open.find(subject, reply)),
                Question::Blobs(batch, reply) => wishes.extend(self.open.blobs(batch, reply)),
                Question::HandOver(reply) => {
                    self.heirloom = Some(reply);
                    wishes.push(ServerWish::HandOver);
                }
                Question::GoOn => wishes.push(ServerWish::GoOn),
                Question::End => is_over = true,
                Question::Snapshot(reply) => {
                    // Who has asked may have given up meanwhile.
                    let _ = reply.send(self.node.snapshot(self.clock.now()));
                }
            }
            question = if count < AT_ONCE { more.try_recv().ok() } else { None };
            count += 1;
        }
        self.take_mail();
        self.give(NodeInput::Wishes(wishes));
        // The next process has the lease.
        self.is_leaving |= is_over;
    }

    fn judge(&mut self, open: &PeerOpen, reply: oneshot::Sender<OpenVerdict>) {
        self.take_mail();
        let verdict = self.node.judge(self.clock.now(), open);
        // The other node may have given up meanwhile.
        let _ = reply.send(verdict);
    }

    fn answered(&mut self, (id, answer): EngineAnswer) {
        self.engine.hear(answer.as_ref().err());
        self.out.views.nodes_changed = true;
        self.give(NodeInput::Answer(id, answer.map_err(|error| error.failure)));
    }

    fn leave(&mut self) {
        if !self.is_leaving {
            self.is_leaving = true;
            self.give(NodeInput::Wish(ServerWish::Leave));
        }
    }

    /// Gives the node an input, and carries out what comes out.
    fn give(&mut self, input: NodeInput) {
        match &input {
            NodeInput::Answer(..) | NodeInput::Watched(..) | NodeInput::Message(..) => {
                self.out.views.voids_verdicts();
            }
            NodeInput::Wish(_)
            | NodeInput::Wishes(_)
            | NodeInput::LinkUp(_)
            | NodeInput::LinkDown(_)
            | NodeInput::Timeout => {}
        }
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.node.handle(self.clock.now(), input);
            while let Some(output) = self.node.poll_output() {
                if let Err(id) = self.carry_out(output) {
                    inputs.push_back(NodeInput::Answer(id, Err(NoReply::Refused)));
                }
            }
        }
    }

    /// Carries out an output, or returns the number of a request that has no room.
    fn carry_out(&mut self, output: Output) -> Result<(), RequestId> {
        let sent = match output {
            Output::Request(_, EngineRequest::Revoke(lease)) if self.is_leaving => {
                self.lease = Some(lease);
                Ok(())
            }
            Output::Request(id, request) => return self.out.lanes.send(id, request),
            Output::Watch(id, range, from) => {
                self.out.watch.send_replace(Some((id, range, from)));
                Ok(())
            }
            Output::Unwatch(id) => {
                self.out.watch.send_if_modified(|wanted| {
                    let is_wanted = wanted.as_ref().is_some_and(|(wanted, ..)| *wanted == id);
                    if is_wanted {
                        *wanted = None;
                    }
                    is_wanted
                });
                Ok(())
            }
            Output::Send(to, message) => {
                self.out.mail.send(&to, message);
                Ok(())
            }
            Output::Claimed(ticket, claimed) => {
                self.open.claimed(ticket, claimed);
                Ok(())
            }
            Output::Found(ticket, located) => {
                self.open.found(ticket, located);
                Ok(())
            }
            Output::Blob(ticket, outcome) => {
                self.open.blob(ticket, outcome);
                Ok(())
            }
            Output::Renumbered { key, former, generation } => {
                if self.open.renumbered(&key, former, generation) {
                    self.out.events.send(ServerEvent::Renumbered { key, former, generation })
                } else {
                    Ok(())
                }
            }
            Output::Lost { key, generation } => {
                if self.open.lost(&key, generation) {
                    self.out.events.send(ServerEvent::Lost { key, generation })
                } else {
                    Ok(())
                }
            }
            Output::Kick { client, instance } => {
                self.out.events.send(ServerEvent::Kick { client, instance })
            }
            Output::Revoked { client, is_revoked } => {
                self.out.events.send(ServerEvent::Revoked { client, is_revoked })
            }
            Output::Port { .. } => {
                self.out.views.ports_changed = true;
                Ok(())
            }
            Output::Ready(is_ready) => {
                debug!(is_ready, "the readiness of this node has changed");
                self.out.views.is_ready(is_ready);
                Ok(())
            }
            Output::HandedOver(left) => {
                if let Some(reply) = self.heirloom.take() {
                    // Who has asked may have given up meanwhile, and goes on.
                    let _ = reply.send(left);
                }
                Ok(())
            }
            Output::Report(event) => {
                self.report(event);
                Ok(())
            }
        };
        if let Err(Overflow) = sent
            && !self.is_stuck
        {
            self.is_stuck = true;
            error!("the server does not take what other nodes have done: this node leaves");
        }
        Ok(())
    }

    fn report(&mut self, event: NodeEvent) {
        match &event {
            NodeEvent::Joined(epoch) | NodeEvent::GoesOn(epoch) => {
                self.out.views.has_epoch(Some(*epoch))
            }
            NodeEvent::EpochEnded(_) | NodeEvent::StoreRestored => self.out.views.has_epoch(None),
            NodeEvent::NameTaken { .. }
            | NodeEvent::NoCommonVersion { .. }
            | NodeEvent::BadRecord { .. } => {}
        }
        let line = words::log(&event);
        self.out.events.report(event, line);
    }
}

/// Waits for an instant; for ever without one.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use cluster::names::{ClientName, Instance, NodeId};
    use cluster::node::PeerMessage;
    use cluster::record::{Described, VERSIONS};
    use tokio::time::timeout;

    use super::*;
    use crate::handle::Cluster;

    struct NoMail;

    impl PeerMail for NoMail {
        fn send(&mut self, _: &NodeId, _: PeerMessage) {}
    }

    fn settings() -> NodeSettings {
        let record = Described {
            process: 1,
            versions: VERSIONS,
            peers: Vec::new(),
            clients: Vec::new(),
            zone: String::new(),
            program: String::new(),
            draining: false,
            links: 0,
            secrets: Vec::new(),
        };
        let node = NodeId::new("a").unwrap();
        NodeSettings {
            cluster: "test".to_owned(),
            node,
            record,
            cache: 1,
            gather: Duration::ZERO,
            seed: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_whose_server_takes_no_events_leaves() {
        let (events, mut received) = EventSender::new(1);
        let (views, seen) = ViewSenders::new();
        let (_end, ended) = watch::channel(());
        let (_cluster, ends, _pages) = Cluster::new(seen, ended);
        let (lanes, _lane_ends) = Lanes::new();
        let (watch, _wanted) = watch::channel(None);
        let (_answers, answers) = mpsc::channel(1);
        let (_reports, reports) = mpsc::channel(1);
        let out = Outlets { mail: NoMail, lanes, watch, events, views };
        let mut driver = NodeDriver::new(settings(), None, out, Arc::clone(&ends.mailbox));
        let client = ClientName::new("c").unwrap();
        for instance in [1, 2] {
            assert!(!driver.is_stuck);
            let (client, instance) = (client.clone(), Instance(instance));
            driver.carry_out(Output::Kick { client, instance }).unwrap();
        }
        let served = driver.serve(ends, FromEngine { answers, reports });
        assert_eq!(timeout(Duration::from_secs(1), served).await, Ok(None));
        // What had room is there, and then the server is told of the end.
        let client = ClientName::new("c").unwrap();
        let kick = ServerEvent::Kick { client, instance: Instance(1) };
        assert_eq!(received.next().await, Some(kick));
        assert_eq!(received.next().await, None);
    }
}
