//! What every scenario has to satisfy after its run.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::Value;

use testkit::judge::{Names, Visit, judge_visits, linearize};

use crate::clients::SHARED;
use crate::etcd::{behind, bytes, number};
use crate::load::PREFIX;
use crate::stage::Stage;
use crate::visitor::Wanted;

/// A lease and a renewal: for as long a former process may answer, and after the last fault nothing
/// takes longer.
pub(crate) const BOUND: Duration = Duration::from_secs(13);

/// The clients that may answer for a name or a port.
fn may_answer(key: &str, client: &str) -> bool {
    let is_of =
        |wanted: Wanted| key.ends_with(wanted.name) || key.ends_with(&format!(":{}", wanted.port));
    if is_of(SHARED) { true } else { crate::clients::owner(is_of) == Some(client) }
}

impl Stage {
    /// Waits for the bound after the last fault, and checks that these services are served at each
    /// node that lives, each within a time that a busy machine keeps.
    pub(crate) fn reaches_all(&self, wanted: &[Wanted]) {
        std::thread::sleep(BOUND);
        let alive = self.alive();
        let (mut failed, limit) = (Vec::new(), Duration::from_secs(3));
        for wanted in wanted {
            for node in &alive {
                for kind in crate::visitor::KINDS {
                    let begun = self.history.now();
                    let to = wanted.at(kind, self.lan.address(node));
                    let served = crate::visitor::visit(kind, *wanted, to);
                    let ended = self.history.now();
                    if served.is_err() || ended - begun > limit {
                        failed.push(format!(
                            "{} at {node}: {served:?}, {:?}",
                            wanted.key(kind),
                            ended - begun
                        ));
                    }
                    let (key, entrance) = (wanted.key(kind), (*node).to_owned());
                    self.history.known().visits.push(Visit { key, entrance, begun, ended, served });
                }
            }
        }
        assert!(failed.is_empty(), "not reached {BOUND:?} after the last fault: {failed:#?}");
    }

    /// Writes the history, what etcd has, and what each node says of itself.
    pub(crate) fn keep(&self) {
        self.history.write(&self.file("history.jsonl"));
        let records = self.etcd.range(0, PREFIX, Some(&behind(PREFIX))).unwrap_or_default();
        let field = |record: &Value, name: &str| {
            String::from_utf8_lossy(&bytes(&record[name])).into_owned()
        };
        let line = |record: &Value| {
            let numbers = [number(&record["create_revision"]), number(&record["mod_revision"])];
            format!("{} {numbers:?} {}\n", field(record, "key"), field(record, "value"))
        };
        fs::write(self.file("records.txt"), records.iter().map(line).collect::<String>()).unwrap();
        for node in self.alive() {
            let status = self.status(node).unwrap_or_default();
            fs::write(self.file(&format!("{node}.status.json")), format!("{status:#}")).unwrap();
        }
    }

    /// Judges the whole history, and writes it to `history.jsonl`. Prints figures.
    pub(crate) fn judge(&self) {
        self.keep();
        let known = self.history.known();
        match judge_visits(&known.visits, may_answer, BOUND) {
            Ok(sum) => println!("visits: {sum:?}"),
            Err(complaints) => panic!("visits: {complaints:#?}"),
        }
        if !known.claims.is_empty() {
            let sure = known.claims.iter().filter(|call| call.is_sure).count();
            println!("claims: {sure} calls with an answer, {} without", known.claims.len() - sure);
            linearize(&Names, &known.claims, &[None])
                .unwrap_or_else(|why| panic!("claims: {why:#?}"));
        }
    }

    /// Which visitors of nodes without a fault failed or took longer than `limit`, of those that
    /// `judged` takes.
    pub(crate) fn failures(
        &self,
        grace: Duration,
        limit: Duration,
        judged: impl Fn(&Visit) -> bool,
    ) -> Vec<Visit> {
        let known = self.history.known();
        let nodes: BTreeSet<_> = crate::stage::NODES.into_iter().collect();
        let counts = |visit: &&Visit| {
            nodes.contains(&*visit.entrance)
                && known.was_well(&visit.entrance, visit.begun, visit.ended, grace)
                && judged(visit)
                && (visit.served.is_err() || visit.ended - visit.begun > limit)
        };
        known.visits.iter().filter(counts).cloned().collect()
    }

    /// The longest visit of a node without a fault.
    pub(crate) fn longest(&self, grace: Duration, judged: impl Fn(&Visit) -> bool) -> Duration {
        let known = self.history.known();
        let well = |visit: &&Visit| {
            known.was_well(&visit.entrance, visit.begun, visit.ended, grace) && judged(visit)
        };
        let times = known.visits.iter().filter(well).map(|visit| visit.ended - visit.begun);
        times.max().unwrap_or_default()
    }
}
