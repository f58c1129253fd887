//! The tasks of a program: they prepare, start together, and end at a known time.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout_at};

/// Connection attempts at the same time: enough to be quick over a long path, and far below the
/// length of any listener's queue.
const AT_ONCE: usize = 128;

/// The time for preparation: 10 s, a daemon's limit for an attempt, and 2 ms for each connection,
/// four times the need of a loaded machine.
const READY: Duration = Duration::from_secs(10);
const READY_EACH: Duration = Duration::from_millis(2);

/// The time for late answers after the end; a later answer counts as missing.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// All tasks of a program.
#[derive(Debug)]
pub(crate) struct Crew {
    members: JoinSet<()>,
    stop: watch::Sender<Option<Instant>>,
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    turns: Semaphore,
    ready: Cell<usize>,
    news: Notify,
}

/// A task's connection to its crew.
#[derive(Debug)]
pub(crate) struct Member {
    shared: Rc<Shared>,
    stop: watch::Receiver<Option<Instant>>,
}

/// A measured time span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: Instant,
    pub(crate) stop: Instant,
}

impl Crew {
    pub(crate) fn new() -> Self {
        let shared =
            Shared { turns: Semaphore::new(AT_ONCE), ready: Cell::new(0), news: Notify::new() };
        Self { members: JoinSet::new(), stop: watch::channel(None).0, shared: Rc::new(shared) }
    }

    /// Adds a task.
    pub(crate) fn add<F>(&mut self, work: impl FnOnce(Member) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        let member = Member { shared: Rc::clone(&self.shared), stop: self.stop.subscribe() };
        self.members.spawn_local(work(member));
    }

    /// Waits until all tasks are ready or the time for preparation is over, then lets them run for
    /// `length`.
    pub(crate) async fn start(&self, length: Duration) -> Span {
        let all = self.members.len();
        let each = READY_EACH * u32::try_from(all).unwrap_or(u32::MAX);
        let deadline = (Instant::now() + READY + each).into();
        while self.shared.ready.get() < all {
            if timeout_at(deadline, self.shared.news.notified()).await.is_err() {
                break;
            }
        }
        let start = Instant::now();
        let stop = start + length;
        self.stop.send_replace(Some(stop));
        Span { start, stop }
    }

    /// Waits for the end, then a moment for late tasks. Returns the number of tasks that never
    /// ended.
    ///
    /// # Panics
    /// When a task panicked.
    pub(crate) async fn finish(mut self, span: Span) -> usize {
        sleep_until(span.stop.into()).await;
        let deadline = (Instant::now() + GRACE).into();
        while let Ok(Some(end)) = timeout_at(deadline, self.members.join_next()).await {
            if let Err(error) = end
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        self.members.len()
    }
}

impl Member {
    /// Does the preparation when it is this task's turn, then reports the task as ready.
    pub(crate) async fn prepare<T>(&self, work: impl Future<Output = T>) -> T {
        // The semaphore is never closed.
        let turn = self.shared.turns.acquire().await;
        let outcome = work.await;
        drop(turn);
        self.shared.ready.set(self.shared.ready.get() + 1);
        self.shared.news.notify_one();
        outcome
    }

    /// Waits for the start. Returns the time at which to stop.
    pub(crate) async fn start(&mut self) -> Instant {
        let stop = self.stop.wait_for(Option::is_some).await;
        // The crew outlives its members; without a crew there is nothing to do.
        stop.ok().and_then(|stop| *stop).unwrap_or_else(Instant::now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        crate::runtime().unwrap().block_on(work)
    }

    #[test]
    fn nobody_starts_before_all_are_ready() {
        block_on(async {
            let mut crew = Crew::new();
            let started = Rc::new(Cell::new(0));
            let ready = Rc::new(Cell::new(0));
            for n in 0..300u64 {
                let (started, ready) = (Rc::clone(&started), Rc::clone(&ready));
                crew.add(async move |mut member| {
                    let pause = tokio::time::sleep(Duration::from_millis(n % 7));
                    member.prepare(pause).await;
                    ready.set(ready.get() + 1);
                    member.start().await;
                    assert_eq!(ready.get(), 300);
                    started.set(started.get() + 1);
                });
            }
            let span = crew.start(Duration::from_millis(10)).await;
            assert_eq!(crew.finish(span).await, 0);
            assert_eq!(started.get(), 300);
        });
    }

    #[test]
    fn who_hangs_is_counted_and_not_waited_for() {
        block_on(async {
            let mut crew = Crew::new();
            for n in 0..3 {
                crew.add(async move |mut member| {
                    member.prepare(async {}).await;
                    member.start().await;
                    if n > 0 {
                        std::future::pending::<()>().await;
                    }
                });
            }
            let span = crew.start(Duration::from_millis(10)).await;
            assert_eq!(crew.finish(span).await, 2);
            assert!(span.stop.elapsed() < 5 * GRACE);
        });
    }
}
