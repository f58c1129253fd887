//! The programs of `load` (package `benches`). Each prints a line of JSON. The line counts failed
//! operations, and any failure is an error here.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Done, program};
use crate::bench::figure::{Figure, Sample};
use crate::systems::Login;

/// Connection attempts in progress: enough to keep two cores busy.
const CONCURRENCY: &str = "16";

/// Source addresses. One address has 28,000 ports towards one target, and at 20,000 connections per
/// second a closed connection keeps its port for too long.
const SOURCES: &str = "16";

/// `load connections` to an echo.
pub(super) fn connections(
    load: &Path,
    target: SocketAddr,
    seconds: f64,
    deadline: Duration,
) -> Result<Done> {
    let mut command = Command::new(load);
    command.args(["connections", "--target", &target.to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    command.args(["--concurrency", CONCURRENCY, "--sources", SOURCES]);
    parse_connections(&program::run(&mut command, deadline)?)
}

/// `load bulk` to a sink or from a source, or to a proxy that is asked for it.
pub(super) fn bulk(
    load: &Path,
    (proxy, target): (Option<SocketAddr>, SocketAddr),
    down: bool,
    seconds: f64,
    deadline: Duration,
) -> Result<Done> {
    let mut command = Command::new(load);
    command.args(["bulk", "--target", &target.to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    command.args(["--direction", if down { "down" } else { "up" }]);
    if let Some(proxy) = proxy {
        command.args(["--socks5", &proxy.to_string()]);
    }
    parse_bulk(&program::run(&mut command, deadline)?)
}

fn parse_bulk(said: &str) -> Result<Done> {
    let report = good_report(said)?;
    let (rate, bytes) = (number(&report, "gbit_per_s")?, number(&report, "bytes")?);
    ensure!(bytes > 0.0, "load bulk: nothing arrived");
    Ok(Done { sample: Sample::from([(Figure::Rate, rate)]), units: bytes / 1e9 })
}

/// `load echo` beside a bulk stream, in one direction and then in the other. The worse value of
/// each figure counts.
pub(super) fn echo_beside_bulk(
    load: &Path,
    [echo, sink, source]: [SocketAddr; 3],
    seconds: f64,
    deadline: Duration,
) -> Result<Done> {
    let mut worst: Option<Sample> = None;
    for bulk in [format!("sink:{sink}"), format!("source:{source}")] {
        let mut command = Command::new(load);
        command.args(["echo", "--target", &echo.to_string(), "--bulk", &bulk]);
        command.args(["--seconds", &seconds.to_string()]);
        let sample = parse_echo(&program::run(&mut command, deadline)?)?;
        worst = Some(match worst {
            None => sample,
            Some(worst) => worse(&worst, &sample),
        });
    }
    Ok(Done { sample: worst.unwrap_or_default(), units: 0.0 })
}

/// `load storm`: all clients log in, lose their server at the same moment, and log in again.
pub(super) fn storm(
    load: &Path,
    login: Option<&Login>,
    clients: u32,
    deadline: Duration,
) -> Result<Done> {
    let Login { server, token_file, authority } = login.context("its server takes no clients")?;
    let mut command = Command::new(load);
    command.args(["storm", "--server", server, "--clients", &clients.to_string()]);
    command.arg("--token-file").arg(token_file);
    if let Some(authority) = authority {
        command.arg("--ca").arg(authority);
    }
    parse_storm(&program::run(&mut command, deadline)?)
}

fn parse_storm(said: &str) -> Result<Done> {
    let report = good_report(said)?;
    let (clients, seconds) = (number(&report, "clients")?, number(&report, "seconds")?);
    ensure!(report["event"] == "end" && seconds > 0.0, "load storm: it never came to its end");
    // The processor time covers both logins.
    Ok(Done { sample: Sample::from([(Figure::Rate, clients / seconds)]), units: 2.0 * clients })
}

fn worse(one: &Sample, other: &Sample) -> Sample {
    let of_both = one.iter().filter_map(|(figure, value)| {
        let other = *other.get(figure)?;
        let is_rate = matches!(figure, Figure::Rate | Figure::BulkBeside);
        let worse = if is_rate { value.min(other) } else { value.max(other) };
        Some((*figure, worse))
    });
    of_both.collect()
}

fn parse_connections(said: &str) -> Result<Done> {
    let report = good_report(said)?;
    let (rate, count) = (number(&report, "connections_per_s")?, number(&report, "connections")?);
    ensure!(count > 0.0, "load connections: none was made");
    let mut sample = Sample::from([(Figure::Rate, rate)]);
    add_latencies(&mut sample, &report, &[("p50", Figure::P50), ("p99", Figure::P99)])?;
    Ok(Done { sample, units: count })
}

fn parse_echo(said: &str) -> Result<Sample> {
    let report = good_report(said)?;
    check(&report["bulk"])?;
    let moved = number(&report["bulk"], "gbit_per_s")?;
    let (count, seconds) = (number(&report, "exchanges")?, number(&report, "seconds")?);
    ensure!(
        moved > 0.0 && count > 0.0 && seconds > 0.0,
        "load echo: {count} echoes beside {moved} Gbit/s"
    );
    let mut sample = Sample::from([(Figure::Rate, count / seconds), (Figure::BulkBeside, moved)]);
    let percentiles = [("p50", Figure::P50), ("p99", Figure::P99), ("p999", Figure::P999)];
    add_latencies(&mut sample, &report, &percentiles)?;
    Ok(sample)
}

/// Parses the last line of the report. A failed operation is an error.
pub(super) fn good_report(said: &str) -> Result<Value> {
    let line = said.lines().last().context("load said nothing")?;
    let report: Value = serde_json::from_str(line).context("load: no JSON")?;
    check(&report)?;
    Ok(report)
}

fn check(report: &Value) -> Result<()> {
    let errors = number(report, "errors")?;
    if errors > 0.0 {
        let program = report["program"].as_str().unwrap_or_default();
        bail!("load {program}: {errors} failed: {}", report["failures"]);
    }
    Ok(())
}

pub(super) fn number(report: &Value, name: &str) -> Result<f64> {
    report[name].as_f64().with_context(|| format!("load: no {name}"))
}

/// The report has microseconds, the sample milliseconds.
fn add_latencies(sample: &mut Sample, report: &Value, wanted: &[(&str, Figure)]) -> Result<()> {
    for (name, figure) in wanted {
        sample.insert(*figure, number(&report["latency_us"], name)? / 1e3);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = r#""latency_us":{"count":6000,"mean":400.0,"p50":390.5,"p90":500.0,"p99":1200.0,"p999":9000.0,"max":9100.0}"#;

    fn connections(errors: &str) -> String {
        format!(
            "{{\"program\":\"connections\",\"concurrency\":16,\"seconds\":1.5,\"connections\":6000,\
             \"connections_per_s\":4000.0,{LATENCY},{errors}}}\n"
        )
    }

    fn echo(errors: &str, bulk: &str) -> String {
        format!(
            "{{\"program\":\"echo\",\"seconds\":2.0,\"exchanges\":6000,{LATENCY},{errors},\
             \"bulk\":{{\"program\":\"bulk\",\"gbit_per_s\":8.5,{bulk}}}}}\n"
        )
    }

    const GOOD: &str = "\"errors\":0,\"failures\":{}";
    const BAD: &str = "\"errors\":3,\"failures\":{\"refused\":2,\"reset\":1}";

    #[test]
    fn reports_become_figures_in_milliseconds() {
        let done = parse_connections(&connections(GOOD)).unwrap();
        let wanted = [(Figure::Rate, 4000.0), (Figure::P50, 0.3905), (Figure::P99, 1.2)];
        assert_eq!((done.sample, done.units), (Sample::from(wanted), 6000.0));
        let sample = parse_echo(&echo(GOOD, GOOD)).unwrap();
        assert_eq!(sample[&Figure::Rate], 3000.0);
        assert_eq!((sample[&Figure::P999], sample[&Figure::BulkBeside]), (9.0, 8.5));
    }

    #[test]
    fn the_bytes_of_a_transfer_are_its_work() {
        let line = |bytes: u64| {
            format!("{{\"program\":\"bulk\",\"bytes\":{bytes},\"gbit_per_s\":8.0,{GOOD}}}\n")
        };
        let done = parse_bulk(&line(2_000_000_000)).unwrap();
        assert_eq!((done.sample[&Figure::Rate], done.units), (8.0, 2.0));
        assert!(parse_bulk(&line(0)).is_err());
    }

    #[test]
    fn what_failed_is_an_error_also_beside_an_echo() {
        let error = parse_connections(&connections(BAD)).unwrap_err().to_string();
        assert_eq!(error, "load connections: 3 failed: {\"refused\":2,\"reset\":1}");
        assert!(parse_echo(&echo(BAD, GOOD)).unwrap_err().to_string().contains("load echo: 3"));
        assert!(parse_echo(&echo(GOOD, BAD)).unwrap_err().to_string().contains("load bulk: 3"));
        assert!(parse_connections("").is_err());
        assert!(parse_connections("{\"errors\":0}\n").is_err());
    }

    #[test]
    fn a_storm_is_over_when_all_are_back() {
        let line = |event: &str, errors: u32| {
            format!(
                "{{\"program\":\"storm\",\"event\":\"{event}\",\"clients\":2000,\"live\":2000,\
                 \"seconds\":0.5,\"attempts_failed\":0,\"errors\":{errors}}}\n"
            )
        };
        let done = parse_storm(&(line("live", 0) + &line("end", 0))).unwrap();
        assert_eq!((done.sample[&Figure::Rate], done.units), (4000.0, 4000.0));
        assert!(parse_storm(&line("live", 0)).unwrap_err().to_string().contains("never"));
        assert!(parse_storm(&line("end", 3)).unwrap_err().to_string().contains("load storm: 3"));
    }

    #[test]
    fn the_worse_direction_counts() {
        let up = Sample::from([(Figure::Rate, 3.0), (Figure::P50, 1.0), (Figure::P99, 9.0)]);
        let down = Sample::from([(Figure::Rate, 2.0), (Figure::P50, 2.0), (Figure::P99, 8.0)]);
        let wanted = [(Figure::Rate, 2.0), (Figure::P50, 2.0), (Figure::P99, 9.0)];
        assert_eq!(worse(&up, &down), Sample::from(wanted));
    }
}
