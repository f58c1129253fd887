//! The former process's side: it starts the next process, and hands over.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, fmt, iter};

use anyhow::{Context, bail};
use net::guarded::{self, Guard};
use net::handover;
use net::inherited::held;
use ops::Life;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::former::{Formers, Listed};
use super::{
    Conversation, HEIRLOOM_MAX, Inheritance, Left, PIECE, TAKES_HEIRLOOMS, TALK, VARIABLE, Word,
    line,
};
use crate::activation;
use crate::parent::Guardian;

/// The path from which this process was started. It is read once: the name may later belong to a
/// different file.
static STARTED_FROM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let path = env::current_exe().ok()?;
    // A process that was started from a deleted file has a name with this suffix.
    let name = path.to_str().and_then(|name| name.strip_suffix(" (deleted)"));
    Some(name.map_or_else(|| path.clone(), PathBuf::from))
});

/// The argument of a process whose parent has the same command line.
const MARK: &str = "--upgraded";

/// Longest wait for the end of a process that has closed its end of the conversation.
const END: Duration = Duration::from_secs(5);

/// The file from which this process was started.
#[derive(Clone, Debug)]
pub(crate) struct Binary(Option<PathBuf>);

impl Binary {
    /// Must be called at the start of the process.
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
    /// The control socket accepts no command from it.
    _guard: Option<Guard>,
    pub(crate) pid: u32,
    pub(crate) version: String,
    talk: u32,
}

/// The next process, which serves.
#[derive(Debug)]
pub(crate) struct Next {
    conversation: Mutex<Conversation>,
    talk: u32,
    pub(super) since: Instant,
}

/// The fate of the next process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has ended although it should serve.
    Died,
    /// It was stopped, or the process to which it has handed over serves.
    Over,
}

/// The first message of the next process: its process id, its version, and the version of its
/// messages.
type Ready = (Conversation, (u32, String, u32));

/// A process that ends with this value, unless it is kept.
#[derive(Debug)]
struct Trial(Option<Child>);

impl Drop for Trial {
    fn drop(&mut self) {
        // It may have ended.
        self.0.iter_mut().for_each(|child| drop(child.start_kill()));
    }
}

/// The exit code for an invalid command line.
const USAGE: i32 = 2;

/// The new process has ended because of its command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage;

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the new process has ended (exit status: {USAGE}) before it was ready")
    }
}

impl std::error::Error for Usage {}

/// The arguments with a mark after the name of the role: so the parent, whose arguments lack the
/// mark, is not mistaken for the serving process. `None`: they already have the mark, or no place
/// for it.
fn marked(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let (role, rest) = arguments.split_first()?;
    let has_place = ["server", "client", "proxy"].iter().any(|one| role == one);
    if !has_place || rest.first().is_some_and(|first| first == MARK) {
        return None;
    }
    Some([role.clone(), MARK.into()].into_iter().chain(rest.iter().cloned()).collect())
}

impl Started {
    /// Starts `binary` with the arguments of this process, and waits until it is ready to serve.
    ///
    /// # Errors
    /// It ends, reports why it cannot serve, or is not ready within `limit`. The process has ended
    /// in this case.
    pub(crate) async fn start(
        binary: &Path,
        left: Left,
        (limit, guardian): (Duration, Option<&Guardian>),
    ) -> anyhow::Result<Self> {
        let plain: Vec<OsString> = env::args_os().skip(1).collect();
        if guardian.is_some()
            && let Some(marked) = marked(&plain)
        {
            let started = Self::start_with(binary, marked, left.clone(), (limit, guardian));
            // A program of an earlier version does not know the mark.
            match started.await {
                Err(why) if why.downcast_ref() == Some(&Usage) => {}
                started => return started,
            }
        }
        Self::start_with(binary, plain, left, (limit, guardian)).await
    }

    async fn start_with(
        binary: &Path,
        arguments: Vec<OsString>,
        left: Left,
        (limit, guardian): (Duration, Option<&Guardian>),
    ) -> anyhow::Result<Self> {
        let deadline = Instant::now() + limit;
        let (ours, theirs) = UnixStream::pair().context("a pair of sockets")?;
        let mut command = Command::new(binary);
        command.args(arguments).env(VARIABLE, "stdin").env_remove(crate::inherit::VARIABLE);
        if let Some(guardian) = guardian {
            guardian.raise(command.as_std_mut());
        }
        for name in activation::VARIABLES {
            command.env_remove(name);
        }
        // It names this process, and the next process feeds the watchdog as well.
        command.env_remove("WATCHDOG_PID").stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().with_context(|| format!("starting {}", binary.display()))?;
        let guard = child.id().map(Guard::process);
        let mut trial = Trial(Some(child));
        // The command holds the other end, and closing it shows the end of the process.
        drop(command);
        let heard = converse(ours, left, limit);
        let heard = timeout_at(deadline, heard).await;
        let Ok(heard) = heard else {
            bail!("the new process was not ready in {} s", limit.as_secs_f64());
        };
        if let Some((conversation, (pid, version, talk))) = heard? {
            return Ok(Self { conversation, child: trial, _guard: guard, pid, version, talk });
        }
        let ended = match &mut trial.0 {
            Some(child) => timeout(END, child.wait()).await.ok().transpose()?,
            None => None,
        };
        if ended.is_some_and(|status| status.code() == Some(USAGE)) {
            return Err(Usage.into());
        }
        let how = ended.map(|status| format!(" ({status})")).unwrap_or_default();
        bail!("the new process has ended{how} before it was ready")
    }

    /// Whether the next process takes what this process leaves last.
    pub(crate) const fn takes_heirlooms(&self) -> bool {
        self.talk >= TAKES_HEIRLOOMS
    }

    /// Lets the next process serve, with what this process leaves last.
    ///
    /// # Errors
    /// It has ended in the meantime.
    pub(crate) async fn serve(mut self, heirloom: Option<String>) -> anyhow::Result<Next> {
        // A port that was bound since the process started. It is sent to the process separately,
        // which listens on it before it serves.
        match tokio::task::spawn_blocking(|| handover::give_more(false)).await? {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "further sockets for the next process"),
            Err(error) => {
                tracing::warn!(%error, "a port may be missing in the next process: {error}")
            }
        }
        for piece in pieces(heirloom.as_deref().unwrap_or_default()) {
            let said = self.conversation.say(&Word::Heirloom(piece.to_owned())).await;
            said.context("the new process has ended")?;
        }
        self.conversation.say(&Word::Serve).await.context("the new process has ended")?;
        handover::hand_over();
        // The process is no longer on trial. The runtime reaps it at its end.
        drop(self.child.0.take());
        let (conversation, talk, since) = (self.conversation.into(), self.talk, Instant::now());
        Ok(Next { conversation, talk, since })
    }
}

/// The pieces of an heirloom. One that is too long has none.
fn pieces(heirloom: &str) -> impl Iterator<Item = &str> {
    let mut rest = if heirloom.len() > HEIRLOOM_MAX { "" } else { heirloom };
    iter::from_fn(move || {
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Sends everything, and waits for the answer. `None`: the process closed its end.
async fn converse(ours: UnixStream, left: Left, limit: Duration) -> anyhow::Result<Option<Ready>> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let (pid, held, carriers) = (process::id(), held(), net::udp::layout());
    let (talk, own) = (TALK, guarded::own_processes());
    let inheritance = line(&Inheritance { pid, version, left, own, held, carriers, talk })?;
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
        Some(Word::Ready { pid, version, talk }) => Ok(Some((conversation, (pid, version, talk)))),
        Some(Word::Failed(why)) => bail!("{why}"),
        Some(other) => bail!("the new process says {other:?}"),
        None => Ok(None),
    }
}

impl Next {
    /// Calls `takes_over` when the next process takes over, advances `life` when the next process
    /// requests it, and reports to it what this process waits for. Completes when the next process
    /// has ended.
    pub(crate) async fn listen(
        &self,
        life: &Life,
        mut takes_over: impl FnMut(),
        (chain, mut reports): (&Formers, watch::Receiver<Vec<Listed>>),
    ) -> Fate {
        let mut conversation = self.conversation.lock().await;
        let (mut fate, mut talks) = (Fate::Died, self.talk > 0);
        loop {
            let word = tokio::select! {
                word = conversation.hear() => word,
                changed = reports.changed(), if talks => {
                    let report = reports.borrow_and_update().clone();
                    talks = changed.is_ok()
                        && conversation.say(&Word::Report(report)).await.is_ok();
                    continue;
                }
            };
            match word {
                Ok(Some(Word::TakesOver)) => takes_over(),
                Ok(Some(Word::Stop)) => {
                    fate = Fate::Over;
                    life.drain();
                }
                Ok(Some(Word::End)) => {
                    fate = Fate::Over;
                    life.end();
                }
                Ok(Some(Word::Leave { pid, now })) if pid == process::id() => {
                    if now {
                        life.end();
                    } else {
                        life.drain();
                    }
                }
                Ok(Some(Word::Leave { pid, now })) => chain.order(Word::Leave { pid, now }).await,
                Ok(Some(Word::Give)) => {
                    chain.gather().await;
                    let give = || handover::give_more(true);
                    if let Ok(Err(error)) = tokio::task::spawn_blocking(give).await {
                        tracing::warn!(%error, "the next process does not take the sockets: {error}");
                    }
                }
                Ok(Some(Word::GoneOn)) => fate = Fate::Over,
                Ok(Some(
                    Word::Ready { .. }
                    | Word::Failed(_)
                    | Word::Heirloom(_)
                    | Word::Serve
                    | Word::Report(_),
                )) => {}
                // A message of a later version.
                Err(_) if self.talk > 0 => {}
                Ok(None) | Err(_) => return fate,
            }
        }
    }
}
