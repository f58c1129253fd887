//! `netem --paths`: a client with a path to the server over each of two bottlenecks of 50 Mbit/s.
//!
//! | figure | what | floor |
//! |---|---|---|
//! | both | the rate of 8 streams that share both paths, by the rate over one path | 1.8 |
//! | address | the longest pause of a stream whose path has lost its address, in round trips | 2 |
//! | cut | the same where packets vanish without a word | none: it is a time-out |
//! | move | what `tunnel move` of a link under load costs, in round trips of its rate | 1 |
//!
//! The round trip of the pauses is that of the path under load: the queue of the bottleneck counts.

use std::fs;
use std::io::Read as _;
use std::path::Path as File;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testkit::stage::Scheme;

use super::ends::Ends;
use super::matrix::Plan;
use super::path::Path;
use super::reading::{Stage, read_from_source};
use super::stream::fresh;
use super::systems::System;
use crate::bench::load_program;
use xtask::site::Site;

/// Mbit/s of each path, and the round-trip time in ms, unless an option sets others.
pub(super) const RATE: f64 = 50.0;
const RTT: f64 = 40.0;

/// The streams that share the paths.
const STREAMS: usize = 8;

/// The time until the rates count: the start of congestion control.
const START: Duration = Duration::from_secs(3);

/// The time after a fault within which the pause of a stream counts.
const AFTER: Duration = Duration::from_secs(12);

/// The time around a move whose bytes count.
const AROUND: Duration = Duration::from_secs(4);

/// The most that 2 round trips, and 1, may be exceeded by: the kernel's timers and those of the
/// wire.
const GRAIN: Duration = Duration::from_millis(20);

const BOTH_LEAST: f64 = 1.8;
const ADDRESS_MOST: f64 = 2.0;
const MOVE_MOST: f64 = 1.0;

/// The time and size of each read of a stream.
type Reads = Vec<(Instant, usize)>;

/// Streams that read as fast as they can, and the time and size of each read.
struct Readers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Reads>>>,
}

impl Readers {
    fn start(count: usize) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let read = |is_over: Arc<AtomicBool>| -> Result<_> {
            let mut stream = read_from_source()?;
            let (mut block, mut reads) = (vec![0; 256 << 10], Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                let count = stream.read(&mut block)?;
                ensure!(count > 0, "a stream ended");
                reads.push((Instant::now(), count));
            }
            Ok(reads)
        };
        let threads = (0..count).map(|nth| {
            let is_over = Arc::clone(&is_over);
            std::thread::Builder::new().name(format!("reader-{nth}")).spawn(move || read(is_over))
        });
        let threads = threads.collect::<Result<_, _>>()?;
        Ok(Self { is_over, threads })
    }

    /// Ends the streams. The error of a stream is the error of all.
    fn finish(self) -> Result<Vec<Reads>> {
        self.is_over.store(true, Ordering::Relaxed);
        let join = |thread: JoinHandle<Result<_>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?
        };
        self.threads.into_iter().map(join).collect()
    }
}

/// Mbit/s of all streams between two times.
fn rate(reads: &[Reads], from: Instant, to: Instant) -> f64 {
    let is_in = |read: &&(Instant, usize)| (from..to).contains(&read.0);
    let bytes: usize = reads.iter().flatten().filter(is_in).map(|read| read.1).sum();
    bytes as f64 * 8e-6 / (to - from).as_secs_f64()
}

/// The longest pause of a stream that ends within [`AFTER`], or lasts until then.
fn longest_pause(reads: &[Reads], since: Instant) -> Duration {
    let end = since + AFTER;
    let of = |stream: &Reads| {
        let times = stream.iter().map(|read| read.0).filter(|time| *time < end).chain([end]);
        let times: Vec<_> = times.collect();
        let pauses = times.windows(2).filter(|pair| pair[1] >= since);
        pauses.map(|pair| pair[1] - pair[0]).max()
    };
    // A stream without any read has paused all the time.
    reads.iter().map(|stream| of(stream).unwrap_or(AFTER)).max().unwrap_or(AFTER)
}

/// The figures of a transport.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Mbit/s over one path, and over both.
    rates: [f64; 2],
    /// The longest pauses after the loss of an address, and after a cut.
    pauses: [Duration; 2],
    /// The time that the rate of the link before the move would take for the missing bytes.
    moved: Duration,
    /// The round trip under load.
    rtt: Duration,
}

impl Figures {
    fn in_round_trips(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.rtt.as_secs_f64()
    }

    /// Whether each floor is held, with a line for each.
    fn verdicts(&self) -> [(bool, String); 4] {
        let [one, both] = self.rates;
        let share = both / one;
        let [address, cut] = self.pauses.map(|pause| self.in_round_trips(pause));
        let moved = self.in_round_trips(self.moved);
        let grain = self.in_round_trips(GRAIN);
        let ms = |time: Duration| time.as_millis();
        [
            (
                share >= BOTH_LEAST,
                format!("both: {both:.1} of {one:.1} Mbit/s, {share:.2}; at least {BOTH_LEAST}"),
            ),
            (
                address <= ADDRESS_MOST + grain,
                format!(
                    "address: {} ms, {address:.1} round trips; at most {ADDRESS_MOST}",
                    ms(self.pauses[0])
                ),
            ),
            (true, format!("cut: {} ms, {cut:.1} round trips", ms(self.pauses[1]))),
            (
                moved <= MOVE_MOST + grain,
                format!("move: {} ms, {moved:.1} round trips; at most {MOVE_MOST}", ms(self.moved)),
            ),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "mbit": self.rates,
            "pause_ms": self.pauses.map(|pause| pause.as_secs_f64() * 1e3),
            "move_ms": self.moved.as_secs_f64() * 1e3,
            "rtt_ms": self.rtt.as_secs_f64() * 1e3,
        })
    }
}

impl Stage<'_> {
    /// The rate of the streams after the start, over `seconds`.
    fn rate(&self, streams: usize, seconds: u32) -> Result<f64> {
        let readers = Readers::start(streams)?;
        sleep(START);
        let from = Instant::now();
        sleep(Duration::from_secs(seconds.into()));
        let to = Instant::now();
        Ok(rate(&readers.finish()?, from, to))
    }

    /// The longest pause of a stream after a fault.
    fn pause(&self, fault: impl FnOnce(&Self) -> Result<()>) -> Result<Duration> {
        let readers = Readers::start(STREAMS)?;
        sleep(START);
        let since = Instant::now();
        fault(self)?;
        sleep(AFTER);
        Ok(longest_pause(&readers.finish()?, since))
    }

    /// The cost of a move of a link under load, in time at the rate before the move.
    fn cost_of_move(&self) -> Result<Duration> {
        let readers = Readers::start(1)?;
        sleep(START * 2);
        let begin = Instant::now();
        self.move_to(1)?;
        sleep(AROUND);
        let end = Instant::now();
        let reads = readers.finish()?;
        let before = rate(&reads, begin - AROUND, begin);
        let after = rate(&reads, begin, end);
        let missing = (before - after).max(0.0) / before;
        Ok((end - begin).mul_f64(missing))
    }
}

/// Measures each transport of the plan.
pub(super) fn run_all(site: &Site, path: &Path, plan: &Plan, binary: &File) -> Result<ExitCode> {
    let dir = site.target.join("netem");
    fresh(&dir)?;
    let load = load_program(site);
    let path = Path { rtt: if path.rtt > 0.0 { path.rtt } else { RTT }, ..path.clone() };
    let ends = Ends::new(&path)?;
    println!("{}", Ends::settings(&path));
    println!("two paths, each: {}\n", path.describe());
    let (mut cells, mut are_held) = (Vec::new(), true);
    let schemes = plan.systems.iter().filter_map(|system| match system {
        System::Tunnel(scheme) if scheme.tls => Some(*scheme),
        System::Tunnel(_) | System::Direct | System::Peer | System::PeerWebrtc | System::Kcptun => {
            None
        }
    });
    for scheme in schemes {
        let figures = measure(&ends, (&path, scheme), plan.seconds, &dir, (binary, &load))
            .with_context(|| scheme.name)?;
        println!("{}", scheme.name);
        for (is_held, line) in figures.verdicts() {
            println!("  {line}: {}", if is_held { "held" } else { "missed" });
            are_held &= is_held;
        }
        cells.push(json!({ "transport": scheme.name, "figures": figures.json() }));
    }
    let file = dir.join("paths.json");
    let value = json!({ "path": path.describe(), "cells": cells });
    fs::write(&file, format!("{value:#}\n"))?;
    println!("{}", file.display());
    ensure!(!plan.check || are_held, "a floor of two paths is missed");
    Ok(ExitCode::SUCCESS)
}

fn measure(
    ends: &Ends,
    path: (&Path, Scheme),
    seconds: u32,
    dir: &File,
    programs: (&File, &File),
) -> Result<Figures> {
    let (path, scheme) = path;
    let paths = [(scheme, 0), (scheme, 1)];
    let stage =
        |count: usize, lines: &str| Stage::start(ends, path, &paths[..count], lines, dir, programs);
    let both = "connections: 2\nspread: by_stream\n";
    let one = stage(1, "connections: 2\n")?.rate(STREAMS, seconds)?;
    let two = stage(2, both)?.rate(STREAMS, seconds)?;
    let cut = stage(2, both)?.pause(|stage| {
        stage.wire.cut(1, true);
        Ok(())
    })?;
    let address = stage(2, both)?.pause(|stage| stage.ends.left.leave(1))?;
    ends.left.arrive(1, path)?;
    let moved = stage(2, "connections: 1\nspread: backup\n")?.cost_of_move()?;
    // A full queue is a part of the round trip.
    let queue = path.rate.map_or(0.0, |_| path.queue);
    let rtt = Duration::from_secs_f64((path.rtt + queue) / 1e3);
    Ok(Figures { rates: [one, two], pauses: [address, cut], moved, rtt })
}

/// The time limit of a run.
pub(super) fn limit(plan: &Plan) -> Duration {
    let each = (START + Duration::from_secs(plan.seconds.into()) + AFTER) * 5;
    (each + Duration::from_secs(60)) * plan.systems.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_pauses_are_those_of_the_reads() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        // Until the end of the time that counts.
        let count = 50 + AFTER.as_millis() as u64 / 10;
        let steady: Vec<_> = (0..count).map(|nth| (at(nth * 10), 1250)).collect();
        let mut pausing = steady.clone();
        pausing.retain(|(time, _)| !(at(300)..at(450)).contains(time));
        let reads = [steady.clone(), pausing];
        assert_eq!(rate(&reads[..1], at(0), at(1000)), 1.0);
        assert_eq!(longest_pause(&reads, at(200)), ms(160));
        assert_eq!(longest_pause(&reads, at(500)), ms(10));
        let silent = steady[..50].to_vec();
        assert_eq!(longest_pause(&[silent], at(200)), at(200) + AFTER - at(490), "to the end");
        let last = steady.last().unwrap().0;
        assert_eq!(longest_pause(&[steady], last + ms(10)), AFTER + ms(10), "none after the fault");
        assert_eq!(longest_pause(&[Reads::new()], at(0)), AFTER, "no read at all");
    }

    #[test]
    fn each_floor_can_be_missed() {
        let ms = Duration::from_millis;
        let good = Figures {
            rates: [48.0, 90.0],
            pauses: [ms(100), ms(5000)],
            moved: ms(100),
            rtt: ms(140),
        };
        assert!(good.verdicts().iter().all(|(is_held, _)| *is_held));
        let bad = Figures { rates: [48.0, 80.0], pauses: [ms(900); 2], moved: ms(300), ..good };
        let held: Vec<_> = bad.verdicts().iter().map(|(is_held, _)| *is_held).collect();
        assert_eq!(held, [false, false, true, false]);
    }
}
