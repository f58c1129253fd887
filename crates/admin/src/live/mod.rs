//! Live data: figures of each second for open pages, and past rates.
//!
//! ```text
//!   each second, and only the sum of all bytes ───────┐
//!   every 10 s, or each second while somebody looks: ─┼─► history (rings)
//!   what has changed since the look before ───────────┴─► the board ─► lines of each viewer
//! ```
//!
//! All viewers share one sample of the daemon per second, and the board that it updates. Without
//! viewers there is no board.

mod board;
mod history;
mod lines;
mod row_log;
mod rows;
mod streams;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use board::Board;
use history::{Bytes, History, Rate, Shown, Sum, TOTAL, rate};
use ops::command::PATIENCE;
use ops::{Carried, Cursor, Daemon};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

pub(crate) use lines::{Topics, answer};

/// Interval between two samples of the sum of all bytes.
const TICK: Duration = Duration::from_secs(1);

/// Interval between two samples of the whole status without viewers, in seconds.
const STATUS_EVERY: u64 = 10;

/// How long sampling each second continues after the last viewer.
const WATCHED: Duration = Duration::from_secs(60);

/// The largest number of viewers at a time.
const VIEWERS: usize = 8;

/// The live data of a daemon. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Counts the samples that have changed the board.
    looks: watch::Sender<u64>,
    /// `None`: there are no viewers, and the board is large on a busy server.
    board: Mutex<Option<Board>>,
    history: Mutex<History>,
    looked: Mutex<Option<Instant>>,
    viewers: Arc<Semaphore>,
}

/// The state from which the next sample continues.
#[derive(Debug, Default)]
struct Before {
    total: Option<(Instant, Bytes)>,
    cursor: Cursor,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            looks: watch::Sender::new(0),
            board: Mutex::default(),
            history: Mutex::default(),
            looked: Mutex::default(),
            viewers: Arc::new(Semaphore::new(VIEWERS)),
        }))
    }

    /// Records that a viewer is active now.
    fn look(&self) {
        *locked(&self.0.looked) = Some(Instant::now());
    }

    fn is_watched(&self) -> bool {
        locked(&self.0.looked).is_some_and(|at| at.elapsed() < WATCHED)
    }

    /// The names of all series.
    pub(crate) fn names(&self) -> Vec<String> {
        locked(&self.0.history).names()
    }

    /// A past series. `None`: no such series.
    pub(crate) fn past(&self, of: &str, step: Option<u64>) -> Option<Vec<impl serde::Serialize>> {
        self.look();
        let shown: Option<Vec<Shown>> = locked(&self.0.history).of(of, step);
        shown
    }

    /// Samples the daemon until the future is dropped.
    pub(crate) async fn follow(self, daemon: Arc<dyn Daemon>) {
        let mut ticks = interval(TICK);
        // After a pause, the next sample is taken at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut before, mut second) = (Before::default(), 0);
        loop {
            ticks.tick().await;
            self.tick(daemon.as_ref(), second, &mut before).await;
            second += 1;
        }
    }

    async fn tick(&self, daemon: &dyn Daemon, second: u64, before: &mut Before) {
        let Some(traffic) = daemon.traffic() else { return };
        // A worker that does not respond leaves a gap.
        let Ok(carried) = timeout(PATIENCE, traffic.carried()).await else { return };
        let Carried { bytes_in, bytes_out } = carried;
        let (now, carried) = (Instant::now(), (bytes_in, bytes_out));
        let last = before.total.replace((now, carried));
        let total = last.map(|last| rate(last, (now, carried))).unwrap_or_default();
        let only_total = || BTreeMap::from([(TOTAL.to_owned(), Sum::from(carried))]);
        let is_watched = self.is_watched();
        if !is_watched {
            before.cursor = Cursor::default();
            *locked(&self.0.board) = None;
        }
        let delta = if is_watched || second.is_multiple_of(STATUS_EVERY) {
            timeout(PATIENCE, daemon.delta(&mut before.cursor)).await.ok()
        } else {
            None
        };
        let Some(delta) = delta else {
            return locked(&self.0.history).push(second, now, &only_total());
        };
        let mut kept = locked(&self.0.board);
        let mut board = kept.take().unwrap_or_default();
        board.update(delta, Instant::now());
        (board.carried, board.rate, board.unix_millis) = (carried, total, unix_millis());
        board.sums.insert(TOTAL.to_owned(), carried.into());
        locked(&self.0.history).push(second, now, &board.sums);
        if is_watched {
            *kept = Some(board);
            drop(kept);
            self.0.looks.send_modify(|looks| *looks += 1);
        } else {
            before.cursor = Cursor::default();
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time now in milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
