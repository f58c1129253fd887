//! Two ends on two threads, with a bounded queue of batches in each direction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Failure;
use crate::end::{Case, End, Random};
use crate::figures::{Figures, Watch};

/// Datagrams of a batch at most: as many as UDP GSO takes.
const BATCH: usize = 64;
/// Batches of a queue at least. A queue holds a whole window, or a large one would never be used.
const QUEUE: usize = 16;
/// How long an end waits that has a batch for a full queue.
const FULL: Duration = Duration::from_micros(50);
const WRITE: usize = 256 << 10;

/// Datagrams one behind the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

/// One end's side of the two queues. Batches that were read come back for their buffers.
struct Link {
    to: SyncSender<Batch>,
    from: Receiver<Batch>,
    back: SyncSender<Batch>,
    empty: Receiver<Batch>,
    /// It found the queue full.
    held: Option<Batch>,
    random: Random,
}

impl Link {
    fn pair(window: u16) -> [Self; 2] {
        let queue = QUEUE.max(usize::from(window) / BATCH);
        let (to_b, at_b) = sync_channel(queue);
        let (to_a, at_a) = sync_channel(queue);
        let (back_a, empty_a) = sync_channel(2 * queue);
        let (back_b, empty_b) = sync_channel(2 * queue);
        let a = Self {
            to: to_b,
            from: at_a,
            back: back_b,
            empty: empty_a,
            held: None,
            random: Random::default(),
        };
        let b = Self {
            to: to_a,
            from: at_b,
            back: back_a,
            empty: empty_b,
            held: None,
            random: Random::default(),
        };
        [a, b]
    }

    /// Sends what the end has until the queue is full.
    fn send(&mut self, end: &mut End) {
        loop {
            let batch = self.held.take().or_else(|| {
                let mut batch = self.empty.try_recv().unwrap_or_default();
                batch.bytes.clear();
                batch.lengths.clear();
                let now = Instant::now();
                while batch.lengths.len() < BATCH
                    && let Some(length) = end.poll_transmit(now, &mut self.random, &mut batch.bytes)
                {
                    batch.lengths.push(length);
                }
                (!batch.lengths.is_empty()).then_some(batch)
            });
            let Some(batch) = batch else { return };
            if let Err(TrySendError::Full(batch)) = self.to.try_send(batch) {
                self.held = Some(batch);
                return;
            }
        }
    }

    /// Waits for a batch, for the timer of the end, or for room. `false`: the peer has ended.
    fn receive(&mut self, end: &mut End) -> bool {
        let now = Instant::now();
        let wait = end.timeout().map_or(Duration::from_millis(100), |at| at.duration_since(now));
        let wait = if self.held.is_some() { wait.min(FULL) } else { wait };
        match self.from.recv_timeout(wait) {
            Ok(batch) => self.take(end, batch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        while let Ok(batch) = self.from.try_recv() {
            self.take(end, batch);
        }
        let now = Instant::now();
        if end.timeout().is_some_and(|at| at <= now) {
            end.handle_timeout(now);
        }
        true
    }

    fn take(&self, end: &mut End, mut batch: Batch) {
        let now = Instant::now();
        let mut rest = &mut batch.bytes[..];
        for length in &batch.lengths {
            let Some((datagram, after)) = rest.split_at_mut_checked(*length) else { break };
            end.handle_datagram(now, datagram);
            rest = after;
        }
        let _ = self.back.try_send(batch);
    }
}

/// Sends for `time` from one end to the other.
pub(crate) fn run(case: Case, time: Duration) -> Result<Figures, Failure> {
    let now = Instant::now();
    let [mut a, mut b] = Link::pair(case.window);
    let [mut sender, mut receiver] = End::pair(case, now)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_too = Arc::clone(&is_over);
    let source = Bytes::from(vec![0x5a; WRITE]);
    let thread = std::thread::spawn(move || {
        let mut most = 0;
        while !is_over_too.load(Ordering::Relaxed) {
            sender.fill(Instant::now(), &source);
            a.send(&mut sender);
            most = most.max(sender.in_flight());
            if !a.receive(&mut sender) {
                break;
            }
        }
        (sender.counters(), most)
    });
    let mut watch = Watch::new(time);
    while watch.goes_on(receiver.read()) {
        b.send(&mut receiver);
        if !b.receive(&mut receiver) {
            break;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    drop(b);
    let (counters, most) = thread.join().map_err(|_| "the sender failed")?;
    println!("most under way: {most} bytes");
    Ok(watch.figures(counters))
}
