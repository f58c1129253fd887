//! The socket of journald. A journal that hangs must not block the workers, and a missing journal
//! must not lose the last messages. So only the first entry that the journal does not accept waits,
//! for at most [`PATIENCE`]. This entry and the following entries go to standard error, or are
//! dropped if standard error is the journal as well. The following entries do not wait. Normal
//! operation resumes when the journal accepts an entry.

use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ops::term;
use tracing::Level;

use super::native::datagram;
use super::{is_stderr, priority};

/// The longest wait for a journal whose queue is full. Journald empties its queue within
/// milliseconds. The limit is short because the wait blocks a worker and all its streams.
const PATIENCE: Duration = Duration::from_millis(100);

/// The socket is not connected, because a restarted journald binds a new socket at the same path.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    /// Whether the journal refused the last entry.
    is_away: AtomicBool,
    /// Number of entries that were dropped since then.
    lost: AtomicU64,
}

impl Journal {
    /// # Errors
    /// No process listens at `path`.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        // This probe is an entry without fields, which journald skips.
        socket.send_to(&[], path)?;
        let (is_away, lost) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { socket, path: path.to_owned(), is_away, lost })
    }

    /// Sends an entry. `text` is the message of the entry, for standard error.
    pub(super) fn send(&self, entry: &[u8], text: &str) {
        match self.socket.send_to(entry, &self.path) {
            Ok(_) => self.tell_lost(),
            Err(error) => self.failed(&error, text),
        }
    }

    fn tell_lost(&self) {
        if !self.is_away.swap(false, Relaxed) {
            return;
        }
        // `set_nonblocking` cannot fail on this open socket.
        let _ = self.socket.set_nonblocking(false);
        let lost = self.lost.swap(0, Relaxed);
        if lost > 0 {
            let text = format!("{lost} lines before this one are lost: the journal took none");
            let entry = datagram(priority(Level::WARN), module_path!(), &text);
            drop(self.socket.send_to(&entry, &self.path));
        }
    }

    fn failed(&self, error: &io::Error, text: &str) {
        let was_away = self.is_away.swap(true, Relaxed);
        if !was_away {
            // The following entries do not wait.
            let _ = self.socket.set_nonblocking(true);
        }
        // If standard error leads to the same journal, the stream fills up as well, and a write
        // would block forever.
        if is_stderr() {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        if !was_away {
            let path = self.path.display();
            term::err(format_args!("tunnel: the journal {path} takes no lines: {error}"));
        }
        if writeln!(io::stderr(), "{text}").is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;

    fn text(journal: &UnixDatagram) -> String {
        let mut entry = [0; 1024];
        let size = journal.recv(&mut entry).unwrap();
        String::from_utf8(entry[..size].to_vec()).unwrap()
    }

    #[test]
    fn a_journal_that_is_not_there_is_an_error_and_one_that_went_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let error = Journal::connect(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let first = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::connect(&path).unwrap();
        assert_eq!(text(&first), "");
        journal.send(b"MESSAGE=1\n", "1");
        assert_eq!(text(&first), "MESSAGE=1\n");
        drop(first);
        journal.send(b"MESSAGE=2\n", "2, on standard error");
        assert!(journal.is_away.load(Relaxed));
        fs::remove_file(&path).unwrap();
        let second = UnixDatagram::bind(&path).unwrap();
        journal.send(b"MESSAGE=3\n", "3");
        assert_eq!(text(&second), "MESSAGE=3\n");
        assert!(!journal.is_away.load(Relaxed));
    }

    #[test]
    fn a_journal_that_hangs_holds_nobody_up_and_what_is_lost_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let hangs = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::connect(&path).unwrap();
        while !journal.is_away.load(Relaxed) {
            journal.send(b"MESSAGE=x\n", "one that waited");
        }
        let start = Instant::now();
        for _ in 0..20 {
            journal.send(b"MESSAGE=x\n", "one that did not");
        }
        assert!(start.elapsed() < PATIENCE * 10, "{:?}", start.elapsed());
        journal.lost.store(5, Relaxed);
        hangs.set_nonblocking(true).unwrap();
        while hangs.recv(&mut [0; 64]).is_ok() {}
        hangs.set_nonblocking(false).unwrap();
        journal.send(b"MESSAGE=taken\n", "");
        assert_eq!(text(&hangs), "MESSAGE=taken\n");
        let sent = text(&hangs);
        assert!(sent.contains("PRIORITY=4\n") && sent.contains("MESSAGE=5 lines"), "{sent}");
    }
}
