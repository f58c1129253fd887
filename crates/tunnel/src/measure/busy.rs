//! How much of its time a thread ran or waited for a processor, as Linux accounts it
//! (`/proc/thread-self/schedstat`, Documentation/scheduler/sched-stats.rst). Waiting counts: on a
//! machine whose cores are all taken a thread is at its limit although it does not run.

use std::fs;
use std::time::Instant;

/// Not known: another system, or a kernel that does not count.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// A look at this thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    at: Instant,
    nanos: Option<u64>,
}

impl Look {
    /// Now. Reads one small file without a disk behind it; for the begin and the end of a test.
    pub(super) fn now() -> Self {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok();
        Self { at: Instant::now(), nanos: text.as_deref().and_then(read) }
    }

    /// Thousandths of the time since then.
    pub(super) fn busy(&self) -> u32 {
        let now = Self::now();
        let spent = now.nanos.zip(self.nanos).map(|(now, then)| now.saturating_sub(then));
        let wall = now.at.duration_since(self.at).as_nanos().max(1);
        spent.map_or(UNKNOWN, |spent| {
            u32::try_from(u128::from(spent) * 1000 / wall).unwrap_or(UNKNOWN).min(1000)
        })
    }
}

/// Nanoseconds on a processor and waiting for one.
fn read(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let ran: u64 = words.next()?.parse().ok()?;
    let waited: u64 = words.next()?.parse().ok()?;
    ran.checked_add(waited)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_times_of_the_thread_count() {
        assert_eq!(read("100 20 3\n"), Some(120));
        for wrong in ["", "1", "x 1 2", "18446744073709551615 1 1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_thread_that_computes_is_busy_and_one_that_sleeps_is_not() {
        if Look::now().nanos.is_none() {
            return; // a kernel that does not count
        }
        let look = Look::now();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        let computing = look.busy();
        let look = Look::now();
        std::thread::sleep(Duration::from_millis(200));
        let sleeping = look.busy();
        // Not how much: a hypervisor may give the machine a part of its processors only.
        assert!(computing > 100 && computing > 5 * sleeping, "{computing} {sleeping}");
    }
}
