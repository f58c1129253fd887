//! h2load: its command line and its report, which is text for people.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::Done;
use crate::bench::figure::{Figure, Sample};

pub(super) fn command(url: &str, address: SocketAddr, streams: u32, seconds: f64) -> Command {
    let mut command = Command::new("h2load");
    command.args(["-t1", "-c1", &format!("-m{streams}")]);
    // h2load takes whole seconds only.
    command.arg(format!("-D{}", seconds.ceil().max(1.0)));
    command.args([&format!("--connect-to={address}"), url]);
    command
}

/// Reads a report. A request that failed is an error, and so is another protocol than HTTP/2.
pub(super) fn parse(report: &str) -> Result<Done> {
    let after = |words: &str| {
        let line = report.lines().find_map(|line| line.trim().strip_prefix(words));
        line.map(str::trim).with_context(|| format!("h2load: no line {words}"))
    };
    let protocol = after("Application protocol:")?;
    ensure!(protocol == "h2", "h2load: the protocol is {protocol}");
    let requests = after("requests:")?;
    let counted = |what: &str| -> Result<u64> {
        let count = requests.split(", ").find_map(|part| part.strip_suffix(what));
        count.and_then(|count| count.trim().parse().ok()).context("h2load: no count of requests")
    };
    let (done, good) = (counted(" done")?, counted(" succeeded")?);
    ensure!(good > 0, "h2load: no request was answered");
    if done != good || counted(" failed")? > 0 || report.contains("Process Request Failure") {
        bail!("h2load: requests: {requests}");
    }
    let rate =
        after("finished in")?.split(", ").nth(1).and_then(|rate| rate.strip_suffix(" req/s"));
    let rate: f64 = rate.and_then(|rate| rate.parse().ok()).context("h2load: no rate")?;
    let sample = Sample::from([(Figure::Rate, rate)]);
    Ok(Done { sample, units: good as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
Application protocol: h2

finished in 2.00s, 48123.50 req/s, 1.61MB/s
requests: 96247 total, 96347 started, 96247 done, 96247 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 96247 2xx, 0 3xx, 0 4xx, 0 5xx
";

    #[test]
    fn a_report_is_read() {
        let done = parse(GOOD).unwrap();
        assert_eq!(done.units, 96_247.0);
        assert_eq!(done.sample, Sample::from([(Figure::Rate, 48_123.5)]));
    }

    #[test]
    fn failures_and_other_protocols_are_errors() {
        for (from, to) in [
            ("0 failed", "3 failed"),
            ("96247 succeeded", "96240 succeeded"),
            ("h2\n", "http/1.1\n"),
            ("finished", "Process Request Failure:1\nfinished"),
        ] {
            assert!(parse(&GOOD.replacen(from, to, 1)).is_err(), "{to}");
        }
    }
}
