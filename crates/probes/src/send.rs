//! Sends bytes at full speed for a given time, and samples the reasons of blocks.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use net::pool;
use proto::{HEAD_ROOM, ResetCode, Stall, Tally};
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval, sleep};
use transport::Inlet;

use super::busy::Look;
use super::signals::Signals;

/// The number of bytes sent before other streams of the thread may run, as in the pump.
const BUDGET: usize = 256 << 10;

/// The largest buffer in bytes, as for the reads of a bulk stream.
const PIECE: usize = 512 << 10;

/// The period of the samples. 50 samples in a second distinguish a half from a third. A thread with
/// little work wakes rarely enough that the samples themselves are not a load.
const LOOK: Duration = Duration::from_millis(20);

/// Makes 64 KiB of incompressible data. Its repetition does not matter: 64 KiB exceeds the window
/// of packet compressors on the path.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut word = || {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    };
    (0..8 << 10).flat_map(|_| word()).collect()
}

/// Sends for `span`. `sent` is called with the number of bytes of each step. Returns the tally of
/// the sender.
///
/// # Errors
/// The peer's reset code when it aborts.
pub(super) async fn send_for(
    span: Duration,
    inlet: &dyn Inlet,
    signals: &Rc<Signals>,
    sent: impl Fn(u64),
) -> Result<Tally, ResetCode> {
    let noise = noise();
    let mut tally = Tally::default();
    let (look, begin) = (Look::now(), Instant::now());
    let mut looks = interval(LOOK);
    // A busy thread takes fewer samples, and never two at the same moment.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut end = std::pin::pin!(sleep(span));
    loop {
        if let Some(code) = signals.aborted() {
            return Err(code);
        }
        let moved = fill(inlet, &noise);
        tally.bytes += moved as u64;
        sent(moved as u64);
        tokio::select! {
            biased;
            () = &mut end => break,
            _ = looks.tick() => note(&mut tally, inlet.stall()),
            () = signals.wait() => {}
            // The budget is spent, but there is still room.
            () = yield_now(), if moved >= BUDGET => {}
        }
    }
    tally.micros = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    tally.busy = look.busy();
    Ok(tally)
}

fn note(tally: &mut Tally, stall: Option<Stall>) {
    tally.looks += 1;
    match stall {
        Some(Stall::Credit { outstanding }) => {
            tally.credit += 1;
            tally.window = tally.window.max(outstanding as u64);
        }
        Some(Stall::Carrier) => tally.carrier += 1,
        Some(Stall::Memory) => tally.memory += 1,
        None => {}
    }
}

/// Sends while there is room and budget. Returns the number of bytes.
fn fill(inlet: &dyn Inlet, noise: &[u8]) -> usize {
    let mut moved = 0;
    let mut frame = BytesMut::new();
    while moved < BUDGET {
        let room = inlet.room();
        if room == 0 {
            break;
        }
        let length = room.min(PIECE - HEAD_ROOM);
        if frame.capacity() < HEAD_ROOM + length {
            pool::give(std::mem::replace(&mut frame, pool::take(HEAD_ROOM + length)));
        }
        frame.resize(HEAD_ROOM, 0);
        let mut left = length;
        while left > 0 {
            let part = left.min(noise.len());
            frame.extend_from_slice(&noise[..part]);
            left -= part;
        }
        inlet.send(&mut frame);
        moved += length;
    }
    pool::give(frame);
    moved
}

/// Sends a few bytes, waiting for room when necessary.
///
/// # Errors
/// The peer's reset code when it aborts.
pub(super) async fn send_all(
    mut bytes: &[u8],
    inlet: &dyn Inlet,
    signals: &Signals,
) -> Result<(), ResetCode> {
    while !bytes.is_empty() {
        if let Some(code) = signals.aborted() {
            return Err(code);
        }
        let room = inlet.room().min(bytes.len());
        if room == 0 {
            signals.wait().await;
            continue;
        }
        let (now, rest) = bytes.split_at(room);
        let mut frame = BytesMut::with_capacity(HEAD_ROOM + now.len());
        frame.resize(HEAD_ROOM, 0);
        frame.extend_from_slice(now);
        inlet.send(&mut frame);
        bytes = rest;
    }
    Ok(())
}
