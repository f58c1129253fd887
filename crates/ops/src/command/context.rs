//! What a command needs in order to run: the daemon, and the channel from which it came.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::daemon::Daemon;
use crate::events::Event;
use crate::life::Life;
use crate::measure::Progress;
use crate::share::{Shared, Visit};
use crate::{AUDIT, SendFuture};

/// Timeout for an answer of the workers. A healthy worker answers within one turn of its event
/// loop, so a longer wait is reported as an error.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Timeout for an answer of the cluster. A page waits for those before it, and etcd, then the other
/// nodes, have 1 s each for every subject that a name may fit. The sender waits for 15 s.
pub(super) const CLUSTER: Duration = Duration::from_secs(10);

/// A worker did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a worker does not answer")]
pub struct NoAnswer;

/// The error of a command that only a server can carry out.
pub(super) const NOT_A_SERVER: &str =
    "this is a client; clients are let in, and get their rights, where `tunnel server` runs";

/// The error of a command that only a client can carry out.
pub(super) const NOT_A_CLIENT: &str =
    "this is a server; services and forwards are added where `tunnel client` runs";

/// The error of a daemon that lacks a capability of every role.
pub(super) const NOT_HERE: &str = "it cannot do that";

/// A message before the answer, or in the place of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// The daemon is still running, and has begun to report.
    Ok,
    /// The first message of a share.
    Shared(Shared),
    Visit(Visit),
    Event(Event),
    /// The number of events, or of visits, that were lost because the listener was slow.
    Lost(u64),
    /// The progress of a speed test.
    Progress(Progress),
}

/// The daemon, and the channel from which a command came.
pub struct Context<'a> {
    pub daemon: &'a dyn Daemon,
    /// For the log: `the control socket`, `the admin API`.
    pub over: &'static str,
    /// The phase of the daemon, which `stop` advances.
    pub life: &'a Life,
    /// Receives the messages before the answer. When the channel is closed, the recipient has left,
    /// and the command ends.
    pub news: mpsc::Sender<News>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("over", &self.over).finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// Logs what was asked for. The effects are logged in separate lines, which do not know the
    /// channel.
    pub(super) fn audit(&self, what: impl fmt::Display) {
        tracing::info!(target: AUDIT, "{} asked for {what}", self.over);
    }
}

/// The answer of the workers, or the error that they give none.
pub(super) async fn timely<T>(answer: SendFuture<'_, T>) -> Result<T, NoAnswer> {
    within(PATIENCE, answer).await
}

/// As [`timely`], for an answer that takes longer.
pub(super) async fn within<T>(
    patience: Duration,
    answer: SendFuture<'_, T>,
) -> Result<T, NoAnswer> {
    timeout(patience, answer).await.map_err(|_| NoAnswer)
}

/// The answer of the cluster, or the error that it gives none.
pub(super) async fn of_cluster<T>(
    patience: Duration,
    answer: SendFuture<'_, anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let answer = timeout(patience, answer).await;
    answer.unwrap_or_else(|_| Err(anyhow::anyhow!("the cluster does not answer")))
}
