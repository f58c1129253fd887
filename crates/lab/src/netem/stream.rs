//! One TCP stream of iperf3, as its receiver measures it second by second. The run does not wait
//! for the report that iperf3 exchanges at the end: on a path that loses every fifth packet, the
//! report may never come.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::stage::{Daemon, program};

use super::ends::{Ends, ORIGIN};

/// The interval at which waits check their condition.
const ASK: Duration = Duration::from_millis(20);

/// The time of a run in addition to its seconds: connecting under heavy loss, and data that is
/// still queued.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the visitor.
    Up,
    /// To the visitor.
    Down,
}

impl Way {
    pub(super) const BOTH: [Self; 2] = [Self::Up, Self::Down];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Starts `iperf3 -s` at the left end, for one run.
pub(super) fn origin(ends: &Ends, dir: &Path) -> Result<Daemon> {
    let mut command = ends.left.command(program("iperf3"));
    command.args(["-s", "-1", "-p", &ORIGIN.to_string()]);
    let origin = Daemon::start("origin", dir, with_intervals(&mut command));
    wait(|| ends.left.listens(ORIGIN))?;
    Ok(origin)
}

/// Runs a visitor at the right end. Returns the receiver's rate in each whole second, in Mbit/s.
pub(super) fn visit(
    ends: &Ends,
    address: SocketAddr,
    way: Way,
    seconds: u32,
    dir: &Path,
    mut origin: Daemon,
) -> Vec<f64> {
    let mut command = ends.right.command(program("iperf3"));
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["-c", &host, "-p", &port, "-t", &seconds.to_string()]);
    if way == Way::Down {
        command.arg("-R");
    }
    let mut visitor = Daemon::start("visitor", dir, with_intervals(&mut command));
    let start = Instant::now();
    let limit = Duration::from_secs(seconds.into()) + GRACE;
    let rates = loop {
        let receiver = if way == Way::Up { &mut origin } else { &mut visitor };
        // Check the end first: then all output before the end is read below.
        let is_over = !receiver.is_running() || start.elapsed() > limit;
        let mut rates = intervals(&receiver.log());
        if is_over || rates.len() >= seconds as usize {
            rates.truncate(seconds as usize);
            break rates;
        }
        sleep(ASK);
    };
    visitor.kill();
    origin.kill();
    rates
}

/// Waits until `ready` is true, for at most half a minute.
pub(super) fn wait(ready: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !ready() {
        ensure!(start.elapsed() < Duration::from_secs(30), "not ready within 30 s");
        sleep(ASK);
    }
    Ok(())
}

/// Makes iperf3 print Kbit/s of each second as soon as the second is over.
fn with_intervals(command: &mut Command) -> &mut Command {
    command.args(["-i", "1", "-f", "k", "--forceflush"])
}

/// Rates of the whole seconds, in Mbit/s, of `[  5]   0.00-1.00   sec  11.5 MBytes  96234 Kbits/sec
/// …`.
fn intervals(text: &str) -> Vec<f64> {
    let rate = |line: &str| {
        let mut words = line.split_once(']')?.1.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let length = to.parse::<f64>().ok()? - from.parse::<f64>().ok()?;
        let rate = words.nth(3)?.parse::<f64>().ok()? / 1000.0;
        (length > 0.9).then_some(rate)
    };
    // The summary comes after the line of dashes.
    text.lines().take_while(|line| !line.starts_with("- -")).filter_map(rate).collect()
}

/// Makes an empty folder, without files of an earlier run.
pub(super) fn fresh(dir: &Path) -> Result<()> {
    // The folder may be missing.
    let _ = fs::remove_dir_all(dir);
    Ok(fs::create_dir_all(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_read_and_the_summary_is_not() {
        let text = "\
Accepted connection from 198.18.0.2, port 40000
[  5] local 198.18.0.1 port 5201 connected to 198.18.0.2 port 40002
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-1.00   sec  11.5 MBytes  96234 Kbits/sec
[  5]   1.00-2.00   sec  0.00 Bytes  0.00 Kbits/sec
[  5]   2.00-2.05   sec   500 KBytes  81920 Kbits/sec
- - - - - - - - - - - - - - - - - - - - - - - - -
[  5]   0.00-2.05   sec  12.0 MBytes  49103 Kbits/sec                  receiver
";
        assert_eq!(intervals(text), [96.234, 0.0]);
        assert!(intervals("iperf3: error - unable to connect").is_empty());
    }
}
