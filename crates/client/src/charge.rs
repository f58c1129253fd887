//! Which of several servers is in charge: the server that has the services of a client whose policy
//! is `failover` or `nearest`. The decision is pure: the state of the servers and the time come in.
//!
//! ```text
//!   in charge ──silent for GRACE, another answers──> the best that answers
//!   failover    an earlier server answers for RETURN without a break ──> that server
//!   nearest     a server is nearer by 25 % and 10 ms for BETTER, at most once in PAUSE
//! ```

use std::fmt;
use std::time::Duration;

use config::Policy;
use tokio::time::Instant;

/// The time for which the server in charge may be silent before another server takes over. A link
/// that loses its carrier and resumes over a path to the same server takes less.
const GRACE: Duration = Duration::from_millis(500);

/// The time for which a client that has just started waits for a better server.
const START: Duration = Duration::from_secs(2);

/// The time for which an earlier server must answer before it takes over again. A server that
/// restarts repeatedly moves the services less often.
const RETURN: Duration = Duration::from_secs(30);

/// The time for which a server must be nearer before it takes over.
const BETTER: Duration = Duration::from_secs(60);

/// The shortest time between two moves to a nearer server.
const PAUSE: Duration = Duration::from_secs(600);

/// The least advantage of a nearer server, beside a quarter of the time of the present server.
const NEARER: Duration = Duration::from_millis(10);

/// A server at this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenServer {
    /// The id of the uplink.
    pub(super) id: u64,
    /// A live link to the server is responsive.
    pub(super) answers: bool,
    /// The round-trip time, if it was measured.
    pub(super) rtt: Option<Duration>,
    /// The rates of the last transfers to and from the server in bytes per second, where paths are
    /// chosen by measurement.
    pub(super) goodput: [Option<u64>; 2],
}

/// The server in charge, and what is known of its rivals.
#[derive(Debug)]
pub(super) struct Charge {
    current: Option<u64>,
    /// Whether the server in charge has answered since it is in charge.
    has_answered: bool,
    began: Instant,
    /// Since when the server in charge does not answer.
    silent: Option<Instant>,
    /// Since when each server answers.
    answering: Vec<(u64, Instant)>,
    /// Since when a server is nearer than the server in charge.
    nearer: Option<(u64, Instant)>,
    /// When a nearer server took over last.
    moved: Option<Instant>,
    why: Why,
}

/// Why a server is in charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Why {
    /// It is the first that answered, or the first of the file.
    #[default]
    First,
    /// The former process had its services there.
    Former,
    /// The server that was in charge did not answer.
    Silent,
    /// An earlier server of the file answers again.
    Back,
    /// It is nearer than the server that was in charge.
    Nearer { own: Duration, former: Duration },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |time: &Duration| time.as_secs_f64() * 1_000.0;
        match self {
            Self::First => f.write_str("it is the first server that answered"),
            Self::Former => f.write_str("the former process had the services there"),
            Self::Silent => {
                let grace = GRACE.as_secs_f32();
                write!(f, "the server before it did not answer for {grace} s")
            }
            Self::Back => write!(f, "it has answered again for {} s", RETURN.as_secs()),
            Self::Nearer { own, former } => {
                let (own, former) = (millis(own), millis(former));
                write!(
                    f,
                    "its round trip took {own:.1} ms, that of the server before it {former:.1} ms"
                )
            }
        }
    }
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The server in charge; `None`: there is no server.
    pub(super) charge: Option<u64>,
    /// When the decision may change although the servers do not.
    pub(super) again: Option<Instant>,
}

impl Charge {
    /// `current`: the server that was in charge of the former process.
    pub(super) const fn new(now: Instant, current: Option<u64>) -> Self {
        Self {
            current,
            has_answered: false,
            began: now,
            silent: None,
            answering: Vec::new(),
            nearer: None,
            moved: None,
            why: if current.is_some() { Why::Former } else { Why::First },
        }
    }

    /// At the start of a process, whose first server has [`START`] to answer. A server that answers
    /// a moment earlier does not take its place.
    pub(super) fn of_start(now: Instant, first: u64) -> Self {
        Self { why: Why::First, ..Self::new(now, Some(first)) }
    }

    /// Why the server in charge is in charge.
    pub(super) const fn why(&self) -> Why {
        self.why
    }

    /// Decides which server is in charge. `seen` are all servers in the order of the configuration.
    pub(super) fn decide(&mut self, now: Instant, seen: &[SeenServer], policy: Policy) -> Decision {
        self.note(now, seen);
        let known = self.current.and_then(|id| seen.iter().find(|one| one.id == id));
        let Some(current) = known else {
            // At the start, or the server was removed.
            self.began = now;
            let first = best(seen, policy).or_else(|| seen.first());
            self.take(first.map(|one| one.id), false, Why::First);
            return self.said(None);
        };
        if !current.answers {
            return self.replace(now, seen, policy);
        }
        self.silent = None;
        self.has_answered = true;
        match policy {
            Policy::All => self.said(None),
            Policy::Failover => self.go_back(now, seen),
            Policy::Nearest => self.go_nearer(now, seen, *current),
        }
    }

    /// Records since when each server answers.
    fn note(&mut self, now: Instant, seen: &[SeenServer]) {
        let answers = |id: u64| seen.iter().any(|one| one.id == id && one.answers);
        self.answering.retain(|(id, _)| answers(*id));
        for one in seen.iter().filter(|one| one.answers) {
            if !self.answering.iter().any(|(id, _)| *id == one.id) {
                self.answering.push((one.id, now));
            }
        }
    }

    /// Finds another server in the place of the silent server in charge.
    fn replace(&mut self, now: Instant, seen: &[SeenServer], policy: Policy) -> Decision {
        let due = if self.has_answered {
            *self.silent.get_or_insert(now) + GRACE
        } else {
            self.began + START
        };
        let Some(other) = best(seen, policy) else { return self.said(None) };
        if now < due {
            return self.said(Some(due));
        }
        self.take(Some(other.id), true, Why::Silent);
        self.said(None)
    }

    /// Returns to an earlier server.
    fn go_back(&mut self, now: Instant, seen: &[SeenServer]) -> Decision {
        let earlier = seen.iter().take_while(|one| Some(one.id) != self.current);
        let since = |id: u64| self.answering.iter().find(|(of, _)| *of == id);
        let due: Vec<_> = earlier
            .filter_map(|one| since(one.id).map(|(id, since)| (*id, *since + RETURN)))
            .collect();
        if let Some((id, _)) = due.iter().find(|(_, due)| *due <= now) {
            self.take(Some(*id), true, Why::Back);
            return self.said(None);
        }
        self.said(due.into_iter().map(|(_, due)| due).min())
    }

    /// Moves to a server that stays nearer.
    fn go_nearer(&mut self, now: Instant, seen: &[SeenServer], current: SeenServer) -> Decision {
        let rival = best(seen, Policy::Nearest).filter(|one| {
            is_nearer(one.rtt, current.rtt) && !is_faster(&current.goodput, &one.goodput)
        });
        let Some(rival) = rival else {
            self.nearer = None;
            return self.said(None);
        };
        let since = match self.nearer {
            Some((id, since)) if id == rival.id => since,
            Some(_) | None => now,
        };
        self.nearer = Some((rival.id, since));
        let due = (since + BETTER).max(self.moved.map_or(since, |moved| moved + PAUSE));
        if now < due {
            return self.said(Some(due));
        }
        self.moved = Some(now);
        let [own, former] = [rival.rtt, current.rtt].map(Option::unwrap_or_default);
        self.take(Some(rival.id), true, Why::Nearer { own, former });
        self.said(None)
    }

    const fn take(&mut self, id: Option<u64>, answers: bool, why: Why) {
        self.current = id;
        self.why = why;
        self.has_answered = answers;
        self.silent = None;
        self.nearer = None;
    }

    const fn said(&self, again: Option<Instant>) -> Decision {
        Decision { charge: self.current, again }
    }
}

/// The best server that answers: the first, or the nearest.
fn best(seen: &[SeenServer], policy: Policy) -> Option<&SeenServer> {
    let mut all = seen.iter().filter(|one| one.answers);
    match policy {
        Policy::All | Policy::Failover => all.next(),
        // A server without a measurement comes last; of equal servers the first is chosen.
        Policy::Nearest => all.min_by_key(|one| one.rtt.unwrap_or(Duration::MAX)),
    }
}

/// Whether a server is nearer by so much that a move pays.
fn is_nearer(rival: Option<Duration>, current: Option<Duration>) -> bool {
    let (Some(rival), Some(current)) = (rival, current) else { return false };
    rival + NEARER <= current && rival <= current * 3 / 4
}

/// Whether a server carries 25 % more than another in a direction, and in no direction less.
fn is_faster(one: &[Option<u64>; 2], other: &[Option<u64>; 2]) -> bool {
    let both = || one.iter().zip(other).filter_map(|(one, other)| Some(((*one)?, (*other)?)));
    let is_more = |one: u64, other: u64| one / 5 * 4 >= other && one > other;
    both().any(|(one, other)| is_more(one, other)) && !both().any(|(one, other)| one < other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seen(id: u64, answers: bool, rtt: u64) -> SeenServer {
        SeenServer { id, answers, rtt: Some(Duration::from_millis(rtt)), goodput: [None; 2] }
    }

    #[tokio::test(start_paused = true)]
    async fn a_nearer_server_that_carries_less_does_not_take_over() {
        const MB: u64 = 1_000_000;
        let t0 = Instant::now();
        for (rates, taken) in [
            ([[None, Some(10 * MB)], [None, Some(8 * MB)]], 1),
            ([[None, Some(9 * MB)], [None, Some(8 * MB)]], 2),
            ([[None, Some(10 * MB)], [Some(MB), None]], 2),
            ([[Some(MB), Some(10 * MB)], [Some(9 * MB), Some(8 * MB)]], 2),
        ] {
            let mut charge = Charge::new(t0, None);
            let [one, two] = rates;
            let mut all = [seen(1, true, 100), seen(2, false, 50)];
            charge.decide(t0, &all, Policy::Nearest);
            all = [
                SeenServer { goodput: one, ..seen(1, true, 100) },
                SeenServer { goodput: two, ..seen(2, true, 50) },
            ];
            charge.decide(at(t0, 1_000), &all, Policy::Nearest);
            let said = charge.decide(at(t0, 61_000), &all, Policy::Nearest);
            assert_eq!(said.charge, Some(taken), "{rates:?}");
        }
    }

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_server_takes_over_after_half_a_second_of_silence() {
        let t0 = Instant::now();
        let mut charge = Charge::new(t0, None);
        let mut decide = |now, a, b| {
            charge.decide(at(t0, now), &[seen(1, a, 10), seen(2, b, 10)], Policy::Failover)
        };
        assert_eq!(decide(0, false, false), Decision { charge: Some(1), again: None });
        // At the start the first server gets a little time.
        assert_eq!(decide(100, false, true).charge, Some(1));
        assert_eq!(decide(300, true, true).charge, Some(1));
        let said = decide(1_000, false, true);
        assert_eq!(said, Decision { charge: Some(1), again: Some(at(t0, 1_500)) });
        assert_eq!(decide(1_400, true, true).charge, Some(1), "it resumed");
        assert_eq!(decide(2_000, false, true).charge, Some(1));
        assert_eq!(decide(2_500, false, true).charge, Some(2));
        // Both are away and come back.
        assert_eq!(decide(3_000, false, false).charge, Some(2));
        assert_eq!(decide(60_000, false, true).charge, Some(2));
        let said = decide(61_000, true, true);
        assert_eq!(said, Decision { charge: Some(2), again: Some(at(t0, 91_000)) });
        assert_eq!(decide(70_000, false, true), Decision { charge: Some(2), again: None });
        assert_eq!(decide(71_000, true, true).again, Some(at(t0, 101_000)));
        assert_eq!(decide(101_000, true, true).charge, Some(1), "30 s without a break");
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_server_that_answers_a_moment_earlier_at_the_start_stands_by() {
        let t0 = Instant::now();
        let mut charge = Charge::of_start(t0, 1);
        let all = [seen(1, false, 1), seen(2, true, 1)];
        let said = charge.decide(t0, &all, Policy::Failover);
        assert_eq!((said.charge, said.again), (Some(1), Some(at(t0, 2_000))));
        let all = [seen(1, true, 1), seen(2, true, 1)];
        assert_eq!(charge.decide(at(t0, 2), &all, Policy::Failover).charge, Some(1));
        assert_eq!(charge.why(), Why::First);
        let mut charge = Charge::of_start(t0, 1);
        let all = [seen(1, false, 1), seen(2, true, 1)];
        assert_eq!(charge.decide(at(t0, 2_000), &all, Policy::Failover).charge, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_first_server_is_away_at_the_start_waits_2_s() {
        let t0 = Instant::now();
        let mut charge = Charge::new(t0, None);
        let mut decide =
            |now, all: &[SeenServer]| charge.decide(at(t0, now), all, Policy::Failover);
        assert_eq!(decide(0, &[seen(1, false, 1), seen(2, false, 1)]).charge, Some(1));
        let said = decide(100, &[seen(1, false, 1), seen(2, true, 1)]);
        assert_eq!(said, Decision { charge: Some(1), again: Some(at(t0, 2_000)) });
        assert_eq!(decide(2_000, &[seen(1, false, 1), seen(2, true, 1)]).charge, Some(2));
        assert_eq!(decide(2_100, &[seen(1, false, 1), seen(3, true, 1)]).charge, Some(3));
        assert_eq!(decide(2_200, &[]).charge, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_nearer_server_takes_over_after_a_minute_and_once_in_ten_minutes() {
        let t0 = Instant::now();
        let mut charge = Charge::new(t0, None);
        let mut decide = |seconds: u64, a, b| {
            let all = [seen(1, true, a), seen(2, true, b)];
            charge.decide(at(t0, seconds * 1_000), &all, Policy::Nearest)
        };
        assert_eq!(decide(0, 40, 50).charge, Some(1));
        assert_eq!(decide(10, 40, 35), Decision { charge: Some(1), again: None }, "only 5 ms");
        assert_eq!(decide(20, 400, 350).again, None, "less than a quarter");
        assert_eq!(decide(30, 100, 50).again, Some(at(t0, 90_000)));
        assert_eq!(decide(80, 50, 50).again, None, "the advantage is gone");
        assert_eq!(decide(100, 100, 50).charge, Some(1));
        assert_eq!(decide(160, 100, 50).charge, Some(2));
        assert_eq!(decide(170, 10, 50).again, Some(at(t0, 760_000)));
        assert_eq!(decide(700, 10, 50).charge, Some(2), "at most once in 10 min");
        assert_eq!(decide(760, 10, 50).charge, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_in_charge_of_the_former_process_stays_in_charge() {
        let t0 = Instant::now();
        let mut charge = Charge::new(t0, Some(2));
        let all = [seen(1, false, 1), seen(2, false, 1)];
        assert_eq!(charge.decide(t0, &all, Policy::Failover).charge, Some(2));
        // Its dial takes longer than that of the other server.
        let all = [seen(1, true, 1), seen(2, false, 1)];
        assert_eq!(charge.decide(at(t0, 1_900), &all, Policy::Failover).charge, Some(2));
        let all = [seen(1, true, 1), seen(2, true, 1)];
        assert_eq!(charge.decide(at(t0, 1_950), &all, Policy::Failover).charge, Some(2));
        assert_eq!(charge.why(), Why::Former);
    }
}
