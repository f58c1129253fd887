//! How long the steps of a run took, and its slowest tests. `target/steps.json` keeps the seconds
//! of the steps; `cargo xtask table cold|warm` writes the seconds of a whole short run into the
//! table of `crates/xtask/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use xtask::site::Site;

/// Tests that the end of a run names.
const SLOWEST: usize = 10;

/// The line of the document with the sums of both columns.
const SUMS: &str = "Altogether: ";

/// The tests of this run with their seconds: end-to-end cases, and test programs.
static TESTS: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Notes a test that has ended.
pub(super) fn note(name: &str, took: Duration) {
    TESTS.lock().unwrap_or_else(PoisonError::into_inner).push((took, name.to_owned()));
}

/// The milliseconds of each test in the last run, by name. The file decides about the order of
/// tests alone, so an unreadable file is as good as none.
pub(super) fn read(file: &Path) -> BTreeMap<String, u64> {
    let text = fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Writes the file of [`read`].
pub(super) fn keep(file: &Path, times: &BTreeMap<String, u64>) {
    if let Ok(text) = serde_json::to_string(times) {
        // Without the file the next run has another order, and that is all.
        let _ = fs::write(file, text);
    }
}

/// The steps of a run that have ended, in their order.
#[derive(Debug)]
pub(super) struct Steps {
    file: PathBuf,
    ended: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(super) fn new(site: &Site) -> Self {
        Self { file: file(site), ended: Vec::new() }
    }

    /// The file is written after each step, so that it tells of a run that failed as well.
    pub(super) fn add(&mut self, step: &'static str, took: Duration) {
        self.ended.push((step, took));
        let ended: BTreeMap<_, _> = self.ended.iter().map(|(s, t)| (*s, t.as_secs_f64())).collect();
        let written = serde_json::to_string_pretty(&ended).map_err(anyhow::Error::from);
        if let Err(error) = written.and_then(|text| Ok(fs::write(&self.file, text)?)) {
            println!("writing {}: {error}", self.file.display());
        }
    }

    /// What the end of a run says of its time.
    pub(super) fn print(&self) {
        println!("\nSeconds of each step:");
        for (step, took) in &self.ended {
            println!("{:8.1} s  {step}", took.as_secs_f64());
        }
        let mut tests = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
        tests.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        if !tests.is_empty() {
            println!("\nThe slowest end-to-end cases and test programs:");
        }
        for (took, name) in tests.iter().take(SLOWEST) {
            println!("{:8.1} s  {name}", took.as_secs_f64());
        }
    }
}

fn file(site: &Site) -> PathBuf {
    site.target.join("steps.json")
}

/// `cargo xtask table cold|warm`. `short`: the names of the short steps.
pub(super) fn main(mut args: impl Iterator<Item = String>, short: &[&str]) -> ExitCode {
    let written = Site::here().and_then(|site| write(&site, args.next().as_deref(), short));
    match written {
        Ok(document) => {
            println!("{} has the seconds of the last run", document.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn write(site: &Site, column: Option<&str>, short: &[&str]) -> Result<PathBuf> {
    let column = match column {
        Some("cold") => 0,
        Some("warm") => 1,
        _ => bail!("cargo xtask table cold|warm: which column has the last run?"),
    };
    let times = file(site);
    let text = fs::read_to_string(&times).with_context(|| {
        format!("reading {} (hint: `cargo xtask test` writes it)", times.display())
    })?;
    let ended: BTreeMap<String, f64> = serde_json::from_str(&text)?;
    for step in short {
        ensure!(ended.contains_key(*step), "the last run had no step {step}");
    }
    let document = site.root.join("crates/xtask/README.md");
    let changed = changed(&fs::read_to_string(&document)?, column, &ended)?;
    fs::write(&document, changed)?;
    Ok(document)
}

/// The document with these seconds in this column of its table.
fn changed(document: &str, column: usize, ended: &BTreeMap<String, f64>) -> Result<String> {
    let mut sums = [0.0, 0.0];
    let mut lines: Vec<String> = document.lines().map(str::to_owned).collect();
    for line in &mut lines {
        let name = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')).map(|(n, _)| n);
        let Some(took) = name.and_then(|name| ended.get(name)) else { continue };
        let mut cells: Vec<_> =
            line.trim_end_matches(" |").split(" | ").map(str::to_owned).collect();
        let first = cells.len().checked_sub(2).context("a row without columns")?;
        cells[first + column] = format!("{took:.0}");
        for (sum, cell) in sums.iter_mut().zip(&cells[first..]) {
            *sum += cell.parse::<f64>().with_context(|| format!("seconds in the row {line}"))?;
        }
        *line = format!("{} |", cells.join(" | "));
    }
    let total = lines.iter_mut().find(|line| line.starts_with(SUMS));
    let total = total.with_context(|| format!("the document has no line `{SUMS}`"))?;
    *total = format!("{SUMS}cold {:.0} s, warm {:.0} s.", sums[0], sums[1]);
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_the_table_and_the_sums_get_the_seconds_of_a_run() {
        let document = "Altogether: cold 1 s, warm 2 s.\n\n| step | what | cold | warm |\n\
                        |---|---|---|---|\n| `fmt` | `a` or b | 1 | 2 |\n| `e2e` | c | 10 | 20 |\n\
                        | `other` | x | 9 | 9 |\n";
        let ended = BTreeMap::from([("fmt".to_owned(), 3.4), ("e2e".to_owned(), 7.6)]);
        let warm = changed(document, 1, &ended).unwrap();
        assert!(warm.starts_with("Altogether: cold 11 s, warm 11 s.\n"), "{warm}");
        assert!(warm.contains("| `fmt` | `a` or b | 1 | 3 |\n| `e2e` | c | 10 | 8 |\n"), "{warm}");
        assert!(warm.ends_with("| `other` | x | 9 | 9 |\n"));
        assert!(changed("no table\n", 0, &ended).is_err());
    }

    #[test]
    fn the_document_has_a_row_for_each_short_step() {
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        let document = fs::read_to_string(document).unwrap();
        let ended: BTreeMap<_, _> = crate::test::suite::all()
            .filter(|step| !step.long)
            .map(|step| (step.name.to_owned(), 1.0))
            .collect();
        let steps = ended.len();
        let written = changed(&document, 0, &ended).unwrap();
        assert!(written.contains(&format!("{SUMS}cold {steps} s, ")), "a step has no row");
    }
}
