//! The table at the end of a run.

use std::fmt;
use std::time::Duration;

use testkit::stage::Scheme;

use super::ledger::{Count, Hits, Ledger};

/// The results of a run.
#[derive(Debug)]
pub(super) struct Report {
    title: String,
    faults: Vec<(String, Hits)>,
    work: Vec<(&'static str, Count)>,
    skipped: Vec<String>,
    failures: Vec<String>,
}

impl Report {
    pub(super) fn of(scheme: Scheme, seed: u64, ledger: &Ledger) -> Self {
        let took = ledger.elapsed().as_secs();
        let pages = ledger.pages();
        Self {
            title: format!("{} with seed {seed}, {took} s", scheme.name),
            faults: pages.faults.iter().map(|(name, hits)| (name.clone(), *hits)).collect(),
            work: pages.work.iter().map(|(kind, count)| (*kind, *count)).collect(),
            skipped: pages.skipped.clone(),
            failures: pages.failures.clone(),
        }
    }

    pub(super) fn failures(&self) -> usize {
        self.failures.len()
    }

    pub(super) fn is_good(&self) -> bool {
        self.failures.is_empty()
    }
}

fn seconds(time: Duration) -> String {
    if time.is_zero() { String::new() } else { format!("{:.2} s", time.as_secs_f64()) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.title)?;
        let (times, reached, back) = ("times", "connections", "serves again");
        writeln!(f, "  {:18}{times:>8}{reached:>14}{back:>14}", "fault")?;
        for (name, Hits { times, reached, longest }) in &self.faults {
            writeln!(f, "  {name:18}{times:>8}{reached:>14}{:>14}", seconds(*longest))?;
        }
        let (done, excused, failed) = ("done", "cut by a death", "failed");
        writeln!(
            f,
            "  {:18}{done:>8}{excused:>16}{failed:>8}{:>12}{:>12}",
            "work", "MB", "longest"
        )?;
        for (kind, Count { done, excused, failed, bytes, longest }) in &self.work {
            let (mb, longest) = (bytes / 1_000_000, seconds(*longest));
            writeln!(f, "  {kind:18}{done:>8}{excused:>16}{failed:>8}{mb:>12}{longest:>12}")?;
        }
        for skipped in &self.skipped {
            writeln!(f, "  SKIP: {skipped}")?;
        }
        for failure in &self.failures {
            writeln!(f, "FAILURE {failure}")?;
        }
        let verdict = if self.is_good() {
            "no failure".to_owned()
        } else {
            format!("{} failures", self.failures.len())
        };
        writeln!(f, "  {verdict}")
    }
}
