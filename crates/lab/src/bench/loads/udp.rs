//! `load udp`: the highest rate of datagrams that gets through, and 80 % of that rate. Processor
//! time is that of the 80 %: above it, daemons also work on datagrams that are dropped later.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::ours::{good_report, number};
use super::{Done, program};
use crate::bench::daemons;
use crate::bench::figure::{Figure, Sample};

/// Runs `load udp --search`: offers of half of `seconds` find the best one, which is measured for
/// `seconds`, and so is 80 % of the rate that it has reached.
pub(super) fn measure(
    load: &Path,
    target: SocketAddr,
    payload: u32,
    pids: &[u32],
    seconds: f64,
    deadline: Duration,
) -> Result<Done> {
    let mut command = Command::new(load);
    command.args(["udp", "--search", "--target", &target.to_string()]);
    command.args(["--payload", &payload.to_string(), "--seconds", &seconds.to_string()]);
    let (mut before, mut after, mut said) = (None, None, String::new());
    program::run_lines(&mut command, deadline, |line| {
        line.clone_into(&mut said);
        let report: Value = serde_json::from_str(line).context("load: no JSON")?;
        let cpu = daemons::cpu(pids).context("a daemon has ended")?;
        *if report["event"] == "reached" { &mut before } else { &mut after } = Some(cpu);
        Ok(())
    })?;
    let mut done = parse(&said)?;
    let used = after.zip(before).context("load udp: it has not searched")?;
    if !pids.is_empty() {
        let used = used.0.saturating_sub(used.1).as_secs_f64();
        done.sample.insert(Figure::CpuPerPacket, used * 1e6 / done.units);
    }
    Ok(done)
}

fn parse(said: &str) -> Result<Done> {
    let report = good_report(said)?;
    let (rate, received) = (number(&report, "reached_per_s")?, number(&report, "received")?);
    ensure!(rate > 0.0 && received > 0.0, "load udp: nothing arrived");
    let loss = number(&report, "loss")? * 100.0;
    let sample = Sample::from([(Figure::Rate, rate), (Figure::CalmLoss, loss)]);
    Ok(Done { sample, units: received })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(received: u64, errors: u64) -> String {
        format!(
            "{{\"program\":\"udp\",\"event\":\"end\",\"reached_per_s\":250000.0,\"received\":{received},\
             \"loss\":0.0025,\"errors\":{errors},\"failures\":{{}}}}\n"
        )
    }

    #[test]
    fn a_report_becomes_a_rate_and_a_loss_in_percent() {
        let done = parse(&line(400_000, 0)).unwrap();
        let wanted = [(Figure::Rate, 250_000.0), (Figure::CalmLoss, 0.25)];
        assert_eq!((done.sample, done.units), (Sample::from(wanted), 400_000.0));
    }

    #[test]
    fn nothing_that_arrived_is_an_error() {
        assert!(parse(&line(0, 0)).is_err());
        assert!(parse(&line(5, 1)).is_err());
        assert!(parse("").is_err());
    }
}
