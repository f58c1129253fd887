//! iperf3: its command line and its report in JSON.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::Done;
use crate::bench::figure::{Figure, Sample};

pub(super) fn command(
    target: std::net::SocketAddr,
    streams: u32,
    down: bool,
    seconds: f64,
) -> Command {
    let mut command = Command::new("iperf3");
    command.arg("-J").args(["-c", &target.ip().to_string(), "-p", &target.port().to_string()]);
    // iperf3 takes whole seconds only.
    command.args(["-t", &seconds.ceil().max(1.0).to_string(), "-P", &streams.to_string()]);
    if down {
        command.arg("-R");
    }
    command
}

/// Reads a report. The received bytes count.
pub(super) fn parse(report: &str) -> Result<Done> {
    let report: Value = serde_json::from_str(report).context("iperf3: no report")?;
    if let Some(error) = report.get("error") {
        bail!("iperf3: {}", error.as_str().unwrap_or_default());
    }
    let arrived = &report["end"]["sum_received"];
    let field = |name| arrived[name].as_f64().with_context(|| format!("iperf3: no {name}"));
    let (bits, bytes) = (field("bits_per_second")?, field("bytes")?);
    ensure!(bytes > 0.0, "iperf3: nothing arrived");
    Ok(Done { sample: Sample::from([(Figure::Rate, bits / 1e9)]), units: bytes / 1e9 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened: intervals and streams are left out.
    const GOOD: &str = r#"{
        "start": { "version": "iperf 3.12" },
        "intervals": [],
        "end": {
            "sum_sent": {
                "start": 0, "end": 1.002767, "seconds": 1.002767, "bytes": 432537600,
                "bits_per_second": 3450752567.6453257, "retransmits": 43, "sender": true
            },
            "sum_received": {
                "start": 0, "end": 1.003385, "seconds": 1.003385, "bytes": 425459712,
                "bits_per_second": 3392195115.533918, "sender": true
            }
        }
    }"#;

    #[test]
    fn what_arrived_is_the_rate_and_the_work() {
        let done = parse(GOOD).unwrap();
        assert_eq!(done.sample, Sample::from([(Figure::Rate, 3.392_195_115_533_918)]));
        assert_eq!(done.units, 0.425_459_712);
    }

    #[test]
    fn errors_and_empty_transfers_are_errors() {
        let refused = r#"{ "start": {}, "intervals": [], "end": {},
            "error": "unable to connect to server: Connection refused" }"#;
        assert!(parse(refused).unwrap_err().to_string().contains("Connection refused"));
        assert!(parse("").is_err());
        assert!(parse("{}").is_err());
        let empty = GOOD.replace("425459712", "0");
        assert!(parse(&empty).unwrap_err().to_string().contains("nothing arrived"));
    }
}
