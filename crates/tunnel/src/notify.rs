//! Messages to systemd (`Type=notify`): ready, reloading, stopping, alive. Without systemd the
//! functions do nothing.

use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use net::inherited::Stored;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sd_notify::NotifyState;

/// The environment variable with the socket of systemd: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Longest wait for room in the queue of the socket, which systemd empties at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reports that the daemon serves.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports the main process of the unit from now on. Only the main process may send the next
/// messages (`NotifyAccess=main`).
pub(crate) fn main_process(pid: u32) {
    send(&[NotifyState::MainPid(pid)]);
}

/// Reports the path of the control socket, for `tunnel run`. systemd ignores the field.
pub(crate) fn control(path: &Path) {
    send(&[NotifyState::Custom(&format!("{CONTROL}={}", path.display()))]);
}

/// The field with the path of the control socket. Names of fields that systemd does not define
/// begin with `X_` (sd_notify(3)).
pub(crate) const CONTROL: &str = "X_TUNNEL_CONTROL";

/// Forwards a message of another process to a socket.
pub(crate) fn pass_on(to: &OsStr, text: &str) {
    if let Err(error) = connected(to).and_then(|socket| deliver(&socket, text, &[])) {
        tracing::warn!(%error, "{SOCKET}: a message was not passed on: {error}");
    }
}

/// Whether a service manager listens, according to the environment.
pub(crate) fn has_manager() -> bool {
    env::var_os(SOCKET).is_some_and(|to| !to.is_empty())
}

/// Passes the sockets of an address to systemd, which passes them to the process that it starts
/// after a crash of this process.
pub(crate) fn store(group: &Stored) {
    let name = format!("FDNAME={}", group.name);
    send_with(&[NotifyState::Custom("FDSTORE=1"), NotifyState::Custom(&name)], &group.sockets);
}

/// Removes the sockets with this name from systemd.
pub(crate) fn forget(name: &str) {
    let name = format!("FDNAME={name}");
    send(&[NotifyState::Custom("FDSTOREREMOVE=1"), NotifyState::Custom(&name)]);
}

/// Reports that the daemon reloads its configuration. A following [`ready`] reports the end.
pub(crate) fn reloading() {
    // `Type=notify-reload` needs the current time as well (sd_notify(3)).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// Reports that the daemon drains, and asks systemd to wait at least `limit` from now on. The
/// message holds at most 71 minutes (32 bits of microseconds).
pub(crate) fn stopping(limit: Duration) {
    let micros = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
    send(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("draining"),
    ]);
}

/// Feeds the watchdog, if systemd has one for this unit, while `alive` returns true. Never returns.
/// It is fed three times per watchdog period, so that one late answer does not end the daemon.
pub(crate) async fn feed_watchdog(alive: impl AsyncFn(Duration) -> bool) -> Infallible {
    let period = sd_notify::watchdog_enabled().filter(|period| !period.is_zero());
    let Some(period) = period else { return std::future::pending().await };
    feed(period / 3, alive, || send(&[NotifyState::Watchdog])).await
}

async fn feed(
    every: Duration,
    alive: impl AsyncFn(Duration) -> bool,
    feed: impl Fn(),
) -> Infallible {
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        if alive(every).await {
            feed();
        } else {
            tracing::error!("a worker does not answer; the watchdog is not fed");
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    send_with(states, &[]);
}

fn send_with(states: &[NotifyState<'_>], descriptors: &[OwnedFd]) {
    let Some(to) = env::var_os(SOCKET).filter(|to| !to.is_empty()) else { return };
    let mut text = String::new();
    for state in states {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{state}");
    }
    let sent = connected(&to).and_then(|socket| deliver(&socket, &text, descriptors));
    if let Err(error) = sent {
        tracing::warn!(%error, "{SOCKET}: systemd was not told {text:?}: {error}");
    }
}

fn deliver(socket: &UnixDatagram, text: &str, descriptors: &[OwnedFd]) -> io::Result<()> {
    if descriptors.is_empty() {
        socket.send(text.as_bytes())?;
        return Ok(());
    }
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let rights = SendAncillaryMessage::ScmRights(&descriptors);
    let mut space = vec![MaybeUninit::uninit(); rights.size()];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(rights) {
        return Err(io::Error::other("too many descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A socket that sends to this address. The crate `sd_notify` treats an abstract name as a path.
fn connected(to: &OsStr) -> io::Result<UnixDatagram> {
    let to = match to.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        Some((b'/', _)) => SocketAddr::from_pathname(to)?,
        _ => return Err(io::Error::other("neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.connect_addr(&to)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_only_while_alive() {
        let (alive, fed) = (Cell::new(true), Cell::new(0));
        let second = Duration::from_secs(1);
        let feeding = feed(second, async |_| alive.get(), || fed.set(fed.get() + 1));
        let observing = async {
            tokio::time::sleep(second * 2 + second / 2).await;
            assert_eq!(fed.get(), 3);
            alive.set(false);
            tokio::time::sleep(second * 5).await;
            assert_eq!(fed.get(), 3);
        };
        tokio::select! { never = feeding => match never {}, () = observing => {} }
    }
}
