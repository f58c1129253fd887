//! Records the live connections of a transport over UDP in `state_dir`. After a `kill -9`, the next
//! process can then tell each client at once that its connection is gone. Without the record a
//! client would learn this from its next packet, which an idle client sends within a keep-alive
//! interval.
//!
//! Workers only put a note into a bounded queue, and a thread writes the file. A note is lost when
//! the queue or the disk is full; its client then takes longer to return.

mod file;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use file::PeerFile;

/// The number of notes that can wait for the thread: as many as clients return within a second of a
/// restart.
const QUEUE: usize = 8192;

/// The id by which a client addresses its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub [u8; 8]);

impl fmt::Display for PeerId {
    /// Hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A recorded connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPeer {
    /// The id of the connection.
    pub id: PeerId,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The port at which the client reached us.
    pub port: u16,
}

enum Note {
    Here(RecordedPeer),
    Gone(PeerId),
}

impl RecordedPeer {
    /// The address of the client in the form that a socket with the address family of `here` needs.
    /// `None`: the client did not arrive at this port, or a socket of this address family cannot
    /// reach it.
    #[must_use]
    pub fn reachable(&self, here: SocketAddr) -> Option<SocketAddr> {
        if self.port != here.port() {
            return None;
        }
        match (self.peer, here) {
            (SocketAddr::V4(v4), SocketAddr::V6(_)) => {
                Some(SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())))
            }
            (SocketAddr::V6(v6), SocketAddr::V4(_)) => {
                Some(SocketAddr::from((IpAddr::from(v6.ip().to_ipv4_mapped()?), v6.port())))
            }
            (SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_)) => {
                Some(self.peer)
            }
        }
    }
}

/// The record of one server process. Clones share it.
#[derive(Clone, Debug)]
pub struct Peers {
    notes: SyncSender<Note>,
}

impl Peers {
    /// Takes the record `name.peers` that the previous process left in `folder`, and starts a new
    /// record. The folder must exist, and two instances must not share it.
    ///
    /// # Errors
    /// The file cannot be read or written, or the system cannot start a thread.
    pub fn take_all(folder: &Path, name: &str) -> io::Result<(Self, Vec<RecordedPeer>)> {
        let (file, left) = PeerFile::take_all(folder, name)?;
        let (notes, waiting) = sync_channel(QUEUE);
        // The thread ends when the last `Peers` is dropped.
        thread::Builder::new()
            .name(format!("{name}-peers"))
            .spawn(move || write(file, &waiting))?;
        Ok((Self { notes }, left))
    }

    /// Takes the record `name.peers`, and starts no new record. A missing record is empty.
    ///
    /// # Errors
    /// The file cannot be read or removed.
    pub fn take_left(folder: &Path, name: &str) -> io::Result<Vec<RecordedPeer>> {
        file::take_left(folder, name)
    }

    /// Records a new connection.
    pub fn connected(&self, known: RecordedPeer) {
        self.note(Note::Here(known));
    }

    /// Records the new address of a client.
    pub fn moved(&self, known: RecordedPeer) {
        self.note(Note::Here(known));
    }

    /// Records the end of a connection.
    pub fn gone(&self, id: PeerId) {
        self.note(Note::Gone(id));
    }

    fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            tracing::debug!("a connection over UDP is not written down: too many at once");
        }
    }
}

/// A connection that is recorded once its client is authenticated, and removed from the record on
/// drop.
#[derive(Debug)]
pub struct Noted {
    peers: Peers,
    known: RecordedPeer,
    authenticated: bool,
}

impl Noted {
    /// A connection that is not recorded yet.
    #[must_use]
    pub const fn new(peers: Peers, known: RecordedPeer) -> Self {
        Self { peers, known, authenticated: false }
    }

    /// Records the connection: its client has logged in.
    pub fn authenticated(&mut self) {
        self.authenticated = true;
        self.peers.connected(self.known);
    }

    /// Updates the current address of the client.
    pub fn at(&mut self, peer: SocketAddr) {
        if self.authenticated && self.known.peer != peer {
            self.known.peer = peer;
            self.peers.moved(self.known);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if self.authenticated {
            self.peers.gone(self.known.id);
        }
    }
}

fn write(mut file: PeerFile, waiting: &Receiver<Note>) {
    while let Ok(first) = waiting.recv() {
        // All queued notes are written at once.
        for note in [first].into_iter().chain(waiting.try_iter().take(QUEUE)) {
            match note {
                Note::Here(known) => file.here(known),
                Note::Gone(id) => file.gone(&id),
            }
        }
        if let Err(error) = file.write() {
            tracing::warn!(
                %error,
                "connections over UDP cannot be written down: {error}; after a crash their clients will take longer \
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
    fn an_address_is_said_as_the_socket_needs_it() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let of = |peer: &str| RecordedPeer { id: PeerId([1; 8]), peer: at(peer), port: 1 };
        let (v4, v6) = (at("0.0.0.0:1"), at("[::]:1"));
        assert_eq!(of("10.0.0.1:5").reachable(v6), Some(at("[::ffff:10.0.0.1]:5")));
        assert_eq!(of("[::ffff:10.0.0.1]:5").reachable(v4), Some(at("10.0.0.1:5")));
        assert_eq!(of("[2001:db8::1]:5").reachable(v4), None);
        assert_eq!(of("10.0.0.1:5").reachable(v4), Some(at("10.0.0.1:5")));
        assert_eq!(of("10.0.0.1:5").reachable(at("0.0.0.0:2")), None, "another port");
    }

    #[test]
    fn the_next_process_takes_what_this_one_left() {
        let folder = tempfile::tempdir().unwrap();
        let (peers, left) = Peers::take_all(folder.path(), "quic").unwrap();
        assert_eq!(left, []);
        let known = |n: u8| RecordedPeer {
            id: PeerId([n; 8]),
            peer: SocketAddr::from(([10, 0, 0, n], 5)),
            port: 7000,
        };
        peers.connected(known(1));
        peers.connected(known(2));
        peers.moved(RecordedPeer { id: known(2).id, ..known(3) });
        peers.gone(known(1).id);
        // No caller waits for the thread, so the test watches the file.
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(folder.path().join("quic.peers")).unwrap();
            if text.lines().count() >= 4 {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{text}");
            thread::yield_now();
        }
        let (_next, left) = Peers::take_all(folder.path(), "quic").unwrap();
        assert_eq!(left, [RecordedPeer { id: known(2).id, ..known(3) }]);
        let (_next, left) = Peers::take_all(folder.path(), "quic").unwrap();
        assert_eq!(left, [], "taken is taken");
    }
}
