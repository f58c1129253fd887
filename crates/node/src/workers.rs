//! Workers: each worker is one OS thread with its own single-threaded runtime, and workers share
//! nothing.
//!
//! A link stays on one worker for its lifetime, so the data path needs no locks and no messages
//! between threads. Whatever crosses threads (a new socket, a configuration, a query) is sent as a
//! closure through the bounded mailbox of a worker, and runs there between two turns of the tasks.
//!
//! ```text
//!   any thread --Handle::run / call--> mailbox --> worker thread: closure(&Rc<Worker<S>>)
//! ```
//!
//! `S` is the state of a role on one worker. It is created on the thread of the worker and never
//! leaves that thread.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use net::{pages, pool};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The capacity of a mailbox, in closures. They are short and rare. A sender waits while the
/// mailbox is full.
const MAILBOX: usize = 1024;

/// Threads of a worker for files of enrolled clients, the only blocking calls there. Names are
/// resolved on the thread of `net::resolve`.
const BLOCKING_THREADS: usize = 4;

/// The interval at which a worker frees unused read buffers.
const TIDY: Duration = Duration::from_secs(5);

/// The time in which a stopping worker must finish its current turn.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

type Job<S> = Box<dyn FnOnce(&Rc<Worker<S>>) + Send>;

/// The worker has stopped, or the job panicked there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worker has stopped")]
pub struct WorkerGone;

/// The argument of a job: the worker that runs it.
#[derive(Debug)]
pub struct Worker<S> {
    /// The index, from 0 to the number of workers minus 1.
    pub index: usize,
    /// All workers of this set by index, this worker included.
    pub peers: Arc<[Handle<S>]>,
    /// The state of the role on this worker.
    pub state: S,
}

/// A handle of one worker, usable from any thread.
pub struct Handle<S> {
    index: usize,
    mailbox: mpsc::Sender<Job<S>>,
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self { index: self.index, mailbox: self.mailbox.clone() }
    }
}

impl<S> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.index)
    }
}

impl<S: 'static> Handle<S> {
    /// Runs `job` on the worker. The future completes when the job is in the mailbox.
    ///
    /// # Errors
    /// [`WorkerGone`] when the worker has stopped.
    pub async fn run(
        &self,
        job: impl FnOnce(&Rc<Worker<S>>) + Send + 'static,
    ) -> Result<(), WorkerGone> {
        self.mailbox.send(Box::new(job)).await.map_err(|_| WorkerGone)
    }

    /// Runs `job` on the worker and returns its result.
    ///
    /// # Errors
    /// [`WorkerGone`] when the worker has stopped or the job panicked.
    pub async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Rc<Worker<S>>) -> T + Send + 'static,
    ) -> Result<T, WorkerGone> {
        let (reply, answer) = oneshot::channel();
        // If the caller has dropped the future meanwhile, the result is dropped.
        self.run(move |worker| drop(reply.send(job(worker)))).await?;
        answer.await.map_err(|_| WorkerGone)
    }

    /// Runs a task on the worker and returns its result. In this form a long job can yield to the
    /// other tasks of the worker. The task ends when the caller drops the future.
    ///
    /// # Errors
    /// [`WorkerGone`] when the worker has stopped or the task panicked.
    pub async fn task<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        begin: impl FnOnce(Rc<Worker<S>>) -> F + Send + 'static,
    ) -> Result<T, WorkerGone> {
        let (mut reply, answer) = oneshot::channel();
        self.run(move |worker| {
            let task = begin(Rc::clone(worker));
            drop(spawn_local(async move {
                tokio::select! {
                    () = reply.closed() => {}
                    result = task => drop(reply.send(result)),
                }
            }));
        })
        .await?;
        answer.await.map_err(|_| WorkerGone)
    }
}

/// A set of running workers. Dropping the set stops the workers and waits as [`Self::stop`] does,
/// so an abandoned start leaves no socket file behind.
#[derive(Debug)]
pub struct Workers<S> {
    handles: Arc<[Handle<S>]>,
    /// Taken by [`Workers::stop`] or by the drop.
    ends: Mutex<Vec<End>>,
}

#[derive(Debug)]
struct End {
    stop: oneshot::Sender<()>,
    /// Disconnected when the thread has ended.
    stopped: std::sync::mpsc::Receiver<()>,
}

impl<S: 'static> Workers<S> {
    /// Starts `count` workers named `tunnel-w0`, `tunnel-w1` and so on. `make` builds the state of
    /// each worker on its thread. Returns when all workers run.
    ///
    /// # Errors
    /// The system cannot create a thread or an epoll instance, or `make` panicked.
    pub fn start(
        count: NonZeroUsize,
        make: impl Fn(usize) -> S + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let make: Arc<dyn Fn(usize) -> S + Send + Sync> = Arc::new(make);
        let (handles, mailboxes): (Vec<_>, Vec<_>) = (0..count.get())
            .map(|index| {
                let (mailbox, jobs) = mpsc::channel(MAILBOX);
                (Handle { index, mailbox }, jobs)
            })
            .unzip();
        let handles: Arc<[Handle<S>]> = handles.into();

        let (up, ups) = std::sync::mpsc::channel();
        let mut ends = Vec::with_capacity(count.get());
        for (index, jobs) in mailboxes.into_iter().enumerate() {
            let (stop, stop_asked) = oneshot::channel();
            let (stopped_guard, stopped) = std::sync::mpsc::channel::<()>();
            let (make, up, peers) = (Arc::clone(&make), up.clone(), Arc::clone(&handles));
            thread::Builder::new().name(format!("tunnel-w{index}")).spawn(move || {
                // Dropped when the thread ends, even by a panic.
                let _stopped = stopped_guard;
                match runtime() {
                    Ok(runtime) => {
                        let state = move || make(index);
                        let started = move || drop(up.send(Ok(())));
                        runtime.block_on(work(index, peers, state, started, jobs, stop_asked));
                        // A pending name resolution must not delay the end.
                        runtime.shutdown_background();
                    }
                    Err(e) => drop(up.send(Err(e))),
                }
            })?;
            ends.push(End { stop, stopped });
        }
        drop(up);
        for _ in 0..count.get() {
            // The channel closes without a message only when `make` panicked.
            ups.recv().map_err(|_| io::Error::other("a worker did not start"))??;
        }
        Ok(Self { handles, ends: Mutex::new(ends) })
    }

    /// The handles of the workers, by index.
    pub fn handles(&self) -> &Arc<[Handle<S>]> {
        &self.handles
    }

    /// Whether every worker responds within `limit`. False if a worker is blocked or has stopped.
    pub async fn answer(&self, limit: Duration) -> bool {
        let all = async {
            for handle in self.handles.iter() {
                if handle.call(|_| ()).await.is_err() {
                    return false;
                }
            }
            true
        };
        timeout(limit, all).await.unwrap_or(false)
    }

    /// Ends all tasks of all workers and waits at most 5 s for the threads. A second call does
    /// nothing.
    pub async fn stop(&self) {
        let ends = self.take_ends();
        // Fails only when the runtime ends, and then no caller waits.
        let _ = tokio::task::spawn_blocking(move || end(ends)).await;
    }
}

impl<S> Workers<S> {
    fn take_ends(&self) -> Vec<End> {
        std::mem::take(&mut *self.ends.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S> Drop for Workers<S> {
    fn drop(&mut self) {
        end(self.take_ends());
    }
}

fn end(ends: Vec<End>) {
    let (stops, stopped): (Vec<_>, Vec<_>) =
        ends.into_iter().map(|end| (end.stop, end.stopped)).unzip();
    for stop in stops {
        // A thread that has ended receives no message.
        let _ = stop.send(());
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    for (index, stopped) in stopped.into_iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(worker = index, "worker {index} did not stop in time");
        }
    }
}

/// The number of workers for `auto`: the CPUs that this process may use (affinity and cgroup
/// quota).
pub fn automatic() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .thread_name("tunnel-files")
        .max_blocking_threads(BLOCKING_THREADS)
        .build_local(LocalOptions::default())
}

async fn work<S>(
    index: usize,
    peers: Arc<[Handle<S>]>,
    state: impl FnOnce() -> S,
    started: impl FnOnce(),
    mut jobs: mpsc::Receiver<Job<S>>,
    mut stop: oneshot::Receiver<()>,
) {
    let worker = Rc::new(Worker { index, peers, state: state() });
    started();
    let mut tidy = interval(TIDY);
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let job = tokio::select! {
            biased;
            // Ready also when the set of workers was dropped.
            _ = &mut stop => return,
            job = jobs.recv() => job,
            _ = tidy.tick() => {
                pool::tidy();
                pages::tidy();
                continue;
            }
        };
        let Some(job) = job else { return };
        // The panic hook of `logging` has logged the panic, which ends this job only. The job
        // touched data behind `Rc` and `Cell` of its own link, and that link ends with the job.
        drop(catch_unwind(AssertUnwindSafe(|| job(&worker))));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn two() -> Workers<Cell<usize>> {
        Workers::start(NonZeroUsize::new(2).unwrap(), |index| Cell::new(index * 10)).unwrap()
    }

    #[tokio::test]
    async fn a_job_runs_on_the_thread_it_was_sent_to_and_finds_its_state() {
        let workers = two();
        for (index, handle) in workers.handles().iter().enumerate() {
            let answer = handle.call(|worker| {
                worker.state.set(worker.state.get() + 1);
                (thread::current().name().map(str::to_owned), worker.state.get())
            });
            let (name, state) = answer.await.unwrap();
            assert_eq!(name, Some(format!("tunnel-w{index}")));
            assert_eq!(state, index * 10 + 1);
        }
        workers.stop().await;
    }

    #[tokio::test]
    async fn a_panic_ends_its_job_or_task_only() {
        let workers = two();
        let handle = &workers.handles()[0];
        assert_eq!(handle.call(|_| panic!("job")).await, Err::<(), _>(WorkerGone));
        let spawned = handle.call(|_| drop(spawn_local(async { panic!("task") })));
        assert_eq!(spawned.await, Ok(()));
        assert_eq!(handle.call(|worker| worker.index).await, Ok(0));
        assert!(workers.answer(Duration::from_secs(5)).await);
        workers.stop().await;
    }

    #[tokio::test]
    async fn a_task_gives_way_and_ends_with_its_caller() {
        let workers = two();
        let handle = &workers.handles()[0];
        let (held, released) = oneshot::channel::<()>();
        let endless = handle.task(|worker| async move {
            let _held = held;
            loop {
                worker.state.set(worker.state.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let other = async {
            // The task continues while the worker runs other jobs.
            while handle.call(|worker| worker.state.get()).await.unwrap() < 100 {}
        };
        tokio::select! {
            _ = endless => unreachable!("it has no end"),
            () = other => {}
        }
        assert!(released.await.is_err());
        assert_eq!(handle.task(|worker| async move { worker.index }).await, Ok(0));
        assert_eq!(handle.task(|_| async { panic!("task") }).await, Err::<(), _>(WorkerGone));
        workers.stop().await;
    }

    #[tokio::test]
    async fn stopping_drops_the_tasks_and_later_calls_fail() {
        let workers = two();
        let handle = workers.handles()[1].clone();
        let (held, released) = oneshot::channel::<()>();
        handle
            .run(move |_| {
                spawn_local(async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                });
            })
            .await
            .unwrap();
        workers.stop().await;
        assert!(released.await.is_err());
        assert_eq!(handle.call(|_| ()).await, Err(WorkerGone));
    }

    /// An abandoned start drops what it has created.
    #[tokio::test]
    async fn dropping_the_set_waits_until_what_it_kept_is_gone() {
        struct Slow(std::sync::mpsc::Sender<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                #[expect(clippy::disallowed_methods, reason = "a drop that takes its time")]
                thread::sleep(Duration::from_millis(100));
                self.0.send(()).unwrap();
            }
        }
        let (gone, seen) = std::sync::mpsc::channel();
        let workers = two();
        let kept = Slow(gone);
        workers.handles()[1]
            .run(move |_| {
                spawn_local(async move {
                    let _kept = kept;
                    std::future::pending::<()>().await;
                });
            })
            .await
            .unwrap();
        drop(workers);
        seen.try_recv().unwrap();
    }

    #[test]
    fn a_state_that_cannot_be_made_is_an_error_not_a_hang() {
        let started = Workers::start(NonZeroUsize::MIN, |_| -> () { panic!("make") });
        assert!(started.is_err());
    }
}
