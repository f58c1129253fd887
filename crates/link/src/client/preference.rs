//! Decides when better paths are tried while a lower-ranked path carries the link: after a pause,
//! and at once when a path requests it ([`transport::PathDialer::asks`]).
//!
//! Without a standby the pause is constant, because a dial costs little. The better path of a link
//! with a standby often fails, and its dials are expensive: the pauses grow with each attempt,
//! until a better path has carried the link for a while.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use transport::LocalFuture;

use super::rates::PREFER_EVERY;
use crate::dial::Path;

/// The first of growing pauses.
const FIRST: Duration = Duration::from_secs(5);

/// The longest pause.
const LONGEST: Duration = Duration::from_mins(10);

/// The least time between attempts that changes of the network cause.
const HURRIED: Duration = Duration::from_secs(5);

/// A better path that carried the link for this time is worth an early attempt once it is lost.
const GOOD: Duration = Duration::from_mins(1);

/// The next attempt with a better path.
pub(super) struct Preference {
    at: Instant,
    grows: bool,
    pause: Duration,
    /// The earliest time of an attempt after a change of the network.
    not_before: Instant,
    /// The index of the better path to try next.
    next: usize,
    /// For each path: a future that is ready when the path requests an attempt.
    asking: Vec<LocalFuture<'static, ()>>,
}

impl Preference {
    /// `grows`: whether the pauses grow.
    pub(super) fn new(paths: &[Path], grows: bool, now: Instant) -> Self {
        let pause = if grows { FIRST } else { PREFER_EVERY };
        let asking = paths.iter().map(|path| path.dialer.asks()).collect();
        Self { at: now + pause, grows, pause, not_before: now, next: 0, asking }
    }

    /// The time of the next attempt.
    pub(super) const fn at(&self) -> Instant {
        self.at
    }

    /// Keeps the current path for at least this time.
    pub(super) fn keep(&mut self, time: Duration, now: Instant) {
        self.at = now + time;
        self.not_before = self.at;
    }

    /// Tries a better path soon, because the network has changed: the path may work again. Where
    /// the pauses grow, because dials are expensive, the pause stays.
    pub(super) fn hurry(&mut self, now: Instant) {
        if !self.grows {
            self.at = self.at.min(self.not_before.max(now));
            self.not_before = self.not_before.max(now + HURRIED);
        }
    }

    /// Records that a carrier was attached.
    pub(super) fn attached(&mut self, now: Instant) {
        self.at = now + self.pause;
    }

    /// Records the loss of a better path's carrier after this lifetime. A path that is lost soon
    /// after each attempt is tried as rarely as a path that fails.
    pub(super) fn lost(&mut self, lived: Duration) {
        if lived < GOOD {
            self.grow();
        } else if self.grows {
            self.pause = FIRST;
        }
    }

    fn grow(&mut self) {
        if self.grows {
            self.pause = (self.pause * 2).min(LONGEST);
        }
    }

    /// Selects the path to try, among those that precede `path`.
    pub(super) fn choose(&mut self, path: usize, now: Instant) -> usize {
        let chosen = if self.next < path { self.next } else { 0 };
        self.next = chosen + 1;
        self.at = now + self.pause;
        chosen
    }

    /// Records a failed attempt. Returns the pause before the next attempt.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        self.at = now + self.pause;
        let pause = self.pause;
        self.grow();
        pause
    }

    /// Waits until one of the paths before `end`, or the path `standby`, requests an attempt.
    pub(super) async fn asked(&mut self, end: usize, standby: Option<usize>) -> usize {
        poll_fn(|cx| {
            let paths = self.asking.iter_mut().enumerate();
            for (path, asking) in paths.filter(|(path, _)| *path < end || Some(*path) == standby) {
                if asking.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(path);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Rearms the request of a path that was handled.
    pub(super) fn heard(&mut self, path: usize, paths: &[Path]) {
        if let (Some(asking), Some(path)) = (self.asking.get_mut(path), paths.get(path)) {
            *asking = path.dialer.asks();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_a_better_path_has_carried_the_link_for_a_while() {
        let now = Instant::now();
        let mut growing = Preference::new(&[], true, now);
        let pauses = |preference: &mut Preference, count: usize| -> Vec<u64> {
            (0..count).map(|_| preference.failed(now).as_secs()).collect()
        };
        assert_eq!(pauses(&mut growing, 9), [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        growing.lost(GOOD);
        assert_eq!(pauses(&mut growing, 1), [5], "it was good");
        growing.lost(GOOD - Duration::from_secs(1));
        assert_eq!(pauses(&mut growing, 1), [20], "it was lost too soon");
        let mut constant = Preference::new(&[], false, now);
        assert_eq!(pauses(&mut constant, 3), [60, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_network_ends_the_pause_but_not_each_change_of_many() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut preference = Preference::new(&[], false, now);
        preference.hurry(now + second);
        assert_eq!(preference.at(), now + second);
        preference.failed(now + second);
        preference.hurry(now + second * 2);
        assert_eq!(preference.at(), now + second * 6);
        preference.keep(PREFER_EVERY, now + second * 2);
        preference.hurry(now + second * 9);
        assert_eq!(preference.at(), now + second * 62, "a quicker path is kept");
        let mut growing = Preference::new(&[], true, now);
        growing.hurry(now + second);
        assert_eq!(growing.at(), now + FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn the_better_paths_take_turns() {
        let now = Instant::now();
        let mut preference = Preference::new(&[], true, now);
        let turns = (0..5).map(|_| preference.choose(2, now)).collect::<Vec<_>>();
        assert_eq!(turns, [0, 1, 0, 1, 0]);
        assert_eq!(preference.choose(1, now), 0);
    }
}
