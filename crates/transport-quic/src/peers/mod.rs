//! Who is connected, written down in `state_dir`, so that the process after a `kill -9` can tell
//! each client at once that its connection is gone ([`crate::call_back`]). A client would else find
//! out by its next packet, which an idle one sends within a keep-alive time.
//!
//! Workers only put a note into a bounded queue; a thread writes. What the queue has no room for,
//! or the disk, is lost: that client takes longer to come back.

mod file;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use quinn::ConnectionId;

use file::PeerFile;

/// Notes that wait for the thread: as many clients as come back within a second of a restart.
const QUEUE: usize = 8192;

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The id that the client uses for us ([`crate::SteeringIds::last`]).
    pub id: ConnectionId,
    /// Where the client is.
    pub peer: SocketAddr,
    /// The port of ours that it came in at.
    pub port: u16,
}

enum Note {
    Here(Known),
    Gone(ConnectionId),
}

/// The list of one server process. Clones share it.
#[derive(Clone, Debug)]
pub struct Peers {
    notes: SyncSender<Note>,
}

impl Peers {
    /// Takes all that the process before this one left in `folder`, and begins a list of its own.
    /// The folder must exist and must not be shared by two instances.
    pub fn take_all(folder: &Path) -> io::Result<(Self, Vec<Known>)> {
        let (file, left) = PeerFile::take_all(folder)?;
        let (notes, waiting) = sync_channel(QUEUE);
        // It ends when the last `Peers` does.
        thread::Builder::new().name("quic-peers".into()).spawn(move || write(file, &waiting))?;
        Ok((Self { notes }, left))
    }

    /// A connection lives.
    pub fn connected(&self, known: Known) {
        self.note(Note::Here(known));
    }

    /// Its client has another address.
    pub fn moved(&self, known: Known) {
        self.note(Note::Here(known));
    }

    /// It has ended.
    pub fn gone(&self, id: ConnectionId) {
        self.note(Note::Gone(id));
    }

    fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            tracing::debug!("a QUIC connection is not written down: too many at once");
        }
    }
}

/// A connection that is written down once its client is welcome, and crossed out when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Noted {
    peers: Peers,
    known: Known,
    welcome: bool,
}

impl Noted {
    pub(crate) const fn new(peers: Peers, known: Known) -> Self {
        Self { peers, known, welcome: false }
    }

    /// The client has logged in.
    pub(crate) fn welcome(&mut self) {
        self.welcome = true;
        self.peers.connected(self.known);
    }

    /// Where the client is now.
    pub(crate) fn at(&mut self, peer: SocketAddr) {
        if self.welcome && self.known.peer != peer {
            self.known.peer = peer;
            self.peers.moved(self.known);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if self.welcome {
            self.peers.gone(self.known.id);
        }
    }
}

fn write(mut file: PeerFile, waiting: &Receiver<Note>) {
    while let Ok(first) = waiting.recv() {
        // All that wait are one write.
        for note in [first].into_iter().chain(waiting.try_iter().take(QUEUE)) {
            match note {
                Note::Here(known) => file.here(known),
                Note::Gone(id) => file.gone(&id),
            }
        }
        if let Err(error) = file.write() {
            tracing::warn!(
                %error,
                "QUIC connections cannot be written down; after a crash their clients will take longer \
                 to come back"
            );
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_next_process_takes_what_this_one_left() {
        let folder = tempfile::tempdir().unwrap();
        let (peers, left) = Peers::take_all(folder.path()).unwrap();
        assert_eq!(left, []);
        let known = |n: u8| Known {
            id: ConnectionId::new(&[n; 8]),
            peer: SocketAddr::from(([10, 0, 0, n], 5)),
            port: 7000,
        };
        peers.connected(known(1));
        peers.connected(known(2));
        peers.moved(Known { id: known(2).id, ..known(3) });
        peers.gone(known(1).id);
        // Nobody waits for the thread; here that is asked of the file.
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(folder.path().join("quic.peers")).unwrap();
            if text.lines().count() >= 4 {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{text}");
            thread::yield_now();
        }
        let (_next, left) = Peers::take_all(folder.path()).unwrap();
        assert_eq!(left, [Known { id: known(2).id, ..known(3) }]);
        let (_next, left) = Peers::take_all(folder.path()).unwrap();
        assert_eq!(left, [], "taken is taken");
    }
}
