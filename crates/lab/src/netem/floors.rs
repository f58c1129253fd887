//! Floors of `quic://`, `kcp://` and direct paths on some paths: shares of the rate of another
//! system in the same run, or of the path's rate.

use testkit::stage::Scheme;

use super::cell::{Cell, MATRIX_RATE};
use super::report::Measured;
use super::systems::System;

/// The least share of a reference rate.
#[derive(Clone, Copy, Debug)]
struct Floor {
    system: System,
    /// The path: round-trip time in ms, loss in percent.
    rtt: f64,
    loss: f64,
    of: Of,
    least: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// The rate of `tls://` over the kernel's TCP, in all seconds of both.
    Tls,
    /// The rate of `quic://`, in all seconds of both.
    Quic,
    /// The rate of the bottleneck, after the start.
    Rate,
}

const FLOORS: [Floor; 12] = [
    Floor { system: QUIC, rtt: 60.0, loss: 0.0, of: Of::Tls, least: 1.0 },
    Floor { system: QUIC, rtt: 60.0, loss: 1.0, of: Of::Tls, least: 1.0 },
    Floor { system: QUIC, rtt: 60.0, loss: 5.0, of: Of::Tls, least: 1.4 },
    Floor { system: QUIC, rtt: 100.0, loss: 5.0, of: Of::Rate, least: 0.85 },
    Floor { system: QUIC, rtt: 100.0, loss: 10.0, of: Of::Rate, least: 0.75 },
    // Its start takes about four seconds, so this floor is of runs of twelve.
    Floor { system: QUIC, rtt: 100.0, loss: 20.0, of: Of::Rate, least: 0.6 },
    Floor { system: System::Peer, rtt: 60.0, loss: 1.0, of: Of::Quic, least: 0.95 },
    // What the engine reaches in virtual time, less 5 %: its start is over after four seconds, too.
    Floor { system: KCP, rtt: 100.0, loss: 0.0, of: Of::Rate, least: 0.90 },
    Floor { system: KCP, rtt: 100.0, loss: 1.0, of: Of::Rate, least: 0.88 },
    Floor { system: KCP, rtt: 100.0, loss: 5.0, of: Of::Rate, least: 0.84 },
    Floor { system: KCP, rtt: 100.0, loss: 10.0, of: Of::Rate, least: 0.79 },
    Floor { system: KCP, rtt: 100.0, loss: 20.0, of: Of::Rate, least: 0.65 },
];

/// The seconds that a start may take.
const START: usize = 2;

const TLS: System = System::Tunnel(Scheme::TLS);
const QUIC: System = System::Tunnel(Scheme::QUIC);
const KCP: System = System::Tunnel(Scheme::KCP);

/// Prints a line for each floor with complete measurements. Returns whether all these floors are
/// met.
pub(super) fn print(matrix: &[Measured]) -> bool {
    let mut are_held = true;
    for floor in FLOORS {
        let Some(share) = floor.share(matrix) else { continue };
        let Floor { system, rtt, loss, of, least } = floor;
        let name = system.name();
        let of = match of {
            Of::Tls => "of tunnel-tls",
            Of::Quic => "of tunnel-quic",
            Of::Rate => "of the rate, after the start",
        };
        let is_held = share >= least;
        let verdict = if is_held { "held" } else { "missed" };
        println!("{rtt} ms, {loss} %: {name} {share:.3} {of}; floor {least}: {verdict}");
        are_held &= is_held;
    }
    are_held
}

impl Floor {
    /// The share over both directions. `None` without such a measurement. 0 if the reference is 0,
    /// because a failed `tls://` would otherwise make a floor that is always met.
    fn share(self, matrix: &[Measured]) -> Option<f64> {
        let system = self.system;
        let (own, against) = match self.of {
            Of::Tls => (self.means(matrix, system, 0), self.means(matrix, TLS, 0)),
            Of::Quic => (self.means(matrix, system, 0), self.means(matrix, QUIC, 0)),
            Of::Rate => (self.means(matrix, system, START), vec![MATRIX_RATE]),
        };
        let share = mean(&own)? / mean(&against)?;
        Some(if against.contains(&0.0) { 0.0 } else { share })
    }

    /// Mbit/s of a system from the second `from` on. A failed system counts as 0.
    fn means(self, matrix: &[Measured], of: System, from: usize) -> Vec<f64> {
        let is_meant = |Cell { system, path, .. }: &Cell| {
            let (rtt, loss, rate) = (self.rtt, self.loss, Some(MATRIX_RATE));
            *system == of && (path.rtt, path.loss, path.rate) == (rtt, loss, rate)
        };
        let meant = matrix.iter().filter(|measured| is_meant(measured.cell()));
        meant.map(|measured| measured.mean_from(from)).collect()
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::super::path::Path;
    use super::super::report::Figures;
    use super::super::stream::Way;
    use super::super::wire::Report;
    use super::*;

    fn measured(system: System, [rtt, loss]: [f64; 2], way: Way, rates: &[f64]) -> Measured {
        let path = Path { rtt, loss, rate: Some(MATRIX_RATE), ..Path::default() };
        let cell = Cell { system, way, path, seconds: 5 };
        let wire = Report::default();
        let figures = Figures { rates: rates.to_vec(), cpu: 0.0, wire, overruns: 0, resent: 0 };
        Measured::new(&cell, Ok(figures))
    }

    #[test]
    fn both_ways_together_are_held_against_tls_with_the_start() {
        let path = [60.0, 0.0];
        let tls = || Way::BOTH.map(|way| measured(TLS, path, way, &[60.0, 96.0]));
        for (up, down, is_held) in [(97.0, 95.0, true), (96.0, 95.0, false), (95.0, 98.0, true)] {
            let quic = [(Way::Up, up), (Way::Down, down)]
                .map(|(way, rate)| measured(QUIC, path, way, &[60.0, rate]));
            let matrix: Vec<_> = tls().into_iter().chain(quic).collect();
            assert_eq!(print(&matrix), is_held);
        }
    }

    #[test]
    fn of_the_rate_counts_what_comes_after_the_start() {
        let path = [100.0, 5.0];
        assert!(print(&[measured(QUIC, path, Way::Up, &[1.0, 2.0, 84.0, 86.0])]));
        assert!(!print(&[measured(QUIC, path, Way::Up, &[90.0, 90.0, 84.0, 85.0])]));
        assert!(!print(&[measured(QUIC, path, Way::Up, &[90.0])]), "nothing after it");
    }

    #[test]
    fn what_failed_made_nothing_and_what_was_not_measured_is_not_judged() {
        let good = measured(QUIC, [100.0, 5.0], Way::Up, &[90.0; 5]);
        let failed = Measured::new(&good.cell().clone(), Err(anyhow!("no way")));
        assert!(!print(&[good, failed]));
        assert!(print(&[measured(QUIC, [60.0, 0.0], Way::Up, &[90.0])]), "no tls to compare");
        let [tls, quic] = [TLS, QUIC].map(|of| measured(of, [60.0, 0.0], Way::Up, &[90.0]));
        let failed = Measured::new(&tls.cell().clone(), Err(anyhow!("no way")));
        assert!(!print(&[quic, tls, failed]), "tls failed, which proves nothing");
        assert!(print(&[measured(QUIC, [20.0, 0.0], Way::Up, &[1.0])]), "no floor");
    }
}
