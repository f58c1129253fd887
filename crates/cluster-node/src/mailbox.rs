//! What the server and the links tell the node without waiting for it.
//!
//! The mailbox is no queue of calls: it keeps what the calls amount to, so that a node which takes
//! it late finds no more than there is to know, and nothing is refused or lost.
//!
//! | told | kept | at most |
//! |---|---|---|
//! | releases | each claim once | the claims that the server was given since the node took them |
//! | log-ins and log-outs | for each client what decides its place | some for each client that changed |
//! | links to other nodes | for each node its state | two for each node that changed |
//! | the state of this node, the wish to leave | the latest | 1 |
//! | refused OPENs | each | [`REFUSALS`]: more are forgotten, and the next OPEN is refused again |
//! | messages of other nodes | each | [`MESSAGES`], [`FROM_ONE`] of one node: more get lost |

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::names::{ClientName, Generation, Instance, Key, NodeId};
use cluster::node::{NodeInput, PeerMessage, ServerWish, Subject};
use cluster::record::At;
use tokio::sync::Notify;

/// The most refused OPENs.
const REFUSALS: usize = 1_024;

/// The most messages of all other nodes. 100 nodes say something each 3 s, and ask for clients
/// while the engine is away.
const MESSAGES: usize = 8_192;

/// The most messages of one node.
const FROM_ONE: usize = 1_024;

/// A refused OPEN: whose place was found, by which number, and the newer record of a client.
pub(crate) type RefusedOpen = (Subject, Generation, Option<(Generation, At)>);

/// What waits for the node.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    releases: BTreeSet<(Key, Generation)>,
    processes: BTreeMap<ClientName, Vec<ProcessNews>>,
    described: Option<(bool, u32)>,
    refusals: Vec<RefusedOpen>,
    links: BTreeMap<NodeId, Vec<LinkNews>>,
    messages: Vec<(NodeId, PeerMessage)>,
    /// The number of messages of each node.
    counts: BTreeMap<NodeId, usize>,
    leaves: bool,
    /// The node has ended, and nothing is kept any more.
    is_over: bool,
}

/// A log-in or a log-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessNews {
    In(Instance, u32),
    Out(Instance),
}

/// A link has come or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkNews {
    Up,
    Down,
}

/// The mailbox of a node.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Mail>,
    arrived: Notify,
}

impl Mailbox {
    fn tell(&self, put: impl FnOnce(&mut Mail)) {
        let mut mail = self.lock();
        if !mail.is_over {
            put(&mut mail);
            self.arrived.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn release(&self, claims: impl IntoIterator<Item = (Key, Generation)>) {
        self.tell(|mail| mail.releases.extend(claims));
    }

    pub(crate) fn logged_in(&self, client: ClientName, instance: Instance, links: u32) {
        self.tell(|mail| log_in(mail.processes.entry(client).or_default(), instance, links));
    }

    pub(crate) fn logged_out(&self, client: ClientName, instance: Instance) {
        self.tell(|mail| log_out(mail.processes.entry(client).or_default(), instance));
    }

    pub(crate) fn describe(&self, draining: bool, links: u32) {
        self.tell(|mail| mail.described = Some((draining, links)));
    }

    pub(crate) fn refused(&self, refusal: RefusedOpen) {
        self.tell(|mail| {
            if mail.refusals.len() < REFUSALS {
                mail.refusals.push(refusal);
            }
        });
    }

    pub(crate) fn link_up(&self, node: NodeId) {
        self.tell(|mail| {
            let news = mail.links.entry(node).or_default();
            if news.last() != Some(&LinkNews::Up) {
                news.push(LinkNews::Up);
            }
        });
    }

    /// Whatever the link was before, it is gone.
    pub(crate) fn link_down(&self, node: NodeId) {
        self.tell(|mail| {
            mail.links.insert(node, vec![LinkNews::Down]);
        });
    }

    pub(crate) fn message(&self, from: NodeId, message: PeerMessage) {
        self.tell(|mail| {
            let count = mail.counts.entry(from.clone()).or_default();
            if *count < FROM_ONE && mail.messages.len() < MESSAGES {
                *count += 1;
                mail.messages.push((from, message));
            }
        });
    }

    pub(crate) fn leave(&self) {
        self.tell(|mail| mail.leaves = true);
    }

    /// Waits until the node is to leave. What arrives meanwhile stays. Cancel-safe.
    pub(crate) async fn leaves(&self) {
        loop {
            let arrived = self.arrived.notified();
            if self.lock().leaves {
                return;
            }
            arrived.await;
        }
    }

    /// Waits until something has arrived. Cancel-safe.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Takes all that waits.
    pub(crate) fn take(&self) -> Mail {
        let mut mail = self.lock();
        let empty = Mail { is_over: mail.is_over, ..Mail::default() };
        mem::replace(&mut *mail, empty)
    }

    /// The node has ended.
    pub(crate) fn end(&self) {
        *self.lock() = Mail { is_over: true, ..Mail::default() };
    }
}

/// Adds a log-in. Of former news those stay that tell the node whether the process is the one that
/// it had, without a log-out in between.
fn log_in(news: &mut Vec<ProcessNews>, instance: Instance, links: u32) {
    let last_in = news.iter().rev().find_map(|news| match news {
        ProcessNews::In(last, links) => Some((*last, *links)),
        ProcessNews::Out(_) => None,
    });
    let now = ProcessNews::In(instance, links);
    match (news.last_mut(), last_in) {
        // The number of links has changed.
        (Some(last @ ProcessNews::In(..)), Some((former, _))) if former == instance => *last = now,
        (_, Some((former, _))) if former == instance => {
            *news = vec![ProcessNews::Out(instance), now];
        }
        (_, Some((former, links))) => *news = vec![ProcessNews::In(former, links), now],
        (_, None) => news.push(now),
    }
}

/// Adds a log-out. The log-out of a process that is not in charge at this node changes nothing.
fn log_out(news: &mut Vec<ProcessNews>, instance: Instance) {
    let out = ProcessNews::Out(instance);
    let is_after_other =
        news.iter().any(|news| matches!(news, ProcessNews::In(last, _) if *last != instance));
    let is_last_in = matches!(news.last(), Some(ProcessNews::In(last, _)) if *last == instance);
    if is_last_in || (!is_after_other && !news.contains(&out)) {
        news.push(out);
    }
}

impl Mail {
    /// Whether the node is to leave.
    pub(crate) const fn leaves(&self) -> bool {
        self.leaves
    }

    /// What the node is told, in order: releases come before the claims that the server makes after
    /// them, and a link comes before its messages.
    pub(crate) fn into_inputs(self) -> Vec<NodeInput> {
        let release = |(key, generation)| ServerWish::Release { key, generation };
        let mut wishes: Vec<_> = self.releases.into_iter().map(release).collect();
        for (client, news) in self.processes {
            wishes.extend(news.into_iter().map(|news| {
                let client = client.clone();
                match news {
                    ProcessNews::In(instance, links) => {
                        ServerWish::LoggedIn { client, instance, links }
                    }
                    ProcessNews::Out(instance) => ServerWish::LoggedOut { client, instance },
                }
            }));
        }
        wishes.extend(self.refusals.into_iter().map(|(subject, generation, moved)| {
            ServerWish::Refused { subject, generation, moved }
        }));
        let describe = |(draining, links)| ServerWish::Describe { draining, links };
        wishes.extend(self.described.map(describe));
        let mut inputs = Vec::new();
        if !wishes.is_empty() {
            inputs.push(NodeInput::Wishes(wishes));
        }
        for (node, news) in self.links {
            inputs.extend(news.into_iter().map(|news| match news {
                LinkNews::Up => NodeInput::LinkUp(node.clone()),
                LinkNews::Down => NodeInput::LinkDown(node.clone()),
            }));
        }
        let message = |(from, message)| NodeInput::Message(from, message);
        inputs.extend(self.messages.into_iter().map(message));
        inputs
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    /// What the node keeps of a client: the process, its links, whether it is leaving, and whether
    /// it has been the same process without a log-out since the beginning.
    type Kept = Option<(Instance, u32, bool, bool)>;

    fn told(kept: Kept, news: &[ProcessNews]) -> Kept {
        news.iter().fold(kept, |kept, news| match (*news, kept) {
            (ProcessNews::In(instance, links), None) => Some((instance, links, false, false)),
            (ProcessNews::In(instance, links), Some((former, _, is_leaving, is_same))) => {
                Some((instance, links, false, is_same && former == instance && !is_leaving))
            }
            (ProcessNews::Out(instance), Some((former, links, _, is_same)))
                if former == instance =>
            {
                Some((former, links, true, is_same))
            }
            (ProcessNews::Out(_), kept) => kept,
        })
    }

    fn news() -> impl Strategy<Value = Vec<(bool, u64)>> {
        vec((any::<bool>(), 1..4_u64), 0..12)
    }

    proptest! {
        #[test]
        fn what_is_kept_of_log_ins_tells_the_node_as_much_as_all_of_them(
            news in news(), is_known in any::<bool>(),
        ) {
            let (mut all, mut kept) = (Vec::new(), Vec::new());
            for (at, (is_in, instance)) in (1..).zip(news) {
                let instance = Instance(instance);
                if is_in {
                    all.push(ProcessNews::In(instance, at));
                    log_in(&mut kept, instance, at);
                } else {
                    all.push(ProcessNews::Out(instance));
                    log_out(&mut kept, instance);
                }
                let before = is_known.then_some((Instance(1), 1, false, true));
                prop_assert_eq!(told(before, &all), told(before, &kept), "{:?} {:?}", all, kept);
                // Three processes: each may have been the one before.
                prop_assert!(kept.len() <= 3 + 2, "{:?}", kept);
            }
        }
    }

    #[test]
    fn releases_without_a_node_that_takes_them_are_kept_once_each() {
        let mailbox = Mailbox::default();
        let key = |port| {
            use cluster::names::{Class, PortProtocol};
            Key::Port(PortProtocol::Tcp, Class::Public, port)
        };
        for _ in 0..3 {
            mailbox.release((0..u16::MAX).map(|port| (key(port), Generation(u64::from(port)))));
        }
        mailbox.release([(key(1), Generation(7))]);
        let [NodeInput::Wishes(wishes)] = &mailbox.take().into_inputs()[..] else { panic!() };
        assert_eq!(wishes.len(), usize::from(u16::MAX) + 1);
        assert!(mailbox.take().into_inputs().is_empty());
    }

    #[test]
    fn one_node_leaves_room_for_the_messages_of_others() {
        let mailbox = Mailbox::default();
        let status = || PeerMessage::Status { hears_engine: true };
        for _ in 0..MESSAGES {
            mailbox.message(node("loud"), status());
        }
        mailbox.message(node("quiet"), status());
        let inputs = mailbox.take().into_inputs();
        assert_eq!(inputs.len(), FROM_ONE + 1);
        assert_eq!(inputs.last(), Some(&NodeInput::Message(node("quiet"), status())));
    }

    #[test]
    fn a_link_that_flaps_ends_in_its_last_state() {
        let mailbox = Mailbox::default();
        for _ in 0..1_000 {
            mailbox.link_up(node("a"));
            mailbox.link_down(node("a"));
        }
        mailbox.link_up(node("a"));
        let inputs = mailbox.take().into_inputs();
        assert_eq!(inputs, [NodeInput::LinkDown(node("a")), NodeInput::LinkUp(node("a"))]);
    }

    #[test]
    fn a_node_that_has_ended_keeps_nothing() {
        let mailbox = Mailbox::default();
        mailbox.end();
        mailbox.describe(true, 1);
        mailbox.leave();
        let mail = mailbox.take();
        assert!(!mail.leaves() && mail.into_inputs().is_empty());
    }
}
