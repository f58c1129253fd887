//! The share of time in which a thread ran or waited for a processor, as Linux accounts it
//! (`/proc/thread-self/schedstat`, Documentation/scheduler/sched-stats.rst). Waiting counts: on a
//! machine with no free CPU a thread is at its limit although it does not run.

use std::fs;
use std::time::Instant;

/// Unknown, because the system is not Linux or the kernel does not account this time.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// A sample of the times of this thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    at: Instant,
    nanos: Option<u64>,
}

impl Look {
    /// Takes a sample. The call reads a small file of procfs, so it is meant for the start and the
    /// end of a test.
    pub(super) fn now() -> Self {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok();
        Self { at: Instant::now(), nanos: text.as_deref().and_then(read) }
    }

    /// The busy share of the time since the sample, in thousandths (0 to 1000), or [`UNKNOWN`].
    pub(super) fn busy(&self) -> u32 {
        let now = Self::now();
        let spent = now.nanos.zip(self.nanos).map(|(now, then)| now.saturating_sub(then));
        let wall = now.at.duration_since(self.at).as_nanos().max(1);
        spent.map_or(UNKNOWN, |spent| {
            u32::try_from(u128::from(spent) * 1000 / wall).unwrap_or(UNKNOWN).min(1000)
        })
    }
}

/// The sum of the nanoseconds that the thread ran and that it waited for a processor.
fn read(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let ran: u64 = words.next()?.parse().ok()?;
    let waited: u64 = words.next()?.parse().ok()?;
    ran.checked_add(waited)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    #[test]
    fn both_times_of_the_thread_count() {
        assert_eq!(read("100 20 3\n"), Some(120));
        for wrong in ["", "1", "x 1 2", "18446744073709551615 1 1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    /// The processor time of this thread, from another source than [`Look`].
    fn processor_time() -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(now).expect("it counts from the thread's begin")
    }

    /// Returns how busy this thread was according to [`Look`], and the share of the time in which
    /// it ran. The second share uses the longer time span: a thread that is interrupted at the ends
    /// of the span has run for a smaller share of it.
    fn while_it(acts: impl FnOnce()) -> (u32, u128) {
        let (begin, ran) = (Instant::now(), processor_time());
        let look = Look::now();
        acts();
        let busy = look.busy();
        let (wall, ran) = (begin.elapsed(), processor_time() - ran);
        (busy, ran.as_nanos() * 1000 / wall.as_nanos())
    }

    #[test]
    fn a_thread_that_computes_is_busy_as_long_as_it_runs_and_one_that_sleeps_is_not() {
        if Look::now().nanos.is_none() {
            return; // a kernel that does not count
        }
        // The share is not predictable: other threads use the processors too, and a hypervisor may
        // give the machine a part of its processors only. The time in which the thread waited for a
        // processor comes on top.
        let (busy, ran) = while_it(|| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(200) {
                std::hint::spin_loop();
            }
        });
        assert!(u128::from(busy) * 10 >= ran * 9 && busy <= 1000, "{busy}, ran {ran}");
        #[expect(clippy::disallowed_methods, reason = "a thread without work")]
        let (busy, ran) = while_it(|| std::thread::sleep(Duration::from_millis(200)));
        assert!(busy < 500 && ran < 500, "{busy}, ran {ran}");
    }

    #[test]
    fn what_it_ran_is_its_processor_time() {
        let ran = || {
            let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let Some(before) = ran() else { return };
        let begin = processor_time();
        // The kernel's figure may be as old as one of its ticks, 10 ms.
        let enough = Duration::from_millis(200);
        while processor_time() - begin < enough {
            std::hint::spin_loop();
        }
        let measured = Duration::from_nanos(ran().expect("as before") - before);
        let (least, most) = (enough.mul_f64(0.9), (processor_time() - begin).mul_f64(1.1));
        assert!(least <= measured && measured <= most, "{measured:?}, ran {enough:?}");
    }
}
