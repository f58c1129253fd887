//! What a run made, and what the issue asks for.

use std::fmt;
use std::time::{Duration, Instant};

use kcp_go::engine::Counters;
use rustix::time::{ClockId, clock_gettime};

/// The begin of a run, which is not counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// CPU time of all threads of the process.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Counts bytes between the warm-up and the end.
#[derive(Debug)]
pub(crate) struct Watch {
    start: Instant,
    time: Duration,
    warm: Option<(Instant, Duration)>,
    end: Option<(Instant, Duration)>,
    bytes: usize,
}

impl Watch {
    pub(crate) fn new(time: Duration) -> Self {
        Self { start: Instant::now(), time, warm: None, end: None, bytes: 0 }
    }

    /// So many bytes arrived. Whether the run goes on.
    pub(crate) fn goes_on(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        match self.warm {
            None if now >= self.start + WARM_UP => self.warm = Some((now, cpu())),
            None => {}
            Some((warm, _)) => {
                self.bytes += bytes;
                if now >= warm + self.time {
                    self.end = Some((now, cpu()));
                    return false;
                }
            }
        }
        true
    }

    pub(crate) fn figures(&self, counters: Counters) -> Figures {
        let now = (Instant::now(), cpu());
        let (begin, cpu_begin) = self.warm.unwrap_or(now);
        let (end, cpu_end) = self.end.unwrap_or(now);
        let bytes = self.bytes.max(1) as f64;
        Figures {
            megabytes: bytes / 1e6 / (end - begin).as_secs_f64().max(1e-9),
            nanoseconds: (cpu_end - cpu_begin).as_secs_f64() * 1e9 / bytes,
            counters,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Delivered MB per second.
    pub(crate) megabytes: f64,
    /// CPU time of both ends for a delivered byte.
    pub(crate) nanoseconds: f64,
    /// Of the sender.
    pub(crate) counters: Counters,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { megabytes, nanoseconds, counters } = self;
        let Counters { datagrams_out, segments_in, repeated_out, probes, .. } = counters;
        write!(f, "{megabytes:7.1} MB/s {nanoseconds:6.3} ns/B  datagrams {datagrams_out}, ")?;
        write!(f, "segments in {segments_in}, repeated {repeated_out}, probes {probes}")
    }
}
