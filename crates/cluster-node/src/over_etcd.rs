//! etcd as the engine of a node.

use std::future::pending;

use cluster::engine::{Lease, Range, Revision};
use cluster::node::{EngineReply, EngineRequest, SILENCE, Watched};
use etcd::{Calls, Error, Etcd, Gap, Watch, WatchEvent};
use tracing::debug;

use crate::engine::{Engine, EngineCaller, EngineFollower, Unanswered};

impl Engine for Etcd {
    type Caller = EtcdCaller;
    type Follower = EtcdFollower;

    fn caller(&self) -> EtcdCaller {
        EtcdCaller(self.calls())
    }

    fn follower(&self) -> EtcdFollower {
        EtcdFollower { etcd: self.clone(), watch: None, member: 0, is_open: false }
    }
}

/// Calls of one lane.
#[derive(Debug)]
pub struct EtcdCaller(Calls);

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self { failure: error.failure, reason: error.to_string() }
    }
}

impl EngineCaller for EtcdCaller {
    async fn ask(&mut self, request: &EngineRequest) -> Result<EngineReply, Unanswered> {
        let calls = &mut self.0;
        Ok(match request {
            EngineRequest::Transact(_, it) => EngineReply::Done(calls.transact(it).await?),
            EngineRequest::Grant(_, ttl) => EngineReply::Granted(calls.grant(*ttl).await?.lease),
            EngineRequest::KeepAlive(lease) => {
                let is_alive = calls.renew(*lease).await?.is_some();
                // Renewals go to the members in turn, so that a member which has become silent is
                // noticed long before a lease ends.
                calls.turn();
                EngineReply::Renewed(is_alive)
            }
            EngineRequest::Revoke(lease) => {
                calls.revoke(*lease).await?;
                EngineReply::Renewed(false)
            }
        })
    }

    async fn revoke(&mut self, lease: Lease) -> Result<(), Unanswered> {
        Ok(self.0.revoke(lease).await?)
    }

    fn turn(&mut self) {
        self.0.turn();
    }
}

/// A watch, from member to member. An error before a member has let the watch in ends nothing: the
/// next member is asked. After that each error ends the watch, because the rules of the cluster
/// read the tables anew rather than go on behind the last change.
#[derive(Debug)]
pub struct EtcdFollower {
    etcd: Etcd,
    watch: Option<Watch>,
    /// The member that the next watch asks first.
    member: usize,
    /// A member has let the watch in.
    is_open: bool,
}

impl EngineFollower for EtcdFollower {
    fn begin(&mut self, range: Range, from: Revision) {
        self.end();
        let mut watch = self.etcd.watch(range, from, SILENCE);
        watch.begin_at(self.member);
        // An index without a member is that of the first.
        self.member = watch.member();
        self.watch = Some(watch);
    }

    fn end(&mut self) {
        if let Some(watch) = self.watch.take() {
            // A watch that reports is mostly ended because its member has become silent.
            self.member = watch.member() + usize::from(self.is_open);
        }
        self.is_open = false;
    }

    async fn next(&mut self) -> Watched {
        let Some(watch) = &mut self.watch else { return pending().await };
        let end = loop {
            match watch.next().await {
                Ok(WatchEvent::Open { member, revision }) => {
                    debug!(member, revision = revision.0, "the watch of the cluster is open");
                    self.is_open = true;
                }
                Ok(WatchEvent::Changes { changes, .. }) => return Watched::Changes(changes),
                Ok(WatchEvent::UpTo(_)) => {}
                Ok(WatchEvent::Anew(Gap::Compacted(_))) => break Watched::Compacted,
                Ok(WatchEvent::Anew(Gap::TooLarge)) => break Watched::Broken,
                Err(error) => {
                    debug!(%error, "the watch of the cluster fails");
                    if self.is_open {
                        break Watched::Broken;
                    }
                }
            }
        };
        // After an error the client has turned to the next member.
        self.member = watch.member();
        (self.watch, self.is_open) = (None, false);
        end
    }
}
