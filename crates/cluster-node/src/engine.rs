//! What a node needs of the engine: calls that are made one after another, and a watch. Tests have
//! an engine in memory in the place of etcd.

use std::fmt;
use std::future::Future;

use cluster::engine::{Lease, NoReply, Range, Revision};
use cluster::node::{EngineReply, EngineRequest, Watched};

/// The consistent store that all nodes of a cluster share.
pub trait Engine: Send + 'static {
    /// Makes calls.
    type Caller: EngineCaller;
    /// Follows changes.
    type Follower: EngineFollower;

    /// Calls over connections of their own, so that calls of one kind hold up no others.
    fn caller(&self) -> Self::Caller;

    /// A watch that has not begun.
    fn follower(&self) -> Self::Follower;
}

/// Makes one call at a time.
pub trait EngineCaller: Send {
    /// Asks the engine. The caller drops the future when it does not wait any more; the request may
    /// have been carried out then, or may be carried out later.
    fn ask(
        &mut self,
        request: &EngineRequest,
    ) -> impl Future<Output = Result<EngineReply, Unanswered>> + Send;

    /// Ends a lease. A lease that does not exist is no error.
    fn revoke(&mut self, lease: Lease) -> impl Future<Output = Result<(), Unanswered>> + Send;

    /// The member that was asked last did not answer in time: the next call begins at another one.
    fn turn(&mut self);
}

/// Follows the changes of a range.
pub trait EngineFollower: Send {
    /// Begins anew: the changes of this revision and of later revisions are reported. The watch
    /// before, if there is one, was ended because it was silent, so another member is asked.
    fn begin(&mut self, range: Range, from: Revision);

    /// The watch is not needed any more.
    fn end(&mut self);

    /// The next report. After [`Watched::Compacted`] or [`Watched::Broken`], and before the begin,
    /// there is none. A dropped future loses nothing.
    fn next(&mut self) -> impl Future<Output = Watched> + Send;
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Whether the request may have been carried out.
    pub failure: NoReply,
    /// The reason, for a person.
    pub reason: String,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
