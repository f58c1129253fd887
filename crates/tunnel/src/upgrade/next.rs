//! The former process's side: it starts the next process, and hands over.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, bail};
use net::handover;
use net::inherited::held;
use ops::Life;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Conversation, Inheritance, VARIABLE, Word, line};
use crate::activation;

/// The path from which this process was started. It is read once: the name of the file may later be
/// that of another file.
static STARTED_FROM: LazyLock<Option<PathBuf>> = LazyLock::new(|| env::current_exe().ok());

/// Longest wait for the end of a process that has closed its end of the conversation.
const END: Duration = Duration::from_secs(5);

/// The file from which this process was started.
#[derive(Clone, Debug)]
pub(crate) struct Binary(Option<PathBuf>);

impl Binary {
    /// To be called at the start of the process.
    pub(crate) fn of_process() -> Self {
        Self(STARTED_FROM.clone())
    }

    /// Whether this process was started from this file.
    pub(crate) fn is(&self, path: &Path) -> bool {
        self.0.as_deref() == Some(path)
    }

    pub(crate) fn path(&self) -> anyhow::Result<&Path> {
        self.0.as_deref().context("the system does not tell the path of this program")
    }
}

/// A next process that could serve. Dropping it ends that process.
#[derive(Debug)]
pub(crate) struct Started {
    conversation: Conversation,
    child: Trial,
    pub(crate) pid: u32,
    pub(crate) version: String,
}

/// The next process, which serves.
#[derive(Debug)]
pub(crate) struct Next(Mutex<Conversation>);

/// A process that ends with this value, unless it is kept.
#[derive(Debug)]
struct Trial(Option<Child>);

impl Drop for Trial {
    fn drop(&mut self) {
        // It may have ended.
        self.0.iter_mut().for_each(|child| drop(child.start_kill()));
    }
}

impl Started {
    /// Starts `binary` with the arguments of this process, and waits until it could serve.
    ///
    /// # Errors
    /// It ends, says why it cannot serve, or is not ready within `limit`. The process has ended then.
    pub(crate) async fn start(
        binary: &Path,
        heirloom: Option<String>,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let deadline = Instant::now() + limit;
        let (ours, theirs) = UnixStream::pair().context("a pair of sockets")?;
        let arguments: Vec<OsString> = env::args_os().skip(1).collect();
        let mut command = Command::new(binary);
        command.args(arguments).env(VARIABLE, "stdin").env_remove(crate::inherit::VARIABLE);
        for name in activation::VARIABLES {
            command.env_remove(name);
        }
        // It names this process, and the next process feeds the watchdog as well.
        command.env_remove("WATCHDOG_PID").stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().with_context(|| format!("starting {}", binary.display()))?;
        let mut trial = Trial(Some(child));
        // The command holds the other end, and its end shows the end of the process.
        drop(command);
        let heard = converse(ours, heirloom, limit);
        let heard = timeout_at(deadline, heard).await;
        let Ok(heard) = heard else {
            bail!("the new process was not ready in {} s", limit.as_secs_f64());
        };
        if let Some((conversation, pid, version)) = heard? {
            return Ok(Self { conversation, child: trial, pid, version });
        }
        let ended = match &mut trial.0 {
            Some(child) => timeout(END, child.wait()).await.ok().transpose()?,
            None => None,
        };
        let how = ended.map(|status| format!(" ({status})")).unwrap_or_default();
        bail!("the new process has ended{how} before it was ready")
    }

    /// Lets the next process serve.
    ///
    /// # Errors
    /// It has ended meanwhile.
    pub(crate) async fn serve(mut self) -> anyhow::Result<Next> {
        self.conversation.say(&Word::Serve).await.context("the new process has ended")?;
        handover::hand_over();
        // The process is no longer on trial. The runtime takes note of its end.
        drop(self.child.0.take());
        Ok(Next(self.conversation.into()))
    }
}

/// Sends everything, and waits for the answer. `None`: the process closed its end.
async fn converse(
    ours: UnixStream,
    heirloom: Option<String>,
    limit: Duration,
) -> anyhow::Result<Option<(Conversation, u32, String)>> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let (pid, held, carriers) = (process::id(), held(), net::udp::layout());
    let inheritance = line(&Inheritance { pid, version, heirloom, held, carriers })?;
    // The process may never read.
    ours.set_write_timeout(Some(limit))?;
    let give = move || {
        handover::give(&ours)?;
        std::io::Write::write_all(&mut &ours, &inheritance)?;
        ours.set_write_timeout(None)?;
        std::io::Result::Ok(ours)
    };
    let given = tokio::task::spawn_blocking(give).await?;
    let ours = match given {
        Ok(ours) => ours,
        Err(e) if e.kind() == ErrorKind::BrokenPipe || e.kind() == ErrorKind::ConnectionReset => {
            return Ok(None);
        }
        Err(e) => return Err(e).context("handing the sockets over"),
    };
    let mut conversation = Conversation::new(ours)?;
    match conversation.hear().await? {
        Some(Word::Ready { pid, version }) => Ok(Some((conversation, pid, version))),
        Some(Word::Failed(why)) => bail!("{why}"),
        Some(other) => bail!("the new process says {other:?}"),
        None => Ok(None),
    }
}

impl Next {
    /// Calls `takes_over` when the next process takes over, or has ended, and advances `life` when the
    /// next process says so. Never returns.
    pub(crate) async fn listen(&self, life: &Life, takes_over: impl FnOnce()) -> Infallible {
        let mut conversation = self.0.lock().await;
        let mut takes_over = Some(takes_over);
        while let Ok(Some(word)) = conversation.hear().await {
            match word {
                Word::TakesOver => {
                    takes_over.take().into_iter().for_each(|told| told());
                }
                Word::Stop => life.drain(),
                Word::End => life.end(),
                Word::Ready { .. } | Word::Failed(_) | Word::Serve => {}
            }
        }
        tracing::warn!("the next process has ended");
        takes_over.take().into_iter().for_each(|told| told());
        std::future::pending().await
    }
}
