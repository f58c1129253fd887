//! All results of a run.

use super::machine::Machine;
use super::outcome::Outcome;

/// All results of a run.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) machine: Machine,
    /// The versions of the programs and systems of the run.
    pub(super) versions: Vec<(&'static str, String)>,
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    /// Systems that cannot be started on this machine, with the reasons.
    pub(super) left_out: Vec<(&'static str, String)>,
    pub(super) outcomes: Vec<Outcome>,
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::case::DIRECT;
    use super::super::outcome::tests::{outcome, row};
    use super::*;

    /// A small run with an example of every result.
    pub(in crate::bench) fn results() -> Results {
        let rows = vec![
            row(DIRECT, &[100.0, 200.0, 100.0]),
            row("tunnel-tcp", &[50.0, 90.0, 50.0]),
            row("haproxy-2hop", &[30.0, 60.0, f64::NAN]),
        ];
        Results {
            machine: Machine {
                cpu: "AMD EPYC".to_owned(),
                cores: 2,
                kernel: "6.1".to_owned(),
                memory_mib: 4096,
                congestion: "cubic".to_owned(),
                date: "2026-11-21T17:00:00Z".to_owned(),
                commit: "4b2af42e0c1d".to_owned(),
            },
            versions: vec![("wrk", "wrk 4.1.0".to_owned())],
            rounds: 3,
            seconds: 1.0,
            left_out: vec![("rathole-tcp", "not installed: rathole".to_owned())],
            outcomes: vec![outcome("http-100", rows)],
        }
    }
}
