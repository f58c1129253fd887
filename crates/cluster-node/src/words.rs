//! What is logged, in words: events of the node's life, and an engine that does not answer.

use std::time::Duration;

use cluster::names::NodeId;
use cluster::node::NodeEvent;
use cluster::record::{NodeProgram, VERSIONS, Versions};
use tokio::time::Instant;
use tracing::{Level, error, info, warn};

use crate::engine::Unanswered;

/// The time without an answer of the engine after which a line says so. The end of one member costs
/// less.
const TROUBLE: Duration = Duration::from_secs(2);

/// The level and the line of an event.
pub(crate) fn line(event: &NodeEvent) -> (Level, String) {
    match event {
        NodeEvent::Joined(epoch) => {
            (Level::INFO, format!("this node has joined the cluster (epoch {})", epoch.0))
        }
        NodeEvent::GoesOn(epoch) => (
            Level::INFO,
            format!(
                "this process goes on in the cluster in the place of its former process (epoch {})",
                epoch.0
            ),
        ),
        NodeEvent::EpochEnded(epoch) => (
            Level::WARN,
            format!(
                "the membership of this node has ended (epoch {}): its lease or its record is \
                 gone. It joins again and claims what it has",
                epoch.0
            ),
        ),
        NodeEvent::StoreRestored => (
            Level::ERROR,
            "the store of the cluster was restored from a copy or replaced: claims of the last \
             time may be lost. This node joins again and claims what it has"
                .to_owned(),
        ),
        NodeEvent::NameTaken { process } => (
            Level::ERROR,
            format!(
                "another process (number {process}) has joined the cluster under the name of this \
                 node. This process waits until the other has left: give each node a name of its \
                 own"
            ),
        ),
        NodeEvent::NoCommonVersion { node, its } => {
            let text = no_common_version(node, its);
            (Level::ERROR, format!("this node does not join the cluster: {text}"))
        }
        NodeEvent::BadRecord { key, reason } => (
            Level::WARN,
            format!("the record {key:?} of the cluster cannot be read and is left out: {reason}"),
        ),
    }
}

/// Why this program cannot join a cluster with this node.
#[must_use]
pub fn no_common_version(node: &NodeId, its: &NodeProgram) -> String {
    let NodeProgram { program, versions } = its;
    let program = program.as_deref().unwrap_or("of an unknown version").escape_debug();
    let theirs = versions.map_or_else(|| "versions that it does not name".to_owned(), spoken);
    format!(
        "node {node} (tunnel {program}) reads {theirs} of the records of the cluster, and this \
         program (tunnel {own}) reads {ours} (hint: upgrade the nodes by a program that reads both)",
        own = env!("CARGO_PKG_VERSION"),
        ours = spoken(VERSIONS),
    )
}

fn spoken(Versions { min, max }: Versions) -> String {
    if min == max { format!("version {min}") } else { format!("the versions {min} to {max}") }
}

/// Logs an event, and returns its line.
pub(crate) fn log(event: &NodeEvent) -> String {
    let (level, line) = line(event);
    match level {
        Level::ERROR => error!("{line}"),
        Level::WARN => warn!("{line}"),
        _ => info!("{line}"),
    }
    line
}

/// Whether the engine answers, as far as a person has to know.
#[derive(Debug, Default)]
pub(crate) struct EngineWords {
    /// The first failure after the last answer.
    failing: Option<Instant>,
    is_told: bool,
}

impl EngineWords {
    /// A request was answered, or not. Returns the line that was logged.
    pub(crate) fn hear(&mut self, failure: Option<&Unanswered>) -> Option<String> {
        let Some(failure) = failure else {
            let since = self.failing.take()?;
            if !std::mem::take(&mut self.is_told) {
                return None;
            }
            let line =
                format!("the engine of the cluster answers again, after {:.0?}", since.elapsed());
            info!("{line}");
            return Some(line);
        };
        let since = *self.failing.get_or_insert_with(Instant::now);
        if self.is_told || since.elapsed() < TROUBLE {
            return None;
        }
        self.is_told = true;
        let line = format!(
            "the engine of the cluster does not answer ({failure}). What this node knows stays in \
             use; new claims have to wait"
        );
        warn!("{line}");
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use cluster::engine::NoReply;
    use cluster::names::NodeEpoch;

    use super::*;

    #[test]
    fn each_event_has_a_line_with_what_a_person_needs() {
        let node = NodeId::new("fra1").unwrap();
        let its = NodeProgram {
            program: Some("9.1.0".into()),
            versions: Some(Versions { min: 7, max: 8 }),
        };
        let versions = "node fra1 (tunnel 9.1.0) reads the versions 7 to 8 of the records";
        let unknown =
            NodeEvent::NoCommonVersion { node: node.clone(), its: NodeProgram::default() };
        let bad = NodeEvent::BadRecord { key: "/a\nb".to_owned(), reason: "no JSON".to_owned() };
        for (event, level, part) in [
            (NodeEvent::Joined(NodeEpoch(7)), Level::INFO, "epoch 7"),
            (NodeEvent::GoesOn(NodeEpoch(7)), Level::INFO, "epoch 7"),
            (NodeEvent::EpochEnded(NodeEpoch(7)), Level::WARN, "joins again"),
            (NodeEvent::StoreRestored, Level::ERROR, "restored from a copy"),
            (NodeEvent::NameTaken { process: 3 }, Level::ERROR, "number 3"),
            (NodeEvent::NoCommonVersion { node, its }, Level::ERROR, versions),
            (unknown, Level::ERROR, "versions that it does not name"),
            (bad, Level::WARN, "\"/a\\nb\""),
        ] {
            let (found, text) = line(&event);
            assert_eq!(found, level, "{text}");
            assert!(text.contains(part) && !text.contains('\n'), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_does_not_answer_is_a_line_after_2_s_and_a_line_when_it_answers() {
        let failure = Unanswered { failure: NoReply::Unknown, reason: "no answer".to_owned() };
        let mut words = EngineWords::default();
        assert_eq!(words.hear(Some(&failure)), None);
        assert_eq!(words.hear(None), None);
        let mut lines = Vec::new();
        for _ in 0..10 {
            lines.extend(words.hear(Some(&failure)));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("does not answer (no answer)"), "{lines:?}");
        assert!(words.hear(None).unwrap().contains("answers again, after 10s"));
        assert_eq!(words.hear(None), None);
    }
}
