//! Starts another next process after one has died: the former process still exists, holds the lock
//! of the state directory, and knows that its own program works.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use logging::AUDIT;
use ops::{Life, Phase, Serving};
use tokio::time::sleep;

use super::{Binary, Formers, Left, Next, Started};
use crate::notify;
use crate::parent::Guardian;

/// The program of this process, even after its file was replaced or removed.
const OWN: &str = "/proc/self/exe";

/// The deadline by which a process must be ready.
const READY: Duration = Duration::from_secs(60);

/// The pauses before the attempts: all attempts end within 15 s, the time after which a port must
/// be served again.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// A process that has served for this time did not die because of its start.
const PROVED: Duration = Duration::from_secs(60);

/// The number of consecutive deaths of next processes.
#[derive(Debug, Default)]
pub(crate) struct Deaths(usize);

impl Deaths {
    /// Starts another process that replaces `dead`.
    ///
    /// # Errors
    /// No process serves after five attempts, or this process stops.
    pub(crate) async fn replace(
        &mut self,
        dead: &Next,
        (role, formers): (&dyn Serving, &Formers),
        guardian: Option<&Guardian>,
        life: &Life,
    ) -> anyhow::Result<Arc<Next>> {
        if dead.since.elapsed() >= PROVED {
            self.0 = 0;
        }
        while let Some(pause) = PAUSES.get(self.0) {
            self.0 += 1;
            tokio::select! {
                () = sleep(*pause) => {}
                () = life.reached(Phase::Draining) => bail!("this process stops"),
            }
            formers.gather().await;
            let left =
                Left { handover_state: role.handover_state(true).await, formers: formers.listed() };
            let started = Started::start(&own(), left, (READY, guardian)).await;
            let served = match started {
                Ok(started) => {
                    let pid = started.pid;
                    notify::main_process(pid);
                    if let Some(guardian) = guardian {
                        guardian.follows(pid);
                    }
                    // What this process has left went to the process that has ended.
                    started.serve(None).await.map(|next| (pid, next))
                }
                Err(why) => Err(why),
            };
            match served {
                Ok((pid, next)) => {
                    tracing::warn!(
                        target: AUDIT, pid,
                        "process {pid} of the former version serves in the place of the process that \
                         has ended"
                    );
                    return Ok(Arc::new(next));
                }
                Err(why) => tracing::error!("no process in the place of the ended one: {why:#}"),
            }
        }
        bail!("{} processes in its place have ended as well", PAUSES.len())
    }
}

/// The file of the program of this process.
fn own() -> PathBuf {
    if Path::new(OWN).exists() {
        return OWN.into();
    }
    // Without /proc the current file is the best choice.
    Binary::of_process().path().map_or_else(|_| OWN.into(), PathBuf::from)
}
