//! What happens in a run, as the test sees it, for the judges and for people: visits, claims, and
//! when which node was under a fault.

use std::fmt::Debug;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::judge::{Call, NameOp, Visit};

/// The fault of a node that ends without a word.
pub(crate) const KILL: &str = "kill -9";

/// A time in which a node or all of the store does not do its work.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The node; `None`: a fault that is not that of a node.
    pub(crate) node: Option<String>,
    pub(crate) what: String,
    pub(crate) begun: Duration,
    pub(crate) ended: Option<Duration>,
    /// What is lost is lost at the begin, as when a process is killed.
    pub(crate) is_instant: bool,
    /// When the fault is complete, as when the killed process is gone.
    pub(crate) done: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) visits: Vec<Visit>,
    pub(crate) claims: Vec<Call<NameOp>>,
    pub(crate) faults: Vec<Fault>,
}

/// What has happened so far.
#[derive(Debug)]
pub(crate) struct History {
    start: Instant,
    known: Mutex<Known>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), known: Mutex::default() }
    }

    /// The time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fault begins.
    pub(crate) fn begin(&self, node: Option<&str>, what: &str) {
        println!(
            "{:8.3} {what}{}",
            self.now().as_secs_f64(),
            node.map(|it| format!(" {it}")).unwrap_or_default()
        );
        let (node, what) = (node.map(str::to_owned), what.to_owned());
        let is_instant = what == KILL;
        let begun = self.now();
        let fault = Fault { node, what, begun, ended: None, is_instant, done: begun };
        self.known().faults.push(fault);
    }

    /// The fault that has begun last is complete.
    pub(crate) fn done(&self) {
        let now = self.now();
        if let Some(fault) = self.known().faults.last_mut() {
            fault.done = now;
        }
    }

    /// The faults of a node end, or those that are of no node.
    pub(crate) fn end(&self, node: Option<&str>) {
        let now = self.now();
        println!(
            "{:8.3} over{}",
            now.as_secs_f64(),
            node.map(|it| format!(" {it}")).unwrap_or_default()
        );
        for fault in &mut self.known().faults {
            if fault.node.as_deref() == node && fault.ended.is_none() {
                fault.ended = Some(now);
            }
        }
    }

    /// Writes the history as one JSON object a line, in the order of the begins.
    pub(crate) fn write(&self, file: &Path) {
        let known = self.known();
        let mut lines: Vec<(Duration, String)> = Vec::new();
        let mut add = |begun: Duration,
                       ended: Option<Duration>,
                       op: &str,
                       key: &str,
                       node: &str,
                       result: &dyn Debug| {
            let line = json!({
                "op": op, "key": key, "node": node, "called": begun.as_secs_f64(),
                "returned": ended.map(|it| it.as_secs_f64()), "result": format!("{result:?}"),
            });
            lines.push((begun, line.to_string()));
        };
        for it in &known.visits {
            add(it.begun, Some(it.ended), "visit", &it.key, &it.entrance, &it.served);
        }
        for it in &known.claims {
            add(
                it.begun,
                it.ended,
                if it.is_sure { "claim" } else { "perhaps" },
                "shared",
                "",
                &it.op,
            );
        }
        for it in &known.faults {
            add(it.begun, it.ended, "fault", "", it.node.as_deref().unwrap_or_default(), &it.what);
        }
        lines.sort();
        let mut out = fs::File::create(file).unwrap();
        for (_, line) in lines {
            writeln!(out, "{line}").unwrap();
        }
    }
}

impl Known {
    /// Whether a node was under no fault from `grace` before the begin of a visit to its end.
    pub(crate) fn was_well(
        &self,
        node: &str,
        begun: Duration,
        ended: Duration,
        grace: Duration,
    ) -> bool {
        self.faults
            .iter()
            .filter(|fault| fault.node.as_deref() == Some(node))
            .all(|fault| fault.begun > ended || fault.ended.is_some_and(|it| it + grace < begun))
    }
}
