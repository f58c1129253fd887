//! The results of a run: a line each, tables, and a JSON file.

use std::fmt;
use std::fs;
use std::path::Path as File;

use anyhow::Result;
use serde_json::{Value, json};

use super::cell::{CASE_FLOOR, CASE_RATE, CASE_RTT, CASE_SECONDS, Cell};
use super::ends::Ends;
use super::path::Path;
use super::stream::Way;
use super::systems::System;
use super::wire;

/// The figures of one measurement.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// Mbit/s in each second.
    pub(super) rates: Vec<f64>,
    /// Seconds of processor time of all daemons.
    pub(super) cpu: f64,
    pub(super) wire: wire::Report,
    /// Packets that the wire was too slow for.
    pub(super) overruns: u64,
    /// Segments that TCP retransmitted at both ends, including loopback.
    pub(super) resent: u64,
}

impl Figures {
    /// The mean over all seconds.
    fn mean(&self) -> f64 {
        mean(&self.rates)
    }

    /// The first second, counted from 1, in which the case's share of its rate arrived.
    fn reached(&self) -> Option<usize> {
        self.rates.iter().position(|rate| *rate >= CASE_FLOOR * CASE_RATE).map(|index| index + 1)
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// A measurement with its figures or its error.
#[derive(Debug)]
pub(super) struct Measured {
    cell: Cell,
    figures: Result<Figures, String>,
}

impl Measured {
    pub(super) fn new(cell: &Cell, figures: Result<Figures>) -> Self {
        let figures = figures.and_then(|figures| {
            anyhow::ensure!(!figures.rates.is_empty(), "no byte within the time");
            Ok(figures)
        });
        Self { cell: cell.clone(), figures: figures.map_err(|error| format!("{error:#}")) }
    }

    pub(super) const fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Mbit/s: the mean of all seconds from `second` on. 0 if there are none.
    pub(super) fn mean_from(&self, second: usize) -> f64 {
        self.figures
            .as_ref()
            .map_or(0.0, |figures| mean(figures.rates.get(second..).unwrap_or(&[])))
    }

    fn json(&self) -> Value {
        let Cell { system, way, path, seconds } = &self.cell;
        let mut value = json!({
            "system": system.name(), "way": way.name(), "rtt_ms": path.rtt, "loss_percent": path.loss,
            "rate_mbit": path.rate, "seconds": seconds,
        });
        match &self.figures {
            Err(error) => value["error"] = json!(error),
            Ok(figures) => {
                let wire = &figures.wire;
                value["mbit"] = json!(figures.mean());
                value["mbit_per_second"] = json!(figures.rates);
                value["daemons_cpu_seconds"] = json!(figures.cpu);
                value["resent_segments"] = json!(figures.resent);
                value["wire"] = json!({
                    "late_p99_us": wire.lateness.quantile(0.99).as_micros(),
                    "late_most_us": wire.lateness.most().as_micros(),
                    "load": wire.load,
                    "overruns": figures.overruns,
                    "refused": wire.refused,
                    "lost": wire.ways.map(|way| way.lost),
                    "dropped": wire.ways.map(|way| way.dropped),
                    "arrived": wire.ways.map(|way| way.arrived),
                });
            }
        }
        value
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { system, way, path, .. } = &self.cell;
        let (system, way) = (system.name(), way.name());
        write!(f, "{system:10} {way:4} {:3} ms {:4} %  ", path.rtt, path.loss)?;
        match &self.figures {
            Err(error) => write!(f, "-  {error}"),
            Ok(figures) => {
                write!(f, "{:6.1} :", figures.mean())?;
                for rate in &figures.rates {
                    write!(f, " {rate:.0}")?;
                }
                let wire = of_wire(&figures.wire, figures.overruns);
                write!(f, "  ({} resent; {wire})", figures.resent)
            }
        }
    }
}

/// One line about a wire.
pub(super) fn of_wire(wire: &wire::Report, overruns: u64) -> String {
    let sum = |of: fn(&testkit::netem::Counts) -> u64| wire.ways.iter().map(of).sum::<u64>();
    let late = |share| wire.lateness.quantile(share).as_secs_f64() * 1000.0;
    let mut text = format!(
        "wire: {} packets, {} lost, {} dropped by queues; late p50 {:.2} p99 {:.2} most {:.1} ms; \
         {:.0} % of a core",
        sum(|way| way.arrived),
        sum(|way| way.lost),
        sum(|way| way.dropped),
        late(0.5),
        late(0.99),
        wire.lateness.most().as_secs_f64() * 1000.0,
        wire.load * 100.0,
    );
    if overruns + wire.refused > 0 {
        text += &format!("; TOO SLOW for {overruns}, {} refused", wire.refused);
    }
    text
}

/// Prints the case with a floor. Returns whether the tunnel meets the floor.
pub(super) fn print_case(case: &[Measured]) -> bool {
    println!(
        "\none stream at {CASE_RTT} ms and {CASE_RATE} Mbit/s; floor: {CASE_FLOOR} of it in a second within the \
         first {CASE_SECONDS}"
    );
    let mut is_met = true;
    for measured in case {
        let Cell { system, way, .. } = measured.cell;
        let (best, reached) = measured.figures.as_ref().map_or((0.0, None), |figures| {
            (figures.rates.iter().copied().fold(0.0, f64::max), figures.reached())
        });
        let verdict = match reached {
            Some(second) => format!("met in second {second}"),
            None => "missed".to_owned(),
        };
        println!("{:10} {:4}  best {:.2}  {verdict}", system.name(), way.name(), best / CASE_RATE);
        is_met &= system == System::Direct || reached.is_some();
    }
    println!();
    is_met
}

/// Prints a row for each path and a column for each system and direction.
pub(super) fn print_matrix(path: &Path, matrix: &[Measured]) {
    if matrix.is_empty() {
        return;
    }
    let mut columns: Vec<(System, Way)> = Vec::new();
    let mut rows: Vec<(f64, f64)> = Vec::new();
    for Measured { cell, .. } in matrix {
        let column = (cell.system, cell.way);
        let row = (cell.path.rtt, cell.path.loss);
        if !columns.contains(&column) {
            columns.push(column);
        }
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let rate = path.rate.map_or_else(|| "any rate".to_owned(), |rate| format!("{rate} Mbit/s"));
    println!("\nMbit/s, mean of the first seconds; {rate}, queue {} ms", path.queue);
    print!("{:>6} {:>6}", "rtt", "loss");
    for (system, way) in &columns {
        print!(" {:>15}", format!("{} {}", system.name(), way.name()));
    }
    println!();
    for (rtt, loss) in rows {
        print!("{rtt:6} {loss:5}%");
        for column in &columns {
            let cell = matrix.iter().find(|measured| {
                let Cell { system, way, path, .. } = &measured.cell;
                (*system, *way) == *column && (path.rtt, path.loss) == (rtt, loss)
            });
            match cell.and_then(|cell| cell.figures.as_ref().ok()) {
                Some(figures) => print!(" {:15.1}", figures.mean()),
                None => print!(" {:>15}", "-"),
            }
        }
        println!();
    }
}

pub(super) fn write(
    file: &File,
    path: &Path,
    case: &[Measured],
    matrix: &[Measured],
) -> Result<()> {
    let all = |measured: &[Measured]| measured.iter().map(Measured::json).collect::<Vec<_>>();
    let value = json!({
        "path": path.describe(),
        "settings": Ends::settings(path),
        "case": { "floor": CASE_FLOOR, "cells": all(case) },
        "matrix": all(matrix),
    });
    Ok(fs::write(file, format!("{value:#}\n"))?)
}

#[cfg(test)]
mod tests {
    use testkit::stage::Scheme;

    use super::*;

    fn measured(system: System, rates: &[f64]) -> Measured {
        let path = Path { rtt: CASE_RTT, ..Path::default() };
        let cell = Cell { system, way: Way::Down, path, seconds: CASE_SECONDS };
        let wire = wire::Report::default();
        let figures = Figures { rates: rates.to_vec(), cpu: 0.0, wire, overruns: 0, resent: 0 };
        Measured::new(&cell, Ok(figures))
    }

    #[test]
    fn the_floor_is_met_by_one_second_and_by_every_way_through_the_tunnel() {
        let tunnel = System::Tunnel(Scheme::TCP);
        let slow = measured(System::Direct, &[10.0, 849.0]);
        let good = measured(tunnel, &[10.0, 851.0, 20.0]);
        assert_eq!(good.figures.as_ref().unwrap().reached(), Some(2));
        assert!(print_case(&[slow, good]), "the floor is the tunnel's");
        let good = measured(tunnel, &[10.0, 851.0]);
        assert!(!print_case(&[good, measured(tunnel, &[849.0; 5])]));
        assert!(!print_case(&[measured(tunnel, &[])]), "nothing arrived");
    }

    #[test]
    fn a_failed_measurement_is_told_everywhere() {
        let failed = measured(System::Direct, &[]);
        assert!(failed.to_string().contains("no byte"), "{failed}");
        assert!(failed.json()["error"].as_str().unwrap().contains("no byte"));
        let good = measured(System::Direct, &[100.0, 200.0]);
        assert_eq!(good.json()["mbit"], 150.0);
        assert!(good.to_string().contains("150.0 : 100 200"), "{good}");
    }
}
