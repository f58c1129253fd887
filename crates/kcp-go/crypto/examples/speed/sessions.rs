//! Thousands of sessions on one thread, in virtual time: CPU time and memory of each. System calls
//! are not part of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp_go::engine::Control;

use crate::Failure;
use crate::end::{Case, End, Packets, Random, seal};
use crate::figures::cpu;

const COUNT: usize = 5_000;
/// Before it is idle, a session has sent so much: rings and buffers have been in use.
const BEFORE: usize = 1 << 20;
/// Virtual time.
const TIME: Duration = Duration::from_secs(10);
/// Between two packets of a session.
const EVERY: Duration = Duration::from_millis(500);

/// Lets both ends of a pair do what is due; what leaves arrives at once.
fn settle(pair: &mut [End; 2], now: Instant, out: &mut (Random, Vec<u8>)) {
    let (random, buffer) = out;
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for n in 0..2 {
            if pair[n].timeout().is_some_and(|at| at <= now) {
                pair[n].handle_timeout(now);
            }
            buffer.clear();
            while pair[n].poll_transmit(now, random, buffer).is_some() {
                pair[1 - n].handle_datagram(now, buffer);
                buffer.clear();
                goes_on = true;
            }
        }
        pair[1].read();
    }
}

fn timeout(pair: &[End; 2]) -> Option<Instant> {
    pair.iter().filter_map(End::timeout).min()
}

/// Resident bytes of the process.
fn resident() -> Result<usize, Failure> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split(' ').nth(1).ok_or("statm has a second field")?.parse()?;
    Ok(pages * 4096)
}

/// What the sessions take.
pub(crate) struct Sessions {
    /// Bytes of a session that is idle after it was busy.
    pub(crate) bytes: usize,
    /// Sessions with a timer although they are idle.
    pub(crate) timers: usize,
    /// Of one core, for [`COUNT`] sessions that each send two packets per second, and their peers.
    pub(crate) busy: f64,
}

pub(crate) fn run() -> Result<Sessions, Failure> {
    let packets = Packets::Stock;
    let case = Case { packets, window: 1024, has_fec: false, control: Control::Bbr };
    let mut now = Instant::now();
    let mut buffer = (Random::default(), Vec::new());
    let seal = seal()?;
    let before = resident()?;
    let mut pairs = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let mut pair =
            [End::stock(case, Arc::clone(&seal), now)?, End::stock(case, Arc::clone(&seal), now)?];
        let mut left = Bytes::from(vec![1; BEFORE]);
        while !left.is_empty() {
            pair[0].write(now, &mut left);
            settle(&mut pair, now, &mut buffer);
            now += Duration::from_millis(1);
        }
        while let Some(at) = timeout(&pair) {
            now = now.max(at);
            settle(&mut pair, now, &mut buffer);
        }
        pairs.push(pair);
    }
    let bytes = resident()?.saturating_sub(before) / (2 * COUNT);
    let timers = pairs.iter().flatten().filter(|end| end.timeout().is_some()).count();
    Ok(Sessions { bytes, timers, busy: busy(&mut pairs, now) })
}

/// The share of a core while each session sends two packets per second.
fn busy(pairs: &mut [[End; 2]], start: Instant) -> f64 {
    let mut buffer = (Random::default(), Vec::new());
    let mut queue = BinaryHeap::new();
    for n in 0..pairs.len() {
        let at = start + EVERY.mul_f64(n as f64 / pairs.len() as f64);
        queue.push(Reverse((at, n, true)));
    }
    let packet = Bytes::from_static(&[7; 64]);
    let begin = cpu();
    while let Some(Reverse((now, n, writes))) = queue.pop() {
        if now >= start + TIME {
            break;
        }
        let Some(pair) = pairs.get_mut(n) else { continue };
        if writes {
            pair[0].write(now, &mut packet.clone());
            queue.push(Reverse((now + EVERY, n, true)));
        }
        settle(pair, now, &mut buffer);
        if let Some(at) = timeout(pair) {
            queue.push(Reverse((at.max(now), n, false)));
        }
    }
    (cpu() - begin).as_secs_f64() / TIME.as_secs_f64()
}
