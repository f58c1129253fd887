//! A process that was upgraded and stays as the parent of the next one: whatever started it may
//! watch it. Until its last stream ends it is a former process as any other.

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

use super::messages::Messages;
use super::{VARIABLE, execute};

/// The processes to which signals go in the place of this one, the main one as the last.
static MAIN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Sends a signal to the process that serves in the place of this one. False: there is none.
pub(crate) fn forward(signal: Signal) -> bool {
    let main = main();
    main.last().is_some_and(|pid| kill_process(*pid, signal).is_ok())
}

fn main() -> MutexGuard<'static, Vec<Pid>> {
    MAIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process as the parent of the next ones.
#[derive(Clone, Debug)]
pub(crate) struct Guardian(Arc<Messages>);

impl Guardian {
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The system gives no socket, or takes no parent of orphans.
    pub(crate) fn new() -> anyhow::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let guardian = Self(Arc::new(Messages::bind()?));
        let messages = Arc::clone(&guardian.0);
        tokio::spawn(async move {
            loop {
                follow(messages.main_process(|pid| main().contains(&pid)).await);
            }
        });
        Ok(guardian)
    }

    /// Makes a command start a process that has this one as its parent.
    pub(crate) fn raise(&self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        command.env("NOTIFY_SOCKET", self.0.address());
        command.env(VARIABLE, getpid().as_raw_nonzero().to_string());
        // Ctrl-C of a terminal reaches this process alone, which passes it on.
        command.process_group(0);
    }

    /// A process that this one has started serves.
    pub(crate) fn follows(&self, pid: u32) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            follow(pid);
        }
    }

    /// Goes on as the small parent, with the same process id. Returns only when the system does not
    /// execute the program.
    pub(crate) fn stay(&self) {
        let children: Vec<Pid> = main().iter().rev().copied().collect();
        let error = match self.0.duplicate() {
            Ok(messages) => execute(messages, &children),
            Err(error) => error,
        };
        tracing::error!(%error, "this process does not stay as the parent of the next one: {error}");
    }
}

fn follow(pid: Pid) {
    let mut main = main();
    main.retain(|one| *one != pid);
    main.push(pid);
}
