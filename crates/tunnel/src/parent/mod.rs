//! The parent process of a daemon: the process that others started and may watch, while the daemon
//! is its child and may be upgraded.
//!
//! ```text
//!   whatever started it: a container, supervisord, runit, a shell
//!     └─ parent process        forwards signals, reaps orphans, ends with the last process
//!          ├─ former process   ends after its last stream
//!          └─ next process     tells the parent by NOTIFY_SOCKET that it is main (MAINPID=)
//! ```
//!
//! When process 1 of a container ends, the kernel ends all others, and it adopts orphans: so
//! process 1 is a parent process from its start on ([`of_process_1`]). Any other process becomes a
//! parent at its first upgrade ([`Guardian`]), unless it was started by systemd, which is notified
//! of the new main process. After its last stream it executes its program again as the parent
//! process ([`of_environment`]), with the same process id, and so with little memory.

mod guardian;
mod messages;

use std::collections::HashMap;
use std::env;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal as Caught};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, waitpid,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cli;
use crate::runtime;
use crate::supervise::descriptor;
pub(crate) use guardian::{Guardian, forward};
use messages::Messages;

/// The environment variable with the process id of the parent process, for its descendants.
pub(crate) const VARIABLE: &str = "TUNNEL_PARENT";

/// The environment variable with the processes of a daemon, the main process first. It marks a
/// program as the parent process, with the socket of the messages as standard input.
const CHILDREN: &str = "TUNNEL_PARENT_OF";

/// Whether the parent of this daemon is such a parent process.
pub(crate) fn is_there() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// The signals that are forwarded to the main process, by number.
const FORWARDED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Becomes the parent process of a daemon if that is the role of this process. Returns the exit
/// code of the daemon in this case.
pub(crate) fn instead_of(command: &cli::Command) -> anyhow::Result<Option<ExitCode>> {
    use cli::Command::{Client, Proxy, Run, Server};
    if let Some(code) = of_environment()? {
        return Ok(Some(code));
    }
    let is_daemon = matches!(command, Server(_) | Client(_) | Proxy(_) | Run(_));
    if is_daemon { of_process_1() } else { Ok(None) }
}

/// Becomes the parent process of a daemon if this is process 1. Returns the exit code of the
/// daemon.
fn of_process_1() -> anyhow::Result<Option<ExitCode>> {
    if !getpid().is_init() || is_there() {
        return Ok(None);
    }
    let outcome = runtime::run(async {
        let messages = Messages::bind()?;
        // Ctrl-C of a terminal reaches the whole process group, and so the daemon as well.
        let has_terminal = io::stdin().is_terminal();
        let mut command = Command::new(env::current_exe().context("the path of this program")?);
        command.args(env::args_os().skip(1)).env("NOTIFY_SOCKET", messages.address());
        command.env(VARIABLE, getpid().as_raw_nonzero().to_string());
        if !has_terminal {
            command.process_group(0);
        }
        let signals = Signals::catch(has_terminal)?;
        let child = command.spawn().context("starting the daemon")?;
        let outer = env::var_os("NOTIFY_SOCKET").filter(|to| !to.is_empty());
        let parent = Parent::new(messages.relaying_to(outer), vec![Pid::from_child(&child)])?;
        parent.live(signals).await
    });
    outcome.map(Some)
}

/// Continues as the parent process if this process was executed for that. Returns the exit code of
/// the daemon.
fn of_environment() -> anyhow::Result<Option<ExitCode>> {
    let Some(children) = env::var_os(CHILDREN) else { return Ok(None) };
    let children = children.to_str().unwrap_or_default().split(',');
    let children: Vec<Pid> =
        children.filter_map(|text| text.parse().ok()).filter_map(Pid::from_raw).collect();
    let outcome = runtime::run(async {
        let signals = Signals::catch(false)?;
        // The signals that have arrived since `execute` are delivered now.
        blocked().thread_unblock()?;
        let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
        let messages = Messages::of(StdDatagram::from(socket))?;
        Parent::new(messages, children)?.live(signals).await
    });
    outcome.map(Some)
}

/// The signals that would end the parent process before it catches them.
fn blocked() -> SigSet {
    let numbers = FORWARDED.into_iter().map(Signal::as_raw);
    numbers.filter_map(|number| Caught::try_from(number).ok()).collect()
}

/// Executes this program again as the parent process of `children`. Returns only after an error.
fn execute(messages: OwnedFd, children: &[Pid]) -> io::Error {
    let children: Vec<String> =
        children.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
    let mut arguments = env::args_os();
    let mut command = Command::new("/proc/self/exe");
    // The process list shows the same arguments as before.
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    command.env(CHILDREN, children.join(",")).stdin(messages);
    // The new program inherits the signal mask of this thread. A blocked signal stays pending for
    // the program, which it would otherwise end.
    if let Err(error) = blocked().thread_block() {
        return error.into();
    }
    let error = command.exec();
    match blocked().thread_unblock() {
        Ok(()) => error,
        Err(errno) => errno.into(),
    }
}

/// The signals of the parent process.
struct Signals(mpsc::Receiver<Signal>);

impl Signals {
    fn catch(has_terminal: bool) -> io::Result<Self> {
        let (to, from) = mpsc::channel(16);
        for of in FORWARDED.into_iter().chain([Signal::CHILD]) {
            let mut caught = signal(SignalKind::from_raw(of.as_raw()))?;
            // The terminal has sent it to the daemon as well.
            let is_doubled = has_terminal && matches!(of, Signal::INT | Signal::QUIT);
            let to = to.clone();
            tokio::spawn(async move {
                while caught.recv().await.is_some() {
                    if !is_doubled && to.send(of).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self(from))
    }
}

struct Parent {
    messages: Messages,
    /// The processes of the daemon, the main process last.
    known: Vec<Pid>,
    /// Completes with each process that has ended.
    ends: JoinSet<Pid>,
    codes: HashMap<Pid, u8>,
}

impl Parent {
    /// `children`: the main process first.
    fn new(messages: Messages, children: Vec<Pid>) -> anyhow::Result<Self> {
        // Orphaned descendants are adopted by this process instead of process 1.
        set_child_subreaper(Some(getpid())).context("taking the orphans")?;
        let (known, ends, codes) = Default::default();
        let mut parent = Self { messages, known, ends, codes };
        children.into_iter().rev().for_each(|pid| parent.follow(pid));
        Ok(parent)
    }

    /// Makes a process the main process.
    fn follow(&mut self, pid: Pid) {
        if self.known.contains(&pid) {
            self.known.retain(|one| *one != pid);
        } else {
            // A process that has ended already has no descriptor.
            let descriptor = descriptor(pid);
            self.ends.spawn(async move {
                if let Ok(descriptor) = descriptor {
                    drop(descriptor.readable().await);
                }
                pid
            });
        }
        self.known.push(pid);
    }

    /// Lives until the last process of the daemon has ended.
    async fn live(mut self, mut signals: Signals) -> anyhow::Result<ExitCode> {
        let mut last = None;
        loop {
            tokio::select! {
                Some(signal) = signals.0.recv() => {
                    self.reap();
                    if signal != Signal::CHILD {
                        self.forward(signal);
                    }
                }
                pid = self.messages.main_process(|pid| self.known.contains(&pid)) => self.follow(pid),
                ended = self.ends.join_next() => match ended {
                    Some(Ok(pid)) => {
                        self.reap();
                        let is_main = self.known.last() == Some(&pid);
                        self.known.retain(|one| *one != pid);
                        // The main process may be the child of another process, which reports its
                        // exit code.
                        let code = self.codes.remove(&pid);
                        if is_main || last.is_none() {
                            last = code.or(last);
                        }
                    }
                    Some(Err(_)) => {}
                    None => break,
                },
            }
        }
        Ok(ExitCode::from(last.unwrap_or(0)))
    }

    fn forward(&self, signal: Signal) {
        for pid in self.known.iter().rev() {
            // After a process has ended, the next one is checked.
            if kill_process(*pid, signal).is_ok() {
                return;
            }
        }
    }

    /// Reaps all children that have ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = waitpid(None, WaitOptions::NOHANG) {
            if self.known.contains(&pid) {
                self.codes.insert(pid, code(status));
            }
        }
    }
}

/// The exit code in the form that a shell reports.
fn code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|by| 128 + by));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
