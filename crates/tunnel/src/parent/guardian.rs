//! A process that was upgraded and stays as the parent of its successor, because the program that
//! started it may watch it. Until its last stream ends it is a former process like any other.

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

use super::messages::Messages;
use super::{VARIABLE, execute};

/// The processes to which signals are forwarded, the main process last.
static MAIN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Sends a signal to the process that serves instead of this one. False: there is no such process.
pub(crate) fn forward(signal: Signal) -> bool {
    let main = main();
    main.last().is_some_and(|pid| kill_process(*pid, signal).is_ok())
}

fn main() -> MutexGuard<'static, Vec<Pid>> {
    MAIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process as the parent of its successors.
#[derive(Clone, Debug)]
pub(crate) struct Guardian(Arc<Messages>);

impl Guardian {
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The system provides no socket, or does not support adopting orphans.
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

    /// Makes a command start a process with this process as its parent.
    pub(crate) fn raise(&self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        command.env("NOTIFY_SOCKET", self.0.address());
        command.env(VARIABLE, getpid().as_raw_nonzero().to_string());
        // Ctrl-C of a terminal reaches only this process, which forwards it.
        command.process_group(0);
    }

    /// A process that this process has started now serves.
    pub(crate) fn follows(&self, pid: u32) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            follow(pid);
        }
    }

    /// Continues as the parent process, with the same process id. Returns only if the system cannot
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
