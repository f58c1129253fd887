//! The messages of a daemon about its state by the protocol of systemd (sd_notify(3)), on a
//! separate socket.

use std::io;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ops::state::{create_private, if_there};
use rustix::fs::{Mode, chmod, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::net::UnixDatagram;
use tokio::time::sleep;

use crate::notify;

/// The longest message, in bytes. The status is one line.
const LONGEST: usize = 4 << 10;

/// The pause after an error of the socket.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket. Its file is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Messages {
    socket: UnixDatagram,
    path: PathBuf,
}

/// A message of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) ready: bool,
    pub(super) stopping: bool,
    /// Whether the daemon has checked itself.
    pub(super) alive: bool,
    pub(super) status: Option<String>,
    /// The path of the control socket.
    pub(super) control: Option<PathBuf>,
}

impl Message {
    fn of(bytes: &[u8]) -> Self {
        let mut message = Self::default();
        for line in String::from_utf8_lossy(bytes).lines() {
            match line.split_once('=') {
                Some(("READY", "1")) => message.ready = true,
                Some(("STOPPING", "1")) => message.stopping = true,
                Some(("WATCHDOG", "1")) => message.alive = true,
                Some(("STATUS", text)) => message.status = Some(text.to_owned()),
                Some((notify::CONTROL, path)) => message.control = Some(path.into()),
                _ => {}
            }
        }
        message
    }
}

impl Messages {
    /// Binds the socket in a folder that only this user can enter. The folder may exist, but may be
    /// accessible to others.
    pub(super) fn bind(path: PathBuf) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            create_private(folder)?;
        }
        if_there(std::fs::remove_file(&path))?;
        Ok(Self { socket: UnixDatagram::from_std(bind_private(&path)?)?, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next message. Cancel-safe.
    pub(super) async fn next(&self) -> Message {
        let mut bytes = [0; LONGEST];
        loop {
            match self.socket.recv(&mut bytes).await {
                Ok(length) => return Message::of(&bytes[..length]),
                Err(error) => {
                    tracing::debug!(path = %self.path.display(), %error, "no message");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Binds a socket to which only this user can send. A message names the control socket of a daemon,
/// and says whether the daemon lives. Linux gives the file the mode of the socket, so the mode
/// never depends on the umask; elsewhere it does until the second step.
fn bind_private(path: &Path) -> io::Result<StdDatagram> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    fchmod(&socket, mode)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    chmod(path, mode)?;
    Ok(socket.into())
}

/// The end of the names of these sockets.
pub(super) const SUFFIX: &str = ".notify";

/// Removes the sockets of a `tunnel run` that was killed.
pub(super) fn sweep(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_dead = || {
            let asks = StdDatagram::unbound().and_then(|asks| asks.connect(&path));
            asks.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if name.starts_with("run-") && name.ends_with(SUFFIX) && is_dead() {
            drop(std::fs::remove_file(&path));
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The umask of a test lets others in at least, as the umask 000 does.
    #[tokio::test]
    async fn nobody_else_can_send_messages_whatever_the_umask_is() {
        let dir = tempfile::tempdir().unwrap();
        let messages = Messages::bind(dir.path().join("run-1-0.notify")).unwrap();
        let mode = std::fs::metadata(messages.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let daemon = StdDatagram::unbound().unwrap();
        daemon.send_to(b"READY=1", messages.path()).unwrap();
        assert!(messages.next().await.ready);
    }

    #[tokio::test]
    async fn the_sockets_of_a_killed_supervisor_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let live = Messages::bind(at("run-1-0.notify")).unwrap();
        drop(StdDatagram::bind(at("run-2-0.notify")).unwrap());
        drop(StdDatagram::bind(at("other.notify")).unwrap());
        sweep(dir.path());
        assert!(live.path().exists() && at("other.notify").exists());
        assert!(!at("run-2-0.notify").exists());
        drop(live);
        assert!(!at("run-1-0.notify").exists());
    }

    #[test]
    fn a_message_is_read_and_what_is_unknown_is_left_out() {
        let ready = Message::of(b"READY=1\nSTATUS=client home\nX_OTHER=1\n");
        let status = Some("client home".to_owned());
        assert_eq!(ready, Message { ready: true, status, ..Message::default() });
        let control = Message::of(b"X_TUNNEL_CONTROL=/run/tunnel/a=b.sock").control;
        assert_eq!(control, Some("/run/tunnel/a=b.sock".into()));
        assert_eq!(Message::of(b"MAINPID=1\nREADY=0\n\xff"), Message::default());
        assert!(Message::of(b"STOPPING=1\nWATCHDOG=1").alive);
    }
}
