//! What goes into a node and what comes out of it, as plain values.

use std::time::Duration;

use crate::blob::{BlobOutcome, BlobWish};
use crate::engine::{Change, Done, Lease, NoReply, Range, Revision, Transaction};
use crate::heirloom::Heirloom;
use crate::names::{ClientName, Generation, Instance, Key, NodeEpoch, NodeId, Owner};
use crate::record::{At, Described, Holding, NodeProgram};

/// What a node is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSettings {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the node.
    pub node: NodeId,
    /// The record of the node. Its `process` is a random number that no other process has.
    pub record: Described,
    /// The most answers of look-ups that are kept.
    pub cache: usize,
    /// The time from a batch to the next batch for which nobody waits, and the most time from a
    /// batch of look-ups to the next ([`GATHER`](super::GATHER) in a cluster).
    pub gather: Duration,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The number of a request to the engine. It is never used again by the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The number of a watch. It is never used again by the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// The number by which the server recognises an answer. It is used for one wish at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Which connection to the engine has a request, so that none waits behind requests of another
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Membership: lease, record of the node.
    Renewals,
    /// Batches.
    Claims,
    /// Reads.
    LookUps,
    /// Bytes of the server.
    Blobs,
}

/// A request to the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EngineRequest {
    /// A transaction, which is linearizable also if it only reads.
    Transact(Lane, Transaction),
    /// A new lease that ends this long after its last renewal.
    Grant(Lane, Duration),
    /// A renewal of a lease.
    KeepAlive(Lease),
    /// The end of a lease now. Nobody waits for the answer.
    Revoke(Lease),
}

/// An answer of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EngineReply {
    /// To [`EngineRequest::Transact`].
    Done(Done),
    /// To [`EngineRequest::Grant`].
    Granted(Lease),
    /// To [`EngineRequest::KeepAlive`]: whether the lease is alive and has its full time again.
    Renewed(bool),
}

/// What a watch reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Watched {
    /// Changes, in the order of their revisions; each change is reported once.
    Changes(Vec<Change>),
    /// The engine has forgotten changes that the watch would have to report. The watch has ended.
    Compacted,
    /// The watch has ended for another reason.
    Broken,
}

/// What the server asks of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerWish {
    /// A resource for a process of a client. The answer is [`Output::Claimed`].
    Claim {
        /// The number of the answer.
        ticket: Ticket,
        /// The resource.
        key: Key,
        /// The client.
        client: ClientName,
        /// Its process.
        instance: Instance,
        /// What other nodes need to know of the service.
        about: String,
        /// The claim that the new claim replaces, if it is still the latest claim of the resource.
        /// `None`: the resource must be free. A resource whose holder is at a node that died, or
        /// had it in a former epoch of the node, is free.
        expected: Option<Generation>,
    },
    /// Frees a resource. A claim that is not the latest claim of its resource frees nothing.
    Release {
        /// The resource.
        key: Key,
        /// The claim.
        generation: Generation,
    },
    /// Where a client or the holder of a resource is. The answer is [`Output::Found`].
    Find {
        /// The number of the answer.
        ticket: Ticket,
        /// Whose place.
        subject: Subject,
    },
    /// Reads, writes or deletes bytes of the server. The answer is [`Output::Blob`].
    Blob {
        /// The number of the answer.
        ticket: Ticket,
        /// What is to be done.
        wish: BlobWish,
    },
    /// A node that was found for a client or a resource has refused an OPEN. What was found is
    /// forgotten unless a newer record is known by now; the answer `MOVED` has the newer record.
    Refused {
        /// What was found.
        subject: Subject,
        /// Its number.
        generation: Generation,
        /// The newer record of a client, and its number.
        moved: Option<(Generation, At)>,
    },
    /// A process of a client has logged in, or the number of its links has changed. Of two
    /// processes of a client at this node, the process that this names last is in charge.
    LoggedIn {
        /// The client.
        client: ClientName,
        /// Its process.
        instance: Instance,
        /// The number of its links at this node.
        links: u32,
    },
    /// The last link of a process of a client has ended.
    LoggedOut {
        /// The client.
        client: ClientName,
        /// Its process.
        instance: Instance,
    },
    /// The record of the node has changed: the next renewal writes it.
    Describe {
        /// The node asks its clients to go.
        draining: bool,
        /// The number of its links of clients.
        links: u32,
    },
    /// Another process of this node is about to go on with its epoch: the node finishes the batch
    /// under way and writes nothing from then on. The answer is [`Output::HandedOver`].
    HandOver,
    /// The other process does not go on: this node does.
    GoOn,
    /// The node ends: all its records are void at once.
    Leave,
}

/// Whose place is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A client.
    Client(ClientName),
    /// The holder of a resource.
    Resource(Key),
}

/// What a node says to another node over the link between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerMessage {
    /// At the start of a link and at each renewal.
    Status {
        /// The node has heard the engine within 10 s.
        hears_engine: bool,
    },
    /// Asks for what the other node has.
    Ask {
        /// The number of the answer.
        id: u64,
        /// Whose place.
        subject: Subject,
        /// The other node asks the engine. Otherwise it answers for itself alone.
        ask_engine: bool,
    },
    /// The answer to [`PeerMessage::Ask`].
    Answer {
        /// The number of the question.
        id: u64,
        /// The incarnation of the store that the answer is from.
        incarnation: u64,
        /// What the node knows.
        known: PeerKnowledge,
    },
    /// Another process of a client is in charge.
    Superseded {
        /// The client.
        client: ClientName,
        /// The incarnation of the store that the record is from.
        incarnation: u64,
        /// The number of the record.
        generation: Generation,
        /// The record.
        record: At,
    },
}

/// What a node knows of a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerKnowledge {
    /// The node does not know.
    Unknown,
    /// There is no record.
    Absent,
    /// The record of a client.
    At(Generation, At),
    /// The record of a resource.
    Holding(Generation, Holding),
}

/// An event of the node's life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeInput {
    /// A wish of the server.
    Wish(ServerWish),
    /// Wishes of the server at once: what they write goes into one batch, as far as it fits.
    Wishes(Vec<ServerWish>),
    /// The engine has answered a request, or the request has failed. Each request but a
    /// [`EngineRequest::Revoke`] is answered once, after 1 s at the latest.
    Answer(RequestId, Result<EngineReply, NoReply>),
    /// A watch has reported something.
    Watched(WatchId, Watched),
    /// There is a link to another node.
    LinkUp(NodeId),
    /// The link to another node has ended.
    LinkDown(NodeId),
    /// Another node has sent a message.
    Message(NodeId, PeerMessage),
    /// The deadline has come.
    Timeout,
}

/// The answer to a [`ServerWish::Claim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Claimed {
    /// The client holds the resource, by the claim of this number.
    Held(Generation),
    /// An owner holds the resource by another claim. The owner may be the owner that asked.
    Taken {
        /// The holder.
        by: Owner,
        /// Its claim.
        generation: Generation,
    },
    /// The engine does not answer: the resource may be free. If the claim succeeds later, the node
    /// releases it.
    Away,
}

/// The answer to a [`ServerWish::Find`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Located {
    /// The client is logged in at this node, with this process.
    Here(Instance),
    /// The client is logged in at these nodes, of which at least one is alive.
    There {
        /// The number of the record; 0 for a client that has no record yet.
        generation: Generation,
        /// The record.
        record: At,
        /// The time since the record was read.
        age: Duration,
    },
    /// The resource has a holder, whose node is alive.
    Held {
        /// The number of the record.
        generation: Generation,
        /// The record.
        record: Holding,
        /// The time since the record was read.
        age: Duration,
    },
    /// The client is nowhere, or nobody holds the resource.
    Nowhere,
    /// Neither the engine nor another node answers.
    Away,
}

/// A visitor's stream that another node opens to a client of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerOpen {
    /// The client.
    pub client: ClientName,
    /// The process that the other node has found.
    pub instance: Instance,
    /// The number of the record by which it has found the process.
    pub generation: Generation,
}

/// The answer to an [`PeerOpen`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpenVerdict {
    /// The process is here and in charge.
    Serve,
    /// A newer record is known: the client is elsewhere, or another process is in charge.
    Moved(Generation, At),
    /// The process is here, and may have been superseded while the node had no lease: the server
    /// finds the client ([`ServerWish::Find`]) and asks again.
    Ask,
    /// The process is not here, and nothing newer is known.
    Gone,
}

/// What somebody has to be told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeEvent {
    /// The node is a member, with this epoch.
    Joined(NodeEpoch),
    /// The node goes on with the epoch that a former process of the node has left.
    GoesOn(NodeEpoch),
    /// The membership has ended against the will of the node. It joins again.
    EpochEnded(NodeEpoch),
    /// The store was restored from a copy, or replaced: claims of the last time may be lost. The
    /// node starts anew.
    StoreRestored,
    /// Another process has joined under the name of this node. This process waits until it has
    /// left.
    NameTaken {
        /// The random number of the other process.
        process: u64,
    },
    /// A living node reads no version of records that this node reads. This node does not join.
    NoCommonVersion {
        /// The living node.
        node: NodeId,
        /// What this node could read of its record.
        its: NodeProgram,
    },
    /// A record cannot be read.
    BadRecord {
        /// Its key.
        key: String,
        /// The reason.
        reason: String,
    },
}

/// What the node wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// A request to the engine.
    Request(RequestId, EngineRequest),
    /// A watch of these keys, from the changes of this revision on.
    Watch(WatchId, Range, Revision),
    /// The end of a watch.
    Unwatch(WatchId),
    /// A message to another node. It may get lost.
    Send(NodeId, PeerMessage),
    /// The answer to a claim.
    Claimed(Ticket, Claimed),
    /// A claim has a new number, because the node has a new epoch. A release may name either.
    Renumbered {
        /// The resource.
        key: Key,
        /// The former number.
        former: Generation,
        /// The new number.
        generation: Generation,
    },
    /// Another owner has the resource of this claim: its entrance has to close.
    Lost {
        /// The resource.
        key: Key,
        /// The claim.
        generation: Generation,
    },
    /// The answer to a question.
    Found(Ticket, Located),
    /// The answer to a wish about bytes of the server.
    Blob(Ticket, BlobOutcome),
    /// Another process of the client is in charge: all links of this process to this node have to
    /// end. Its other homes decide for themselves, and a process without any home has yielded.
    Kick {
        /// The client.
        client: ClientName,
        /// The process that yields.
        instance: Instance,
    },
    /// A port has another holder, or none: all nodes listen at held ports.
    Port {
        /// The port.
        key: Key,
        /// The number of its record, and the record.
        holder: Option<(Generation, Holding)>,
    },
    /// A client has lost its rights, or has them again.
    Revoked {
        /// The client.
        client: ClientName,
        /// The client has no rights.
        is_revoked: bool,
    },
    /// Whether visitors and clients should be sent to this node.
    Ready(bool),
    /// What the next process of this node needs; `None`: the node is no member.
    HandedOver(Option<Box<Heirloom>>),
    /// Something to be logged.
    Report(NodeEvent),
}
