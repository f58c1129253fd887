//! Clients that compete for one name: each starts a process, is told by its node whether it has the
//! name, keeps the name for a moment, gives it up, and begins again.
//!
//! What a client is told is in the log of its process: `service X is published at …`, or that the
//! name is taken. A process that was told otherwise, or that lost the name with a node, may get it
//! later without a word that the test waits for; such calls are in the history as calls that
//! perhaps took effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::judge::{Answer, Call, NameOp, Owner};
use testkit::netem::Rng;
use testkit::stage::LONG;

use crate::clients::{Clients, SHARED, Start};
use crate::history::History;
use crate::stage::Stage;

/// How long a client waits for an answer. Longer than a node waits for etcd (5 s).
const PATIENCE: Duration = Duration::from_secs(15);

/// The life of a process that asked for the name.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) owner: Owner,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

/// Lives of processes, and what they were told.
type Lives = Vec<(Life, Option<Answer>)>;

/// Clients that compete until they are told to end.
pub(crate) struct Claims {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Lives>>,
}

impl Claims {
    /// `ann`, `bob` and `cat` compete. They log in at these nodes, each first at another one.
    pub(crate) fn start(stage: &Stage, by: &[&'static str]) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let threads = ["ann", "bob", "cat"].iter().zip(0..).map(|(&client, nth)| {
            let (over, clients) = (Arc::clone(&is_over), Arc::clone(&stage.clients));
            let (history, mut by) = (Arc::clone(&stage.history), by.to_vec());
            let mut rng = Rng::new(58 + nth);
            thread::spawn(move || {
                let mut lives = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    by.rotate_left(1);
                    let homes = 1 + usize::from(rng.chance(500));
                    let start = Start { client, homes, wanted: SHARED, by: &by };
                    let hold = Duration::from_millis(200 + rng.below(1_000));
                    lives.push(live(&clients, &history, start, hold));
                    thread::sleep(Duration::from_millis(50 + rng.below(400)));
                }
                lives
            })
        });
        Self { threads: threads.collect(), is_over }
    }

    /// Ends the competition. Returns how often a client had the name, and how often another had it.
    pub(crate) fn end(self, history: &History) -> [usize; 2] {
        self.is_over.store(true, Ordering::Relaxed);
        let lives: Vec<_> =
            self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let known = &mut *history.known();
        for (life, _) in &lives {
            for fault in &known.faults {
                // What a node holds may be lost with it, and the process asks for it anew.
                let until = if fault.is_instant { Some(fault.begun) } else { fault.ended };
                if fault.begun <= life.ended && until.is_none_or(|until| until >= life.begun) {
                    let from = fault.begun.max(life.begun);
                    let claim = NameOp::Claim(life.owner.clone(), Answer::Held);
                    known.claims.push(Call::perhaps(claim, from, Some(life.ended)));
                    known.claims.push(Call::perhaps(NameOp::Free(life.owner.clone()), from, None));
                }
            }
        }
        let count = |answer| lives.iter().filter(|(_, told)| *told == Some(answer)).count();
        let unanswered = lives.iter().filter(|(_, told)| told.is_none()).count();
        let [held, taken] = [Answer::Held, Answer::Taken].map(count);
        println!(
            "the name was held {held} times and taken {taken} times; {unanswered} had no answer"
        );
        [held, taken]
    }
}

/// A process of a client, from its start to its end.
fn live(
    clients: &Clients,
    history: &History,
    start: Start<'_>,
    hold: Duration,
) -> (Life, Option<Answer>) {
    let begun = history.now();
    let mut process = clients.start(start);
    let (owner, service) = (process.owner(), &process.service);
    let told = loop {
        let now = history.now();
        let log = process.daemon.log();
        let told = log.lines().filter(|line| line.contains(&format!("service {service} is ")));
        let told = told.filter_map(|line| {
            if line.contains("is published at") {
                Some(Answer::Held)
            } else if line.contains("is taken") {
                Some(Answer::Taken)
            } else {
                None
            }
        });
        if let Some(answer) = told.into_iter().next() {
            let claim = NameOp::Claim(owner.clone(), answer);
            history.known().claims.push(Call::answered(claim, begun, history.now()));
            break Some(answer);
        }
        if now > begun + PATIENCE || !process.daemon.is_running() {
            break None;
        }
        thread::sleep(Duration::from_millis(10));
    };
    if told == Some(Answer::Held) {
        thread::sleep(hold);
    }
    // From now on it may give up what it has; what it was refused it may have got meanwhile.
    let told_at = history.now();
    process.daemon.terminate();
    process.daemon.wait_end(LONG);
    let ended = history.now();
    let mut known = history.known();
    let free = NameOp::Free(owner.clone());
    if told == Some(Answer::Held) {
        if start.homes > 1 {
            // The second home claims for itself, perhaps while the first one gives the name up.
            let claim = NameOp::Claim(owner.clone(), Answer::Held);
            known.claims.push(Call::perhaps(claim, begun, Some(ended)));
            known.claims.push(Call::perhaps(free.clone(), told_at, None));
        }
        known.claims.push(Call::perhaps(free, told_at, None));
    } else {
        let claim = NameOp::Claim(owner.clone(), Answer::Held);
        known.claims.push(Call::perhaps(claim, begun, Some(ended)));
        known.claims.push(Call::perhaps(free, begun, None));
    }
    (Life { owner, begun, ended }, told)
}
