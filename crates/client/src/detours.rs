//! The detours of a client that are in use. A carrier of a detour must not carry itself: the link
//! to `nyc` could move to a path through `fra` while it carries the link to `fra`, and no frame
//! would leave this machine. So a server that is reached by a detour carries no detour, and a
//! server that carries a detour is reached by none. The rule also bounds the length of a path to
//! one other server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relay::LaneBreaker;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The time for which a link to another server may be silent or without a carrier before the
/// detours inside it end. A link counts as silent after 1 s and leaves a silent path after 3 s. If
/// another path answers at once, the link keeps its detours.
pub(super) const SILENCE: Duration = Duration::from_millis(2500);

/// The time in which the carrier of a detour ends after its lane was broken.
const ENDS: Duration = Duration::from_millis(500);

/// The detours of a client, each from the begin of its dial to the end of its carrier.
#[derive(Debug, Default)]
pub(super) struct Detours {
    uses: Mutex<Uses>,
    /// Notified when a detour ends.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Uses {
    /// The id of the next detour.
    next: u64,
    all: Vec<DetourInUse>,
    /// The links that are silent or have no carrier, by their serial numbers, and since when.
    silent: HashMap<u64, Instant>,
}

#[derive(Debug)]
struct DetourInUse {
    id: u64,
    pair: ServerPair,
    /// `None`: the stream is not open yet.
    stream: Option<DetourStream>,
}

/// The stream of a detour.
#[derive(Debug)]
pub(super) struct DetourStream {
    /// The serial number of the link that carries the stream.
    pub(super) link: u64,
    /// The session of the link.
    pub(super) session: u64,
    /// The name of the other server. The carrier of the detour has this very text, which no other
    /// carrier has.
    pub(super) via: Arc<str>,
    pub(super) breaker: LaneBreaker,
}

/// A detour to a server through another server, by the ids of their uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerPair {
    pub(super) to: u64,
    pub(super) through: u64,
}

/// Why a detour cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circle {
    /// The other server is itself reached through another server.
    IsReached,
    /// The server carries a detour itself.
    Carries,
}

impl Detours {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        // Each change is one call, so a poisoned lock does no harm.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a detour, which lasts until the result is dropped. Detours over silent links are
    /// about to end: the detour waits for their end if they alone are in its way.
    pub(super) async fn begin(self: &Arc<Self>, pair: ServerPair) -> Result<Begun, Circle> {
        let deadline = Instant::now() + SILENCE + ENDS;
        loop {
            let ended = self.ended.notified();
            let circle = match self.begin_now(pair) {
                Ok(begun) => return Ok(begun),
                Err((circle, ends_soon)) if !ends_soon => return Err(circle),
                Err((circle, _)) => circle,
            };
            if timeout_at(deadline, ended).await.is_err() {
                return Err(circle);
            }
        }
    }

    /// Begins a detour, or says what is in its way, and whether that is about to end.
    fn begin_now(self: &Arc<Self>, pair: ServerPair) -> Result<Begun, (Circle, bool)> {
        let mut uses = self.uses();
        let is_reached = |other: &&DetourInUse| other.pair.to == pair.through;
        let carries = |other: &&DetourInUse| other.pair.through == pair.to;
        let mut hindering = uses.all.iter().filter(|other| is_reached(other) || carries(other));
        let ends_soon = hindering.all(|other| uses.is_silent(other));
        for (circle, has_it) in [
            (Circle::IsReached, uses.all.iter().any(|other| is_reached(&other))),
            (Circle::Carries, uses.all.iter().any(|other| carries(&other))),
        ] {
            if has_it {
                return Err((circle, ends_soon));
            }
        }
        let id = uses.next;
        uses.next += 1;
        uses.all.push(DetourInUse { id, pair, stream: None });
        Ok(Begun { detours: Arc::clone(self), id })
    }

    /// Records that a link is silent or has no carrier. Returns the time if that is new.
    pub(super) fn fell_silent(&self, link: u64, now: Instant) -> Option<Instant> {
        let mut uses = self.uses();
        if uses.silent.contains_key(&link) {
            return None;
        }
        uses.silent.insert(link, now);
        Some(now)
    }

    /// Records that a link answers, or that it has ended.
    pub(super) fn is_heard(&self, link: u64) {
        self.uses().silent.remove(&link);
    }

    /// The names on the way of the detours over links that are not current, as the carriers have
    /// them. `is_current` gets the id of the uplink of the other server, and that of the session.
    pub(super) fn outdated(&self, is_current: impl Fn(u64, u64) -> bool) -> Vec<Arc<str>> {
        let uses = self.uses();
        let outdated = uses.all.iter().filter_map(|one| {
            let stream = one.stream.as_ref()?;
            let is_outdated = !is_current(one.pair.through, stream.session);
            is_outdated.then(|| Arc::clone(&stream.via))
        });
        outdated.collect()
    }

    /// Ends the detours over a link that has been silent since this time without a break.
    pub(super) fn leave_silent(&self, link: u64, since: Instant) {
        let uses = self.uses();
        if uses.silent.get(&link) != Some(&since) {
            return;
        }
        let streams = uses.all.iter().filter_map(|one| one.stream.as_ref());
        let breakers: Vec<_> = streams
            .filter(|stream| stream.link == link)
            .map(|stream| stream.breaker.clone())
            .collect();
        drop(uses);
        if !breakers.is_empty() {
            let count = breakers.len();
            tracing::debug!(link, count, "the carriers inside a silent link end");
        }
        breakers.iter().for_each(LaneBreaker::break_lane);
    }
}

impl Uses {
    /// Whether the detour is over a silent link.
    fn is_silent(&self, detour: &DetourInUse) -> bool {
        detour.stream.as_ref().is_some_and(|stream| self.silent.contains_key(&stream.link))
    }
}

/// A detour that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    detours: Arc<Detours>,
    id: u64,
}

impl Begun {
    /// Records the stream of the detour.
    pub(super) fn opened(&self, stream: DetourStream) {
        let mut uses = self.detours.uses();
        if let Some(own) = uses.all.iter_mut().find(|one| one.id == self.id) {
            own.stream = Some(stream);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.detours.uses().all.retain(|one| one.id != self.id);
        self.detours.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_detour_carries_itself() {
        let detours = Arc::<Detours>::default();
        let begin = |to, through| {
            detours.begin_now(ServerPair { to, through }).map_err(|(circle, ends_soon)| {
                assert!(!ends_soon);
                circle
            })
        };
        let first = begin(1, 2).unwrap();
        let standby = begin(1, 2).unwrap();
        let third = begin(3, 2).unwrap();
        assert_eq!(begin(2, 1).unwrap_err(), Circle::IsReached);
        assert_eq!(begin(2, 4).unwrap_err(), Circle::Carries);
        assert_eq!(begin(4, 1).unwrap_err(), Circle::IsReached);
        drop(first);
        drop(third);
        assert_eq!(begin(2, 1).unwrap_err(), Circle::IsReached, "the standby goes on");
        drop(standby);
        let back = begin(2, 1).unwrap();
        assert_eq!(begin(1, 2).unwrap_err(), Circle::IsReached);
        drop(back);
        assert!(detours.uses().all.is_empty());
    }

    fn stream() -> DetourStream {
        DetourStream { link: 7, session: 3, via: Arc::from("nyc"), breaker: LaneBreaker::default() }
    }

    #[test]
    fn a_detour_is_outdated_when_the_other_server_has_other_links_or_is_gone() {
        let detours = Arc::<Detours>::default();
        let begun = detours.begin_now(ServerPair { to: 1, through: 2 }).unwrap();
        assert!(detours.outdated(|_, _| false).is_empty(), "its stream is not open");
        let (stream, via) = (stream(), stream().via);
        let own = Arc::clone(&stream.via);
        begun.opened(stream);
        assert!(detours.outdated(|through, session| (through, session) == (2, 3)).is_empty());
        let found = detours.outdated(|through, session| (through, session) == (2, 4));
        assert!(Arc::ptr_eq(&found[0], &own) && !Arc::ptr_eq(&found[0], &via));
        drop(begun);
        assert!(detours.outdated(|_, _| false).is_empty());
    }

    /// The idle standby of server 1 is inside link 7 to server 2, which has lost its path.
    #[tokio::test(start_paused = true)]
    async fn a_detour_waits_for_the_end_of_a_detour_over_a_silent_link() {
        let detours = Arc::<Detours>::default();
        let (there, back) = (ServerPair { to: 1, through: 2 }, ServerPair { to: 2, through: 1 });
        let standby = detours.begin(there).await.unwrap();
        standby.opened(stream());
        assert_eq!(detours.begin(back).await.unwrap_err(), Circle::IsReached, "the link answers");
        let began = Instant::now();
        let since = detours.fell_silent(7, began).unwrap();
        assert_eq!(detours.fell_silent(7, began + SILENCE), None, "the first silence counts");
        let waiting = detours.begin(back);
        let ends = async {
            tokio::time::sleep(SILENCE).await;
            detours.leave_silent(7, since);
            drop(standby);
        };
        let (begun, ()) = tokio::join!(waiting, ends);
        assert_eq!(began.elapsed(), SILENCE);
        drop(begun.unwrap());

        // A detour that does not end is in the way after the wait as before it.
        let standby = detours.begin(there).await.unwrap();
        standby.opened(stream());
        assert_eq!(detours.begin(back).await.unwrap_err(), Circle::IsReached);
        detours.is_heard(7);
        let now = Instant::now();
        assert_eq!(detours.begin(back).await.unwrap_err(), Circle::IsReached);
        assert_eq!(now.elapsed(), Duration::ZERO, "the link answers again");
    }
}
