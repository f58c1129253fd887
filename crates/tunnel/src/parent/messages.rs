//! The messages of a daemon to its parent process, by the protocol of systemd (sd_notify(3)): which
//! of its processes is the main process.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::time::Duration;

use anyhow::Context;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::sleep;

use crate::notify;

/// The longest message, in bytes. The status is one line.
const LONGEST: usize = 4 << 10;

/// The pause after an error of the socket.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket, with an abstract name: a container may have no folder to write to.
#[derive(Debug)]
pub(super) struct Messages {
    socket: UnixDatagram,
    address: OsString,
    /// The destination of the other fields of each message.
    outer: Option<OsString>,
}

impl Messages {
    /// Makes the socket with a random name. Must be called inside a Tokio runtime.
    pub(super) fn bind() -> anyhow::Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).context("random bytes")?;
        let name = format!("tunnel-parent-{:032x}", u128::from_be_bytes(random));
        let address = SocketAddr::from_abstract_name(&name)?;
        let socket = StdDatagram::bind_addr(&address).context("the socket of the small parent")?;
        let messages = Self::of(socket)?;
        Ok(Self { address: OsString::from_vec([b"@", name.as_bytes()].concat()), ..messages })
    }

    /// Continues with an existing socket. Must be called inside a Tokio runtime.
    pub(super) fn of(socket: StdDatagram) -> io::Result<Self> {
        // The kernel reports the sender.
        set_socket_passcred(&socket, true)?;
        socket.set_nonblocking(true)?;
        let (address, outer) = Default::default();
        Ok(Self { socket: UnixDatagram::from_std(socket)?, address, outer })
    }

    /// Forwards the messages to another socket, except the lines about processes and descriptors,
    /// which have no meaning outside.
    pub(super) fn relaying_to(self, outer: Option<OsString>) -> Self {
        Self { outer, ..self }
    }

    /// The value of `NOTIFY_SOCKET` for the daemon.
    pub(super) const fn address(&self) -> &OsString {
        &self.address
    }

    /// A duplicate of the socket.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        use std::os::fd::AsFd as _;
        self.socket.as_fd().try_clone_to_owned()
    }

    /// The next process that a known process of the daemon reports as the main process.
    /// Cancel-safe.
    pub(super) async fn main_process(&self, is_known: impl Fn(Pid) -> bool) -> Pid {
        loop {
            let taken = self.socket.async_io(Interest::READABLE, || self.take()).await;
            match taken {
                Ok((text, sender)) if sender.is_some_and(&is_known) => {
                    self.relay(&text);
                    if let Some(pid) = main_pid(&text) {
                        return pid;
                    }
                }
                // Any program in this network namespace may send.
                Ok(_) => {}
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    fn take(&self) -> io::Result<(String, Option<Pid>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; LONGEST];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let sender = ancillary.drain().find_map(|item| {
            let RecvAncillaryMessage::ScmCredentials(of) = item else { return None };
            Some(of.pid)
        });
        let text = bytes.get(..got.bytes).unwrap_or_default();
        Ok((String::from_utf8_lossy(text).into_owned(), sender))
    }

    fn relay(&self, text: &str) {
        let Some(outer) = &self.outer else { return };
        let is_ours = |line: &&str| !line.starts_with("MAINPID=") && !line.starts_with("FD");
        let lines: String = text.lines().filter(is_ours).flat_map(|line| [line, "\n"]).collect();
        if !lines.is_empty() {
            notify::pass_on(outer, &lines);
        }
    }
}

fn main_pid(text: &str) -> Option<Pid> {
    let pid = text.lines().find_map(|line| line.strip_prefix("MAINPID="));
    pid.and_then(|pid| pid.trim().parse().ok()).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[tokio::test]
    async fn a_known_process_names_the_main_one_and_no_other_process_does() {
        let messages = Messages::bind().unwrap();
        let outer = Messages::bind().unwrap();
        let messages = messages.relaying_to(Some(outer.address().clone()));
        let say = |text: &str| notify::pass_on(messages.address(), text);
        say("READY=1\nSTATUS=up\n");
        say("STATUS=gone on\nMAINPID=4711\nFDSTORE=1\n");
        let main = messages.main_process(|pid| pid == getpid()).await;
        assert_eq!(main, Pid::from_raw(4711).unwrap());
        assert_eq!(outer.take().unwrap().0, "READY=1\nSTATUS=up\n");
        assert_eq!(outer.take().unwrap().0, "STATUS=gone on\n");
        say("MAINPID=1\n");
        let waits = messages.main_process(|pid| pid != getpid());
        let waits = tokio::time::timeout(Duration::from_millis(50), waits).await;
        assert!(waits.is_err(), "the sender is no process of the daemon");
        assert!(outer.take().is_err());
    }
}
