//! A cluster at work: both clients publish, visitors come at all entrances, and three further
//! clients compete for a name.

use std::time::Duration;

use testkit::judge::Visit;

use crate::claims::Claims;
use crate::clients::{ONE, Process, Start, TWO};
use crate::load::Load;
use crate::stage::Stage;
use crate::visitor::{KINDS, Kind, Wanted};

/// The time until the other nodes know of the end of a process: the kernel ends its connections,
/// and a busy machine has to run them.
const TOLD: Duration = Duration::from_millis(50);

/// A cluster at work.
pub(crate) struct Busy {
    pub(crate) stage: Stage,
    /// The processes of the client with one home, and of that with two. Former processes stay.
    pub(crate) processes: Vec<Process>,
    load: Load,
    claims: Option<(Claims, Load)>,
}

impl Busy {
    /// The clients log in at the nodes `by` first.
    pub(crate) fn new(stage: Stage, by: &[&'static str]) -> Self {
        let start =
            |client, homes, wanted| stage.clients.start(Start { client, homes, wanted, by });
        let processes = vec![start("one", 1, ONE), start("two", 2, TWO)];
        stage.wait_homes("one", 1);
        stage.wait_homes("two", 2);
        for wanted in [ONE, TWO] {
            stage.wait_served(wanted, &stage.alive(), None, testkit::stage::LONG);
        }
        let load = Load::start(&stage, &[ONE, TWO]);
        Self { stage, processes, load, claims: None }
    }

    /// The same with clients that compete.
    pub(crate) fn with_claims(stage: Stage, by: &[&'static str]) -> Self {
        let mut busy = Self::new(stage, by);
        busy.compete(by);
        busy
    }

    /// Clients begin to compete. They log in at these nodes.
    pub(crate) fn compete(&mut self, by: &[&'static str]) {
        self.claims = Some((Claims::start(&self.stage, by), Load::read_owner(&self.stage)));
    }

    /// Starts a newer process of a client. It logs in at these nodes first.
    pub(crate) fn renew(&mut self, client: &'static str, by: &[&'static str]) -> u64 {
        let (homes, wanted) = if client == "one" { (1, ONE) } else { (2, TWO) };
        let process = self.stage.clients.start(Start { client, homes, wanted, by });
        let generation = process.generation;
        println!("{:8.3} process {generation} of {client}", self.stage.history.now().as_secs_f64());
        self.processes.push(process);
        generation
    }

    /// Waits for the bound after the last fault, checks that all is reached, and judges.
    pub(crate) fn end(self) -> Stage {
        self.stage.reaches_all(&[ONE, TWO]);
        self.load.end();
        if let Some((claims, owner)) = self.claims {
            let [held, taken] = claims.end(&self.stage.history);
            owner.end();
            assert!(held > 5 && taken > 0, "the clients competed");
        }
        self.stage.judge();
        self.stage
    }
}

impl Stage {
    /// Checks that no visitor of a service at a node without a fault failed, or took longer than
    /// this. A node that was killed is without a fault `grace` after it is back.
    pub(crate) fn serves_all(&self, wanted: Wanted, limit: Duration, grace: Duration) {
        let faults = self.history.known().faults.clone();
        let judged = |visit: &Visit| {
            let is_of = KINDS.iter().any(|kind| wanted.key(*kind) == visit.key);
            // A stream that the home served when it was killed ends with it, and a datagram is
            // lost, also where the other nodes do not know of the kill yet. A request is repeated.
            let is_cut =
                faults.iter().any(|it| visit.begun <= it.done + TOLD && it.begun <= visit.ended);
            is_of && (visit.key == wanted.key(Kind::Http) || !is_cut)
        };
        println!("{}: the longest visit took {:?}", wanted.name, self.longest(grace, judged));
        let failed = self.failures(grace, limit, judged);
        assert!(failed.is_empty(), "{failed:#?}");
    }
}
