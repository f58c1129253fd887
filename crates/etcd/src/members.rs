//! All members of one etcd, from which calls and watches begin.

use std::sync::Arc;
use std::time::Duration;

use cluster::engine::{Range, Revision};

use crate::calls::Calls;
use crate::connection::Connect;
use crate::ground::Ground;
use crate::settings::{EtcdSettings, NoMember};
use crate::watch::Watch;

/// One etcd of one or several members.
#[derive(Clone, Debug)]
pub struct Etcd(Arc<Ground>);

impl Etcd {
    /// No connection is opened yet.
    ///
    /// # Errors
    /// The settings name no member.
    pub fn new(settings: EtcdSettings, connect: Box<dyn Connect>) -> Result<Self, NoMember> {
        if settings.members.is_empty() {
            return Err(NoMember);
        }
        Ok(Self(Arc::new(Ground::new(settings, connect))))
    }

    /// Calls of one kind, over connections of their own: a slow look-up holds up no renewal.
    #[must_use]
    pub fn calls(&self) -> Calls {
        Calls::new(Arc::clone(&self.0))
    }

    /// Follows the changes of the keys of `range`, whose limit does not count, over a connection of
    /// its own. `from` is the first revision of interest: that of an answer about the same keys,
    /// plus 1. Revision 0 is that of the member when the watch begins.
    ///
    /// After `silence` without a word of its member the watch goes on at the next one. The caller
    /// sees to it that some key of the range changes more often: etcd itself sends a sign of life
    /// each 10 minutes only (`--experimental-watch-progress-notify-interval`).
    #[must_use]
    pub fn watch(&self, range: Range, from: Revision, silence: Duration) -> Watch {
        Watch::new(self.calls(), range, from, silence)
    }

    /// The id of the cluster of etcd, once a member has answered.
    #[must_use]
    pub fn cluster(&self) -> Option<u64> {
        Some(self.0.cluster()).filter(|id| *id != 0)
    }
}
