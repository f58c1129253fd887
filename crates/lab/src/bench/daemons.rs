//! The kernel's figures about the daemons of a system, by their process ids (proc(5)).

use std::fs;
use std::time::Duration;

/// `sysconf(_SC_CLK_TCK)`: 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time of all daemons, in the program and in the kernel. It counts ticks of 10 ms,
/// enough for loads that last a second. `None` when a daemon has ended.
pub(crate) fn cpu(pids: &[u32]) -> Option<Duration> {
    let ticks = pids.iter().map(|pid| ticks(&stat(*pid)?)).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks * (1_000 / TICKS_PER_SECOND)))
}

/// Processor time of one daemon from the scheduler, in nanoseconds. It is for daemons at rest,
/// which use less than a tick. Threads that have ended do not count.
pub(crate) fn exact_cpu(pid: u32) -> Option<Duration> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end while it is read.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(sum))
}

/// The index of the first daemon that has ended.
pub(crate) fn first_dead(pids: &[u32]) -> Option<usize> {
    // A process that ended and was not waited for is a zombie.
    let alive = |pid: &u32| stat(*pid).is_some_and(|stat| !stat.starts_with(['Z', 'X']));
    pids.iter().position(|pid| !alive(pid))
}

/// Resident bytes of one daemon now.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    size(pid, "VmRSS:")
}

/// The highest number of resident bytes of one daemon since [`forget_peaks`].
pub(crate) fn peak(pid: u32) -> Option<u64> {
    size(pid, "VmHWM:")
}

/// Resets the memory peaks.
pub(crate) fn forget_peaks(pids: &[u32]) {
    for pid in pids {
        // If the kernel refuses, the peak counts from the daemon's start.
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }
}

/// The fields after the name, which may hold any character.
fn stat(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')').map(|(_, fields)| fields.trim_start().to_owned())
}

/// `utime` and `stime`: fields 14 and 15 of the whole line.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn size(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_name_with_spaces_and_brackets() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        assert_eq!(ticks(fields), Some(300));
        assert_eq!(ticks("S 1 2"), None);
    }

    #[test]
    fn this_process_has_memory_and_uses_time() {
        let own = [std::process::id()];
        let start = Instant::now();
        let before = cpu(&own).unwrap();
        while cpu(&own).unwrap() == before {
            assert!(start.elapsed() < Duration::from_secs(10), "no tick in 10 s of work");
        }
        assert!(exact_cpu(own[0]).unwrap() > Duration::ZERO);
        let (now, peak) = (resident(own[0]).unwrap(), peak(own[0]).unwrap());
        assert!(now > 100 << 10 && peak > 100 << 10, "{now} {peak}");
        assert_eq!(first_dead(&own), None);
    }

    #[test]
    fn a_daemon_that_has_ended_is_found_even_if_nobody_has_waited_for_it() {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "exit 0"]).stdin(Stdio::null()).spawn().unwrap();
        let pids = [std::process::id(), child.id()];
        let start = Instant::now();
        while first_dead(&pids).is_none() {
            assert!(start.elapsed() < Duration::from_secs(10), "it has ended long ago");
        }
        assert_eq!(first_dead(&pids), Some(1));
        child.wait().unwrap();
        assert_eq!(cpu(&pids), None);
    }
}
