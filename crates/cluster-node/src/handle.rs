//! The handle by which a server uses its node. A clone costs some reference counts; when the last
//! clone is dropped, the node leaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::blob::{BlobOutcome, BlobWish};
use cluster::heirloom::Heirloom;
use cluster::names::{ClientName, Generation, Instance, Key, NodeId};
use cluster::node::{Claimed, Located, NodeSnapshot, OpenVerdict, PeerMessage, PeerOpen, Subject};
use cluster::record::At;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::engine::Unanswered;
use crate::mailbox::Mailbox;
use crate::open::{GivenClaims, WantedClaim};
use crate::pages::{PAGES, PageQuestion, RecordPage, WantedPage, unanswered};
use crate::views::{HeldPorts, LivingNodes, Membership, Views};

/// The most batches of claims, and the most questions, that wait until the node takes them. The
/// node takes them within milliseconds, and further callers wait for room.
const QUESTIONS: usize = 256;

/// The longest time until no batch is under way: a batch has 1 s, and is sent again.
const HANDING_OVER: Duration = Duration::from_secs(2);

/// What is asked of the node.
#[derive(Debug)]
pub(crate) enum Question {
    Claim(Vec<WantedClaim>, oneshot::Sender<GivenClaims>),
    Find(Subject, oneshot::Sender<Located>),
    Blobs(Vec<BlobWish>, oneshot::Sender<Vec<BlobOutcome>>),
    Snapshot(oneshot::Sender<NodeSnapshot>),
    HandOver(oneshot::Sender<Option<Box<Heirloom>>>),
    GoOn,
    End,
}

/// A stream that the node is to judge.
pub(crate) type Judgement = (PeerOpen, oneshot::Sender<OpenVerdict>);

/// The ends of the node.
#[derive(Debug)]
pub(crate) struct NodeEnds {
    pub(crate) questions: mpsc::Receiver<Question>,
    pub(crate) judgements: mpsc::Receiver<Judgement>,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// A node of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    questions: mpsc::Sender<Question>,
    judgements: mpsc::Sender<Judgement>,
    pages: mpsc::Sender<PageQuestion>,
    mailbox: Arc<Mailbox>,
    views: Views,
    /// Closed when the node has ended.
    ended: watch::Receiver<()>,
}

impl Cluster {
    /// A handle of a node that shows these views, the ends of the node, and the pages that are
    /// asked for.
    pub(crate) fn new(
        views: Views,
        ended: watch::Receiver<()>,
    ) -> (Self, NodeEnds, mpsc::Receiver<PageQuestion>) {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (judgements, to_judge) = mpsc::channel(QUESTIONS);
        let (pages, to_read) = mpsc::channel(PAGES);
        let mailbox = Arc::new(Mailbox::default());
        let ends =
            NodeEnds { questions: asked, judgements: to_judge, mailbox: Arc::clone(&mailbox) };
        (Self { questions, judgements, pages, mailbox, views, ended }, ends, to_read)
    }

    /// Claims resources: each alone, in the order of the batch. There is an answer for each claim,
    /// in the same order, after 5 s at the latest; [`Claimed::Away`] where the engine did not
    /// answer, and for all claims of a node that has ended. A dropped future has claimed nothing
    /// that stays claimed.
    pub async fn claim(&self, batch: Vec<WantedClaim>) -> Vec<Claimed> {
        let away = vec![Claimed::Away; batch.len()];
        if batch.is_empty() {
            return away;
        }
        let (reply, given) = oneshot::channel();
        if self.questions.send(Question::Claim(batch, reply)).await.is_err() {
            return away;
        }
        given.await.map_or(away, GivenClaims::accept)
    }

    /// Frees resources. A claim that is not the latest claim of its resource frees nothing. The
    /// releases are kept until the node takes them, before each claim that is made after them, and
    /// until the engine has carried them out.
    pub fn release(&self, batch: impl IntoIterator<Item = (Key, Generation)>) {
        // The iterator of a caller does not run under the lock of the mailbox.
        self.mailbox.release(batch.into_iter().collect::<Vec<_>>());
    }

    /// Where a client or the holder of a resource is. [`Located::Away`] if neither the engine nor
    /// another node knows, and if the node has ended. The engine has 1 s for an answer, other nodes
    /// have 1 s more.
    pub async fn find(&self, subject: Subject) -> Located {
        let (reply, found) = oneshot::channel();
        if self.questions.send(Question::Find(subject, reply)).await.is_err() {
            return Located::Away;
        }
        found.await.unwrap_or(Located::Away)
    }

    /// Reads, writes and deletes bytes that the server keeps for all nodes, in the order of the
    /// batch. There is an outcome for each wish, in the same order. A node has
    /// [`BLOBS`](cluster::node::BLOBS) wishes at once; further ones, and the wishes of a node that
    /// is no member, are [`BlobOutcome::Away`]. The wishes have a lane of their own, so no client
    /// waits for them.
    pub async fn blobs(&self, batch: Vec<BlobWish>) -> Vec<BlobOutcome> {
        let count = batch.len();
        if batch.is_empty() {
            return Vec::new();
        }
        let (reply, outcomes) = oneshot::channel();
        if self.questions.send(Question::Blobs(batch, reply)).await.is_err() {
            return vec![BlobOutcome::Away { may_be_done: false }; count];
        }
        outcomes.await.unwrap_or_else(|_| vec![BlobOutcome::Away { may_be_done: true }; count])
    }

    /// Reads a page of a table. Pages are read one after another, for at most 1 s each, over calls
    /// of their own; nothing of them is kept.
    ///
    /// # Errors
    /// The engine does not answer, or the node has ended.
    pub async fn page(&self, wanted: WantedPage) -> Result<RecordPage, Unanswered> {
        let ended = || unanswered("this node has ended");
        let (reply, page) = oneshot::channel();
        self.pages.send((wanted, reply)).await.map_err(|_| ended())?;
        page.await.map_err(|_| ended())?
    }

    /// A node that was found for a client or a resource has refused an OPEN. What was found is
    /// forgotten unless a newer record is known by now; the answer `MOVED` has the newer record.
    pub fn refused(
        &self,
        subject: Subject,
        generation: Generation,
        moved: Option<(Generation, At)>,
    ) {
        self.mailbox.refused((subject, generation, moved));
    }

    /// Whether this node serves a stream that another node opens to one of its clients. A node that
    /// has ended serves none.
    pub async fn judge(&self, open: PeerOpen) -> OpenVerdict {
        let (reply, verdict) = oneshot::channel();
        if self.judgements.send((open, reply)).await.is_err() {
            return OpenVerdict::Gone;
        }
        verdict.await.unwrap_or(OpenVerdict::Gone)
    }

    /// The number of the things that the node has heard of the engine and of other nodes. A verdict
    /// ([`Self::judge`]) stays right while the number is the same, for as long as the lease of the
    /// node has at least to last: the caller asks again after 1 s.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.views.edition.load(Ordering::Acquire)
    }

    /// A process of a client has logged in, or the number of its links has changed. Of two
    /// processes of a client at this node, the process that this names last is in charge.
    pub fn logged_in(&self, client: ClientName, instance: Instance, links: u32) {
        self.mailbox.logged_in(client, instance, links);
    }

    /// The last link of a process of a client has ended.
    pub fn logged_out(&self, client: ClientName, instance: Instance) {
        self.mailbox.logged_out(client, instance);
    }

    /// Whether the node asks its clients to go, and the number of its links of clients: the next
    /// renewal writes it.
    pub fn describe(&self, draining: bool, links: u32) {
        self.mailbox.describe(draining, links);
    }

    /// There is a link to another node.
    pub fn link_up(&self, node: NodeId) {
        self.mailbox.link_up(node);
    }

    /// The link to another node has ended.
    pub fn link_down(&self, node: NodeId) {
        self.mailbox.link_down(node);
    }

    /// Another node has sent a message. A message that has no room is dropped.
    pub fn message(&self, from: NodeId, message: PeerMessage) {
        self.mailbox.message(from, message);
    }

    /// Makes the node leave, and waits until it has ended: all its records are void at once if the
    /// engine answers, and otherwise when its lease ends. It takes 2 s at most while the future of
    /// the node runs. A node leaves also if this future is dropped.
    pub async fn leave(&self) {
        self.mailbox.leave();
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// What the next process of this node needs to go on with its epoch ([`join_after`]). From then
    /// on the node writes nothing and renews nothing: [`Self::go_on`] or [`Self::end`] has to
    /// follow within the time of a lease. `None`: the node is no member, or the engine does not
    /// answer in 2 s, and the node goes on.
    ///
    /// [`join_after`]: crate::join_after
    pub async fn hand_over(&self) -> Option<Heirloom> {
        let (reply, left) = oneshot::channel();
        self.questions.send(Question::HandOver(reply)).await.ok()?;
        let left = timeout(HANDING_OVER, left).await;
        if left.is_err() {
            self.go_on().await;
        }
        left.ok()?.ok()?.map(|left| *left)
    }

    /// The next process does not go on: this process does.
    pub async fn go_on(&self) {
        // A node that has ended does not go on.
        let _ = self.questions.send(Question::GoOn).await;
    }

    /// The next process goes on: the node ends, and its lease and its records stay.
    pub async fn end(&self) {
        if self.questions.send(Question::End).await.is_ok() {
            let mut ended = self.ended.clone();
            while ended.changed().await.is_ok() {}
        }
    }

    /// How the node is doing, for a page of status; `None` if it has ended. The node answers
    /// without the engine.
    pub async fn snapshot(&self) -> Option<NodeSnapshot> {
        let (reply, snapshot) = oneshot::channel();
        self.questions.send(Question::Snapshot(reply)).await.ok()?;
        snapshot.await.ok()
    }

    /// The living nodes.
    #[must_use]
    pub fn nodes(&self) -> watch::Receiver<LivingNodes> {
        self.views.nodes.clone()
    }

    /// The held ports. A change is shown after 50 ms at the latest.
    #[must_use]
    pub fn ports(&self) -> watch::Receiver<HeldPorts> {
        self.views.ports.clone()
    }

    /// Whether visitors and clients should be sent to this node.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.views.readiness.clone()
    }

    /// Whether the node belongs to the cluster, and its epoch.
    #[must_use]
    pub fn membership(&self) -> watch::Receiver<Membership> {
        self.views.membership.clone()
    }
}
