//! The speed of engine, FEC and envelope together: `speed memory`, `speed udp`, `speed own-memory`,
//! `speed own-udp`, `speed acks`, `speed sessions`.
//!
//! `memory` and `udp` are sessions over kcp-go's packets, `own-memory` and `own-udp` over the
//! project's own packets. They send from one thread to another with AES-128-GCM and an MTU of
//! 1,350, and say how many bytes arrive per second and what a byte costs both ends. Options:
//! `--bbr` for the controller of a path (else nothing but the windows limits, as with `nc = 1` of
//! kcp-go), `--window SEGMENTS`, `--fec` for
//! 10/3, `--seconds COUNT`. Without `--window` all windows run.
//! With `--check` a figure that misses its floor makes the program fail.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

mod acks;
mod end;
mod figures;
mod memory;
mod own;
mod sessions;
mod udp;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use end::{Case, Packets};
use kcp_go::engine::Control;

const COMMANDS: &str = "one of: memory, udp, own-memory, own-udp, acks, sessions";

type Failure = Box<dyn Error>;

const WINDOWS: [u16; 4] = [1_024, 4_096, 16_384, 32_768];
/// MB per second at least and nanoseconds per byte at most.
const MEMORY: (f64, f64) = (600.0, 2.6);
const MEMORY_FEC: (f64, f64) = (400.0, f64::INFINITY);
const UDP: (f64, f64) = (450.0, 3.5);
const UDP_FEC: (f64, f64) = (0.0, f64::INFINITY);
/// An idle session has at most so many bytes.
const IDLE_BYTES: usize = 16 << 10;
/// 5,000 sessions with two packets per second take at most this share of a core.
const BUSY: f64 = 0.15;
/// Segments under way, and the longest time of an acknowledgement.
const IN_FLIGHT: [u32; 3] = [32, 1_024, 16_384];
const ACK: Duration = Duration::from_nanos(150);

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("a figure misses its floor");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}

/// Whether all floors hold, or none was asked for.
fn run() -> Result<bool, Failure> {
    let mut words = std::env::args().skip(1);
    let command = words.next().ok_or(COMMANDS)?;
    let (mut control, mut has_fec, mut checks) = (Control::Open, false, false);
    let (mut windows, mut time) = (WINDOWS.to_vec(), Duration::from_secs(3));
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--bbr" => control = Control::Bbr,
            "--fec" => has_fec = true,
            "--check" => checks = true,
            "--window" => windows = vec![value()?.parse()?],
            "--seconds" => time = Duration::from_secs(value()?.parse()?),
            _ => return Err(format!("no such option: {word}").into()),
        }
    }
    let mut holds = true;
    if command == "sessions" {
        let sessions::Sessions { bytes, timers, busy } = sessions::run()?;
        println!(
            "idle: {bytes} bytes each, {timers} timers; busy: {:.2} % of a core",
            busy * 100.0
        );
        holds = bytes <= IDLE_BYTES && timers == 0 && busy <= BUSY;
    } else if command == "acks" {
        for in_flight in IN_FLIGHT {
            let [in_order, ahead] = acks::run(in_flight)?;
            println!("{in_flight:6} in flight: {in_order:?} in order, {ahead:?} behind a gap");
            holds &= in_order.max(ahead) <= ACK;
        }
    } else {
        for window in windows {
            let own = command.strip_prefix("own-");
            let packets = if own.is_some() { Packets::Own } else { Packets::Stock };
            let case = Case { packets, window, has_fec, control };
            let (figures, (least, most)) = match own.unwrap_or(&command) {
                "memory" => (memory::run(case, time)?, if has_fec { MEMORY_FEC } else { MEMORY }),
                "udp" => (udp::run(case, time)?, if has_fec { UDP_FEC } else { UDP }),
                _ => return Err(format!("no such command: {command}").into()),
            };
            println!("{command} window {window:6} fec {has_fec:5} {control:?}: {figures}");
            holds &= figures.megabytes >= least && figures.nanoseconds <= most;
        }
    }
    Ok(holds || !checks)
}
