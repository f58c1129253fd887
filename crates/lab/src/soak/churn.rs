//! Visitors that come and go at a steady pace, so that all parts of a run are alike.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use testkit::stage::try_connect;
use testkit::wire::reset_on_drop;

/// Each kind of visitor with its pace per minute. 20 minutes make 10,000 aborted downloads and
/// 100,000 failed dials, a tenth more than needed for the work that a busy machine leaves undone,
/// and a visit for each second dial.
const KINDS: [(Kind, u64); 3] = [(Kind::Aborted, 550), (Kind::Failed, 5_500), (Kind::Short, 2_750)];

/// Threads that share a kind's work, because a busy machine may hold up one of them.
const THREADS: u64 = 2;

/// The least percentage of the planned work that must be done.
const DONE_PER_CENT: u64 = 91;

/// The most bytes that an aborted download reads.
const TASTE: u64 = 400_000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Aborted,
    Failed,
    Short,
}

/// The ports for visitors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) source: u16,
    pub(super) echo: u16,
    /// Ports of a service and a forward without a listener behind them.
    pub(super) closed: [u16; 2],
}

impl Places {
    fn visit(&self, kind: Kind, turn: u64) -> Result<()> {
        match kind {
            Kind::Aborted => abort_download(self.source, turn),
            Kind::Failed => fail_to_dial(self.closed[turn as usize % 2]),
            Kind::Short => visit_briefly(self.echo),
        }
    }
}

/// Sends until the other end closes.
pub(super) fn endless(mut stream: TcpStream) {
    let block = [7; 64 << 10];
    while stream.write_all(&block).is_ok() {}
}

/// Runs each kind of visitor once, so that memory that is allocated once is allocated.
pub(super) fn warm_up(places: &Places) -> Result<()> {
    for turn in 0..50 {
        for (kind, _) in KINDS {
            places.visit(kind, turn).with_context(|| format!("{kind:?} while warming up"))?;
        }
    }
    Ok(())
}

/// Threads that churn until their time is up.
#[derive(Debug)]
pub(super) struct Churn {
    time: Duration,
    done: Arc<[AtomicU64; 3]>,
    failed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Churn {
    pub(super) fn start(places: Places, time: Duration) -> Result<Self> {
        let done: Arc<[AtomicU64; 3]> = Arc::default();
        let failed = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (index, (kind, per_minute)) in KINDS.into_iter().enumerate() {
            let pace = Duration::from_secs(60 * THREADS).div_f64(per_minute as f64);
            for thread in 0..THREADS {
                let (done, failed) = (Arc::clone(&done), Arc::clone(&failed));
                let work = move || {
                    let start = Instant::now();
                    for turn in 0_u32.. {
                        let due = pace * turn;
                        if due >= time || start.elapsed() >= time || failed.load(Ordering::Relaxed)
                        {
                            break;
                        }
                        std::thread::sleep(due.saturating_sub(start.elapsed()));
                        let visit = places.visit(kind, u64::from(turn) * THREADS + thread);
                        if let Err(error) = visit {
                            failed.store(true, Ordering::Relaxed);
                            let at = start.elapsed().as_secs_f64();
                            return Err(error.context(format!("{kind:?} at {at:.1} s")));
                        }
                        done[index].fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                };
                threads.push(std::thread::Builder::new().name("churn".into()).spawn(work)?);
            }
        }
        Ok(Self { time, done, failed, threads })
    }

    /// The progress in one line.
    pub(super) fn progress(&self) -> String {
        let [aborted, dials, short] =
            [0, 1, 2].map(|index| self.done[index].load(Ordering::Relaxed));
        let failed =
            if self.failed.load(Ordering::Relaxed) { ", STOPPED by a failure" } else { "" };
        format!("{aborted} aborted downloads, {dials} failed dials, {short} short visits{failed}")
    }

    /// Waits for the last visit. The error is the first visit that failed, or that there were too
    /// few visits.
    pub(super) fn finish(mut self) -> Result<String> {
        for thread in self.threads.drain(..) {
            let Ok(outcome) = thread.join() else { bail!("a thread panicked") };
            outcome?;
        }
        for (index, (kind, per_minute)) in KINDS.into_iter().enumerate() {
            let planned = (self.time.as_secs_f64() / 60.0 * per_minute as f64) as u64;
            let done = self.done[index].load(Ordering::Relaxed);
            let enough = done * 100 >= planned * DONE_PER_CENT;
            ensure!(enough, "{done} of {planned} {kind:?}: this machine is too slow");
        }
        Ok(self.progress())
    }
}

/// Reads some bytes, then leaves: every second time with a reset.
fn abort_download(port: u16, turn: u64) -> Result<()> {
    let mut visitor = try_connect(port).context("connecting")?;
    let mut taste = (turn * 7_919) % TASTE + 1;
    let mut buffer = vec![0; 16 << 10];
    while taste > 0 {
        let most = buffer.len().min(usize::try_from(taste)?);
        let size = visitor.read(&mut buffer[..most]).context("reading")?;
        ensure!(size > 0, "the download has ended");
        taste -= size as u64;
    }
    if turn % 2 == 1 {
        reset_on_drop(&visitor);
    }
    Ok(())
}

/// Expects a reset and nothing else: a clean end would look like an answer.
fn fail_to_dial(port: u16) -> Result<()> {
    let outcome = try_connect(port).and_then(|mut visitor| visitor.read(&mut [0]));
    match outcome {
        Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(e) => Err(e).context("a reset was due"),
        Ok(size) => bail!("a reset was due, {size} bytes came"),
    }
}

fn visit_briefly(port: u16) -> Result<()> {
    let mut visitor = try_connect(port).context("connecting")?;
    visitor.write_all(b"word").context("writing")?;
    let mut answer = [0; 4];
    visitor.read_exact(&mut answer).context("reading")?;
    ensure!(&answer == b"word", "{answer:?} came back");
    Ok(())
}
