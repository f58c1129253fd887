//! Verdicts about clients, by which further streams are served without a question. A question goes
//! to another thread, and a busy service has thousands of streams per second.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use proto::Hop;
use proto::greeting::Name;
use tokio::time::Instant;

/// The time for which a verdict holds. A process that was stopped for longer asks again, because
/// the lease of its node may have ended meanwhile.
const HOLDS: Duration = Duration::from_secs(1);

/// The most verdicts that a worker keeps.
const KEPT: usize = 4096;

/// A process of a client, and the claim of its service.
type JudgedClaim = (Name, u64, u64);

fn subject(hop: &Hop) -> JudgedClaim {
    (hop.client.clone(), hop.instance, hop.claim)
}

/// The verdicts of one worker.
#[derive(Debug, Default)]
pub(super) struct Judged(RefCell<HashMap<JudgedClaim, KeptVerdict>>);

/// A process of a client may be served to an opener that has found it by a record of this number.
#[derive(Clone, Copy, Debug)]
struct KeptVerdict {
    generation: u64,
    /// The edition of what the cluster knows, before the question.
    edition: u64,
    /// When the question was asked.
    asked: Instant,
}

impl Judged {
    /// Whether a verdict says that the stream is served. An opener with another record may know
    /// more than the verdict.
    pub(super) fn covers(&self, hop: &Hop, edition: u64) -> bool {
        let known = self.0.borrow().get(&subject(hop)).copied();
        known.is_some_and(|it| {
            it.edition == edition && it.generation == hop.generation && it.asked.elapsed() < HOLDS
        })
    }

    /// Keeps a verdict that was asked for in this edition, at this time.
    pub(super) fn keep(&self, hop: &Hop, (edition, asked): (u64, Instant)) {
        let mut all = self.0.borrow_mut();
        if all.len() >= KEPT {
            all.retain(|_, verdict| verdict.edition == edition);
        }
        if all.len() >= KEPT {
            all.clear();
        }
        let verdict = KeptVerdict { generation: hop.generation, edition, asked };
        all.insert(subject(hop), verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(generation: u64) -> Hop {
        let (client, service) = ("home".parse().unwrap(), "web".parse().unwrap());
        Hop { client, instance: 1, generation, service, claim: 0, mark: None, visitor: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_holds_for_its_record_for_a_second_until_the_cluster_knows_more() {
        let judged = Judged::default();
        assert!(!judged.covers(&hop(7), 1));
        judged.keep(&hop(7), (1, Instant::now()));
        assert!(judged.covers(&hop(7), 1));
        assert!(!judged.covers(&hop(8), 1), "the opener has read a newer record");
        assert!(!judged.covers(&Hop { instance: 2, ..hop(7) }, 1));
        assert!(!judged.covers(&Hop { claim: 1, ..hop(7) }, 1), "another service");
        assert!(!judged.covers(&hop(7), 2), "a process may be superseded meanwhile");
        tokio::time::advance(HOLDS).await;
        assert!(!judged.covers(&hop(7), 1), "the process may have been stopped");
    }

    #[test]
    fn the_number_of_verdicts_is_bounded() {
        let judged = Judged::default();
        for n in 0..2 * KEPT as u64 {
            judged.keep(&Hop { instance: n, ..hop(7) }, (1, Instant::now()));
            assert!(judged.0.borrow().len() <= KEPT);
        }
    }
}
