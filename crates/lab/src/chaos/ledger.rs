//! The results of every piece of work and of every fault, for all threads of a run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use testkit::stage::bytes::Complaint;

use super::outages::{Outages, Span};

/// The longest excerpt of a log in the report of a failure.
const EXCERPT_LINES: usize = 60;

/// The number of failures that are reported in full; further failures are only counted.
pub(super) const FAILURES_MAX: usize = 20;

/// Counters of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) done: u64,
    /// Pieces that failed across the death of a process.
    pub(super) excused: u64,
    pub(super) failed: u64,
    pub(super) bytes: u64,
    /// The longest duration of a finished piece.
    pub(super) longest: Duration,
}

/// Counters of one kind of fault.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hits {
    pub(super) times: u64,
    /// Connections of the path that the fault reached.
    pub(super) reached: u64,
    /// The longest time until a visitor got through again; for deaths only.
    pub(super) longest: Duration,
}

/// The results of a run.
#[derive(Debug)]
pub(super) struct Ledger {
    began: Instant,
    dir: PathBuf,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) work: BTreeMap<&'static str, Count>,
    pub(super) faults: BTreeMap<String, Hits>,
    pub(super) skipped: Vec<String>,
    pub(super) failures: Vec<String>,
    outages: Outages,
    /// The name of the last fault.
    last: String,
}

/// The positions of both logs when a piece of work began, and the time.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    at: Instant,
    logs: Vec<(PathBuf, usize)>,
}

impl Ledger {
    pub(super) fn new(dir: &Path) -> Self {
        Self { began: Instant::now(), dir: dir.to_owned(), pages: Mutex::default() }
    }

    /// The time since the start of the run.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A mark of the present positions, for the report of a later failure.
    pub(super) fn mark(&self) -> Mark {
        let logs = ["server.log", "client.log", "events.log"].map(|name| self.dir.join(name));
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
        let sized = logs.map(|path| {
            let at = size(&path);
            (path, usize::try_from(at).unwrap_or(usize::MAX))
        });
        Mark { at: Instant::now(), logs: sized.into() }
    }

    /// Writes a line with a time stamp to `events.log`.
    pub(super) fn note(&self, what: &str) {
        let line = format!("{:8.3} {what}\n", self.elapsed().as_secs_f64());
        let file = File::options().create(true).append(true).open(self.dir.join("events.log"));
        // The log is for readers only; the run does not need it.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    pub(super) fn fault(&self, name: &str, what: &str, reached: usize) {
        self.note(what);
        let mut pages = self.pages();
        what.clone_into(&mut pages.last);
        let hits = pages.faults.entry(name.to_owned()).or_default();
        hits.times += 1;
        hits.reached += reached as u64;
    }

    pub(super) fn died(&self, drain: Duration) {
        self.pages().outages.begin(Instant::now(), drain);
    }

    /// Records that a visitor got through `after` the start of the new process.
    pub(super) fn serves_again(&self, fault: &str, after: Duration) {
        self.note(&format!("serves again {:.2} s after its start", after.as_secs_f64()));
        let mut pages = self.pages();
        pages.outages.end(Instant::now());
        let hits = pages.faults.entry(fault.to_owned()).or_default();
        hits.longest = hits.longest.max(after);
    }

    /// Records the end of a piece of work, with its bytes or its failure. A death excuses broken
    /// connections; nothing excuses wrong bytes or a wait without end.
    pub(super) fn work(
        &self,
        kind: &'static str,
        mark: &Mark,
        opens_late: bool,
        outcome: Result<u64, Complaint>,
    ) {
        let span = Span { started: mark.at, ended: Instant::now(), opens_late };
        let took = span.ended - span.started;
        let mut pages = self.pages();
        let broken = matches!(outcome, Err(Complaint::Broken(_)));
        let excused = broken && pages.outages.excuse(span);
        let count = pages.work.entry(kind).or_default();
        match outcome {
            Ok(bytes) => {
                count.done += 1;
                count.bytes += bytes;
                count.longest = count.longest.max(took);
            }
            Err(complaint) if excused => {
                count.excused += 1;
                drop(pages);
                self.note(&format!("excused: {kind}: {complaint}"));
            }
            Err(complaint) => {
                count.failed += 1;
                drop(pages);
                let took = took.as_secs_f64();
                self.fail(mark, &format!("{kind} after {took:.1} s: {complaint}"));
            }
        }
    }

    /// Reports a failure, with the lines that both daemons logged since the mark.
    pub(super) fn fail(&self, mark: &Mark, complaint: &str) {
        self.note(&format!("FAILED: {complaint}"));
        let at = self.elapsed().as_secs_f64();
        let mut text = format!("at {at:.1} s: {complaint}\n");
        for (path, from) in &mark.logs {
            let log = fs::read(path).unwrap_or_default();
            let log = String::from_utf8_lossy(log.get(*from..).unwrap_or_default()).into_owned();
            let lines: Vec<_> = log.lines().collect();
            let skipped = lines.len().saturating_sub(EXCERPT_LINES);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let left_out =
                if skipped > 0 { format!(" ({skipped} lines before)") } else { String::new() };
            text.push_str(&format!("  {name}{left_out}:\n"));
            for line in &lines[skipped..] {
                text.push_str(&format!("    {line}\n"));
            }
        }
        let mut pages = self.pages();
        if pages.failures.len() >= FAILURES_MAX {
            text.truncate(text.find('\n').unwrap_or(text.len()));
        }
        pages.failures.push(text);
    }

    /// The progress in one line.
    pub(super) fn progress(&self) -> String {
        let pages = self.pages();
        let sum = |of: fn(&Count) -> u64| pages.work.values().map(of).sum::<u64>();
        let faults: u64 = pages.faults.values().map(|hits| hits.times).sum();
        format!(
            "{:4} s  {faults} faults, {} done, {} cut by a death, {} FAILED, {} MB; {:40}",
            self.elapsed().as_secs(),
            sum(|count| count.done),
            sum(|count| count.excused),
            pages.failures.len(),
            sum(|count| count.bytes) / 1_000_000,
            pages.last,
        )
    }
}
