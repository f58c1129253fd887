//! The direct paths of a session with another client, for the status.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::link::Link;
use ops::status::{self, PathState, PeerPath, Told};
use tokio::time::Instant;
use transport::Transport;
use transport_quic::punched::{DIRECT, DirectPath};

/// Whether a carrier of this transport bypasses the server.
pub fn is_direct(transport: Transport) -> bool {
    #[cfg(feature = "webrtc")]
    if transport == transport_webrtc::WEBRTC {
        return true;
    }
    transport == DIRECT
}

/// The payload bytes over all links with other clients, by path: received and sent.
#[derive(Debug, Default)]
pub struct PathBytes {
    relayed: [AtomicU64; 2],
    direct: [AtomicU64; 2],
}

impl PathBytes {
    fn of(&self, path: PathState) -> &[AtomicU64; 2] {
        match path {
            PathState::Direct => &self.direct,
            PathState::Relayed | PathState::Unknown => &self.relayed,
        }
    }

    /// The byte counts, for the status. Empty before the first byte.
    pub fn all(&self) -> BTreeMap<String, status::PathBytes> {
        let shown = [("relayed", &self.relayed), ("direct", &self.direct)].map(|(name, counts)| {
            let [received, sent] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            (name.to_owned(), status::PathBytes { received, sent })
        });
        let is_used = shown.iter().any(|(_, bytes)| *bytes != status::PathBytes::default());
        if is_used { shown.into() } else { BTreeMap::new() }
    }
}

/// The notes by the serial number of the link.
#[derive(Debug, Default)]
pub struct PathNotes {
    notes: Mutex<BTreeMap<u64, Note>>,
    bytes: Arc<PathBytes>,
}

/// A direct path that was found.
#[derive(Debug)]
pub enum Found {
    Quic(DirectPath),
    /// Data channels with the peer at this address.
    Channels(SocketAddr),
}

/// The note of one link.
#[derive(Debug, Default)]
struct Note {
    /// The last direct path that was found; it may have ended.
    path: Option<Found>,
    /// Why the last attempt failed. `None`: no attempt has failed since a path was found.
    why: Option<String>,
    /// The path of the link at the last update, and since when.
    since: Option<(PathState, Instant)>,
    /// The bytes of the link, received and sent, at the last update.
    counted: [u64; 2],
}

impl PathNotes {
    /// Creates notes that add the bytes of the links to `bytes`.
    pub fn counting(bytes: &Arc<PathBytes>) -> Self {
        Self { notes: Mutex::default(), bytes: Arc::clone(bytes) }
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<u64, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an attempt of the link has found a path.
    pub fn found(&self, link: &Link, path: Found) {
        self.note(link, |note| (note.path, note.why) = (Some(path), None));
    }

    /// Records that an attempt of the link has failed.
    pub fn failed(&self, link: &Link, why: String) {
        self.note(link, |note| note.why = Some(why));
    }

    /// Writes the note of a live link. An attempt may end after its link, whose note would never be
    /// removed.
    fn note(&self, link: &Link, write: impl FnOnce(&mut Note)) {
        if !link.has_ended() {
            write(self.notes().entry(link.serial()).or_default());
        }
    }

    /// Records that the carrier of the link has this transport. Its bytes since the last update
    /// went over the previous path.
    pub fn moved(&self, link: &Link, transport: Transport) {
        let state = state(transport);
        let mut notes = self.notes();
        let note = notes.entry(link.serial()).or_default();
        self.count(note, link, state);
        if note.since.is_none_or(|(known, _)| known != state) {
            note.since = Some((state, Instant::now()));
        }
    }

    /// Counts the bytes of a link since the last update. `now` is its path if there was no update.
    fn count(&self, note: &mut Note, link: &Link, now: PathState) {
        let (received, sent, _) = link.totals();
        let path = note.since.map_or(now, |(path, _)| path);
        for (nth, total) in [received, sent].into_iter().enumerate() {
            let more = total.saturating_sub(note.counted[nth]);
            self.bytes.of(path)[nth].fetch_add(more, Ordering::Relaxed);
            note.counted[nth] = total;
        }
    }

    /// Removes the note of an ended link.
    pub fn ended(&self, link: &Link) {
        let mut notes = self.notes();
        let mut note = notes.remove(&link.serial()).unwrap_or_default();
        self.count(&mut note, link, PathState::Relayed);
    }

    /// The path of a link whose active carrier has this transport.
    pub fn of(&self, link: &Link, transport: Transport) -> PeerPath {
        self.moved(link, transport);
        let notes = self.notes();
        let note = notes.get(&link.serial());
        let state = state(transport);
        let path = note.and_then(|note| note.path.as_ref());
        let path = path.filter(|_| state == PathState::Direct);
        let (pair, round_trip) = match path {
            Some(Found::Quic(path)) => {
                let pair = path.pair();
                (pair.map(|pair| pair.to_string()), pair.and_then(|pair| pair.round_trip))
            }
            Some(Found::Channels(peer)) => (Some(format!("WebRTC with {peer}")), None),
            None => (None, None),
        };
        let why = note.and_then(|note| note.why.clone()).filter(|_| state == PathState::Relayed);
        let since = note.and_then(|note| note.since);
        PeerPath {
            state: match &why {
                Some(why) => Told::because(state, why),
                None => state.into(),
            },
            pair,
            rtt_micros: round_trip.and_then(|time| u64::try_from(time.as_micros()).ok()),
            since_seconds: since.map_or(0, |(_, since)| since.elapsed().as_secs()),
        }
    }
}

fn state(transport: Transport) -> PathState {
    if is_direct(transport) { PathState::Direct } else { PathState::Relayed }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use ::link::{Owner, Settings, State};
    use proto::control::ControlMessage;
    use proto::greeting::Features;
    use proto::{LinkConfig, Open, Side, Unlimited};
    use transport::{Inlet, Outlet};

    use super::*;

    /// The owner of a link whose peer does nothing.
    #[derive(Debug)]
    struct Nobody;

    impl Owner for Nobody {
        fn accept(&self, _: &Link, _: Open, _: Box<dyn Inlet>) -> Rc<dyn Outlet> {
            unreachable!("the link has no carrier")
        }

        fn message(&self, _: &Link, _: ControlMessage) {}

        fn changed(&self, _: &Link, _: State) {}
    }

    fn link_to_nobody() -> Link {
        let settings = Settings {
            side: Side::Client,
            config: LinkConfig::default(),
            budget: Rc::new(Unlimited),
            serial: 7,
            features: Features::OURS,
        };
        Link::new(settings, Rc::new(Nobody))
    }

    #[tokio::test(flavor = "local")]
    async fn a_trial_that_ends_after_its_link_leaves_no_note() {
        let (notes, link) = (PathNotes::default(), link_to_nobody());
        notes.failed(&link, "no answer".to_owned());
        assert_eq!(notes.notes().len(), 1);
        link.close();
        notes.ended(&link);
        notes.failed(&link, "no answer".to_owned());
        assert_eq!(notes.notes().len(), 0);
    }
}
