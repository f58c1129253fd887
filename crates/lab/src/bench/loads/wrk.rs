//! wrk: its command line and its report, which is text for people.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::Done;
use crate::bench::figure::{Figure, Sample};

/// A response that takes longer is a failed request. The slowest peers need 2 s with 10,000
/// connections on two cores.
const PATIENCE: &str = "10s";

/// Leads the host of systems by name to loopback. Without functions for requests or responses, wrk
/// runs no script while it measures.
const RESOLVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bench/loads/resolve.lua");

pub(super) fn command(url: &str, connections: u32, seconds: f64) -> Command {
    let mut command = Command::new("wrk");
    command.args(["-t1", "--latency", "--timeout", PATIENCE]);
    command.arg(format!("-c{connections}"));
    // wrk takes whole seconds only.
    command.arg(format!("-d{}s", seconds.ceil().max(1.0)));
    command.args(["-s", RESOLVE, url]);
    command
}

/// Reads a report. A failed request is an error.
pub(super) fn parse(report: &str) -> Result<Done> {
    for line in report.lines().map(str::trim) {
        if line.starts_with("Socket errors:") || line.starts_with("Non-2xx") {
            bail!("wrk: {line}");
        }
    }
    let after = |words: &str| {
        let line = report.lines().find_map(|line| line.trim().strip_prefix(words));
        line.map(str::trim).with_context(|| format!("wrk: no line {words}"))
    };
    let rate: f64 = after("Requests/sec:")?.parse().context("wrk: Requests/sec")?;
    let count = report.lines().find_map(|line| line.trim().split_once(" requests in "));
    let count: u64 = count.context("wrk: no count of requests")?.0.parse().context("wrk: count")?;
    ensure!(count > 0, "wrk: no request was answered");
    let sample = Sample::from([
        (Figure::Rate, rate),
        (Figure::P50, milliseconds(after("50%")?)?),
        (Figure::P99, milliseconds(after("99%")?)?),
    ]);
    Ok(Done { sample, units: count as f64 })
}

/// Reads the report of a download: the bytes count, complete answers or not.
pub(super) fn parse_bytes(report: &str) -> Result<Done> {
    parse(report)?;
    let line = report.lines().find_map(|line| line.trim().strip_suffix(" read"));
    let (before, size) = line.and_then(|line| line.split_once(", ")).context("wrk: no bytes")?;
    let (_, time) = before.split_once(" in ").context("wrk: no time")?;
    let (gigabytes, seconds) = (bytes(size)? / 1e9, milliseconds(time)? / 1e3);
    ensure!(seconds > 0.0 && gigabytes > 0.0, "wrk: nothing arrived");
    let sample = Sample::from([(Figure::Rate, gigabytes * 8.0 / seconds)]);
    Ok(Done { sample, units: gigabytes })
}

/// `4.19MB`. The units are powers of 1,024.
fn bytes(text: &str) -> Result<f64> {
    let (digits, unit) =
        text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let power = match unit {
        "B" => 0,
        "KB" => 1,
        "MB" => 2,
        "GB" => 3,
        "TB" => 4,
        _ => bail!("wrk: {text} is no size"),
    };
    let digits: f64 = digits.parse().ok().with_context(|| format!("wrk: {text} is no size"))?;
    Ok(digits * 1024_f64.powi(power))
}

/// `1.19ms`, `141.00us`, `2.01s`.
fn milliseconds(text: &str) -> Result<f64> {
    let (digits, unit) =
        text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let factor = match unit {
        "us" => 0.001,
        "ms" => 1.0,
        "s" => 1_000.0,
        "m" => 60_000.0,
        _ => bail!("wrk: {text} is no time"),
    };
    let digits: f64 = digits.parse().ok().with_context(|| format!("wrk: {text} is no time"))?;
    Ok(digits * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
Running 1s test @ http://127.0.0.1:11999/
  1 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.65ms    3.71ms  17.30ms   79.15%
    Req/Sec    29.28k    25.04k   73.45k    80.00%
  Latency Distribution
     50%  190.00us
     75%    5.89ms
     90%    8.62ms
     99%    1.51s
  29296 requests in 1.03s, 4.19MB read
Requests/sec:  28479.08
Transfer/sec:      4.07MB
";

    #[test]
    fn a_report_is_read_with_all_units_of_time() {
        let done = parse(GOOD).unwrap();
        assert_eq!(done.units, 29_296.0);
        let wanted = [(Figure::Rate, 28_479.08), (Figure::P50, 0.19), (Figure::P99, 1_510.0)];
        assert_eq!(done.sample, Sample::from(wanted));
    }

    #[test]
    fn the_bytes_of_a_download_are_read() {
        let done = parse_bytes(GOOD).unwrap();
        let gigabytes = 4.19 * 1_048_576.0 / 1e9;
        assert!((done.units - gigabytes).abs() < 1e-9, "{done:?}");
        let rate = done.sample[&Figure::Rate];
        assert!((rate - gigabytes * 8.0 / 1.03).abs() < 1e-9, "{rate}");
        assert!(parse_bytes(&GOOD.replace(" read", "")).is_err());
        assert!(parse_bytes(&GOOD.replace("4.19MB", "4.19XB")).is_err());
    }

    #[test]
    fn failed_requests_and_cut_reports_are_errors() {
        for line in [
            "  Socket errors: connect 45, read 0, write 0, timeout 0",
            "  Non-2xx or 3xx responses: 11730",
        ] {
            let error = parse(&format!("{GOOD}{line}\n")).unwrap_err().to_string();
            assert!(error.contains(line.trim()), "{error}");
        }
        for gone in ["Requests/sec", "50%", "99%", "requests in"] {
            let report: String = GOOD.lines().filter(|line| !line.contains(gone)).collect();
            assert!(parse(&report).is_err(), "{gone}");
        }
        let idle = GOOD.replace("29296 requests in", "0 requests in");
        assert!(parse(&idle).unwrap_err().to_string().contains("no request"));
    }
}
