//! A process of `tunnel run`, held by a descriptor (pidfd_open(2)), so that no signal reaches
//! another process that has reused its id.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use net::guarded::Guard;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::process::{pidfd_open, pidfd_send_signal, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Code(i32),
    Signal(i32),
    /// The system does not report it.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    descriptor: AsyncFd<OwnedFd>,
    /// A daemon of `tunnel run` has no reason to send requests to `tunnel run`; one of its visitors
    /// may.
    _guard: Guard,
}

impl Process {
    /// Starts a program in a separate process group: a Ctrl-C of the terminal reaches only `tunnel
    /// run`, which forwards it.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn()?;
        let pid = Pid::from_child(&child);
        // The descriptor waits for the process from now on.
        let _guard = Guard::process(child.id());
        Ok(Self { pid, descriptor: descriptor(pid)?, _guard })
    }

    pub(super) fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal. A process that has ended receives none.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(self.descriptor.get_ref(), signal) {
            tracing::debug!(pid = self.number(), %error, "no signal");
        }
    }

    /// Completes when the process has ended. Cancel-safe.
    pub(super) async fn ended(&self) -> End {
        loop {
            let Ok(mut ready) = self.descriptor.readable().await else { return End::Unknown };
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match waitid(WaitId::PidFd(self.descriptor.get_ref().as_fd()), options) {
                Ok(Some(status)) => {
                    let code = status.exit_status().map(End::Code);
                    return code
                        .or_else(|| status.terminating_signal().map(End::Signal))
                        .unwrap_or(End::Unknown);
                }
                Ok(None) | Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return End::Unknown,
            }
        }
    }
}

/// The descriptor of a process, which is readable when the process has ended.
#[expect(deprecated, reason = "its successor is unsafe, for sources that change their descriptor")]
pub(crate) fn descriptor(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd_open(pid, PidfdFlags::NONBLOCK)?, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    #[tokio::test]
    async fn the_end_of_a_process_has_its_code_or_its_signal() {
        assert_eq!(shell("exit 2").ended().await, End::Code(2));
        let waits = shell("exec sleep 60");
        waits.signal(Signal::TERM);
        assert_eq!(waits.ended().await, End::Signal(15));
    }
}
