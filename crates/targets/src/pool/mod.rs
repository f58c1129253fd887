//! The targets of one service over all workers: which of them gets the next visitor, and the state
//! of each.
//!
//! ```text
//!   serves ──a dial or a check fails──> down ──a check succeeds, or (without `health`) the dial of
//!     ^                                  │     the one visitor that it gets every 10 s
//!     └── returned: the share grows for 30 s <──┘
//! ```
//!
//! In each of these states a command may drain the target: it then gets no new visitors.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::bail;
use config::{Over, Service, Target};
use net::source::Source;
use ops::status::{Down, ServiceState, ServiceTarget, TargetState};
use ops::targets::{DrainOrder, Drained, DrainedTarget, Targets};
use proto::Balance;
use relay::balance::{Candidate, Key, Turns, fingerprint, key_of};
use relay::{DialError, TargetAddr};

use super::address::address;
use node::entrance::TargetWatch;
use node::health::{Health, clock_millis, percent_since};

/// Without checks a target that is down gets one visitor after this time since its last failure, in
/// milliseconds. If the target still does not serve, the visitor loses the time of one dial.
const TRIAL: u64 = 10_000;

/// The maximum number of names in the message that a name is unknown.
const NAMES: usize = 30;

/// The state of one target. It outlives changes of the configuration that keep the target.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its name, for logs and status; its health.
    pub(super) watch: TargetWatch,
    target: Target,
    id: u64,
    /// Its visitors: streams and flows.
    live: AtomicU32,
    total: AtomicU64,
    /// When the target recovered; 0: it was not down.
    back: AtomicU64,
    /// When a visitor was last sent to it, or a dial or a check last failed.
    tried: AtomicU64,
    /// The fraction of its flows that get no answer: a moving average, in units of 1/[`WHOLE`].
    silence: AtomicU32,
    /// When a flow was last answered; 0: none was.
    heard: AtomicU64,
    /// The time of a connection, in microseconds: a moving average. 0: none has succeeded.
    micros: AtomicU32,
    /// The time of the last connection ([`clock_millis`]).
    measured: AtomicU64,
    /// A command has drained it.
    drained: AtomicBool,
}

/// The silence of a target that answers none of its flows.
const WHOLE: u32 = 1_000;

/// A target that is this silent is down, if others are not. Three consecutive flows without an
/// answer reach it: a single lost datagram, or a program that expects no answer, does not suffice.
const SILENT: u32 = WHOLE / 2;

/// The divisor of the moving averages: each flow and each dial changes its average by this fraction
/// of the difference.
const STEP: u32 = 4;

/// How long the time of a connection is used after the last connection, in milliseconds.
const MEASURED: u64 = 300_000;

/// A target counts as answering if a flow to it was answered within this time, in milliseconds. An
/// active flow reports answers every 2 s.
const HEARD: u64 = 30_000;

impl Member {
    fn new(what: &'static str, service: &str, target: &Target, is_drained: bool) -> Self {
        let text = target.to_string();
        let (service, health) = (service.to_owned(), Arc::<Health>::default());
        Self {
            id: fingerprint(&text),
            watch: TargetWatch { what, service, target: text, health, is_asked: false },
            target: target.clone(),
            live: AtomicU32::new(0),
            total: AtomicU64::new(0),
            back: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            silence: AtomicU32::new(0),
            micros: AtomicU32::new(0),
            measured: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            drained: AtomicBool::new(is_drained),
        }
    }

    /// Whether it gets no new visitors until a command ends the drain.
    fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    /// Whether a user calls it by this name: its text, with or without the scheme.
    fn is_called(&self, name: &str) -> bool {
        let text = &self.watch.target;
        text == name || text.split_once("://").is_some_and(|(_, bare)| bare == name)
    }

    /// The time of a connection, as measured in the last [`MEASURED`] milliseconds, otherwise 0. A
    /// target that once was slow gets no visitor, so nothing would measure it again.
    fn micros_at(&self, now: u64) -> u32 {
        let age = now.saturating_sub(self.measured.load(Ordering::Relaxed));
        if age < MEASURED { self.micros.load(Ordering::Relaxed) } else { 0 }
    }

    /// Records that a flow is answered, or gets no answer. Returns the silence of the target.
    fn note_answers(&self, answers: bool, now: u64) -> u32 {
        if answers {
            self.heard.store(now, Ordering::Relaxed);
        }
        let next = |silence: u32| {
            if answers { silence - silence / STEP } else { silence + (WHOLE - silence) / STEP }
        };
        // Concurrent updates of two workers may count as one.
        let silence = next(self.silence.load(Ordering::Relaxed));
        self.silence.store(silence, Ordering::Relaxed);
        silence
    }

    /// Whether its flows are answered much more often than those of a target with this silence.
    fn answers_beside(&self, silence: u32, now: u64) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        heard > 0
            && now.saturating_sub(heard) < HEARD
            && self.silence.load(Ordering::Relaxed) <= silence / 4
    }

    /// The mark that identifies the target within the service, for a visitor that returns.
    pub(super) fn mark(&self) -> u64 {
        // 0 is the mark of no target.
        self.id.max(1)
    }

    /// The address that is dialled. `None`: visitors of this protocol cannot use it.
    pub(super) fn address(&self, over: Over) -> Option<TargetAddr> {
        address(&self.target, over)
    }

    /// Records the outcome of a dial or a check.
    pub(super) fn note(&self, outcome: Result<(), &DialError>) {
        self.note_at(outcome, clock_millis());
    }

    fn note_at(&self, outcome: Result<(), &DialError>, now: u64) {
        match outcome {
            Ok(()) if self.watch.health.fault().is_some() => {
                self.back.store(now, Ordering::Relaxed);
                self.silence.store(0, Ordering::Relaxed);
            }
            Ok(()) => {}
            // A dial may take as long as the pause before a trial.
            Err(_) => self.tried.store(now, Ordering::Relaxed),
        }
        self.watch.note(outcome);
    }

    /// The part of its share that it gets now, in percent.
    fn percent(&self, now: u64) -> u64 {
        percent_since(self.back.load(Ordering::Relaxed), now)
    }

    /// Whether it is not known to be down, or is due for a trial with a visitor.
    fn is_fit(&self, now: u64, has_checks: bool) -> bool {
        self.watch.health.fault().is_none()
            || (!has_checks && now.saturating_sub(self.tried.load(Ordering::Relaxed)) >= TRIAL)
    }

    pub(super) fn enter(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.live.load(Ordering::Relaxed) == 0
    }

    fn status(&self, weight: Option<u16>, now: u64) -> ServiceTarget {
        let down = self.watch.health.status();
        let state = match (weight, &down) {
            (None, _) => TargetState::Removed,
            (Some(_), _) if self.is_drained() => TargetState::Draining,
            (Some(_), Some(_)) => TargetState::Down,
            (Some(_), None) if self.percent(now) < 100 => TargetState::Returning,
            (Some(_), None) => TargetState::Up,
        };
        ServiceTarget {
            target: self.watch.target.clone(),
            weight: weight.unwrap_or(0),
            state: state.into(),
            visitors: self.live.load(Ordering::Relaxed).into(),
            visitors_total: self.total.load(Ordering::Relaxed),
            down,
        }
    }
}

/// The targets of a service, as the configuration has them.
#[derive(Debug)]
pub struct Pool {
    policy: Balance,
    /// The targets with their weights; at least one.
    members: Vec<(Arc<Member>, u16)>,
    /// Targets of former configurations that still have visitors.
    leaving: Vec<Arc<Member>>,
    /// Checks detect when a target serves again.
    has_checks: bool,
    /// Checks send requests, so that a connection alone does not mark a target as recovered.
    is_asked: bool,
    /// Checks send datagrams.
    asks_datagrams: bool,
    turns: Mutex<Turns>,
}

impl Pool {
    /// `former`: the previous targets of the service that are still in use. `is_drained`: whether a
    /// new target begins drained.
    fn new(
        what: &'static str,
        service: &Service,
        former: &[Arc<Member>],
        is_drained: bool,
    ) -> Self {
        let known = |text: &str| former.iter().find(|one| one.watch.target == text).cloned();
        let member = |(target, weight): (&Target, u16)| {
            let known = known(&target.to_string());
            let new = || Arc::new(Member::new(what, &service.name, target, is_drained));
            (known.unwrap_or_else(new), weight)
        };
        let members: Vec<_> = service.targets().map(member).collect();
        let is_here =
            |one: &Arc<Member>| members.iter().any(|(member, _)| Arc::ptr_eq(member, one));
        let is_left = |one: &&Arc<Member>| !is_here(one) && !one.is_empty();
        let leaving = former.iter().filter(is_left).cloned().collect();
        let policy = service.spread.balance;
        let (has_checks, is_asked) = (has_checks(service), is_asked(service));
        let (asks_datagrams, turns) = (asks_datagrams(service), Mutex::default());
        Self { policy, members, leaving, has_checks, is_asked, asks_datagrams, turns }
    }

    /// Whether the configuration of the service has these targets, and this policy.
    fn is_of(&self, service: &Service) -> bool {
        let own = self.members.iter().map(|(member, weight)| (&member.target, *weight));
        self.policy == service.spread.balance
            && self.has_checks == has_checks(service)
            && self.is_asked == is_asked(service)
            && self.asks_datagrams == asks_datagrams(service)
            && own.eq(service.targets())
    }

    /// The targets with their states.
    pub(super) fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.iter().map(|(member, _)| member)
    }

    /// The target at this index.
    pub(super) fn member(&self, place: usize) -> &Arc<Member> {
        // Every pool has a target, and an index comes from `pick`.
        let (member, _) = self.members.get(place).unwrap_or(&self.members[0]);
        member
    }

    /// Whether new visitors are refused: each target that would get some is drained.
    pub(super) fn is_drained(&self) -> bool {
        let mut used = self.members.iter().filter(|(_, weight)| *weight > 0).peekable();
        used.peek().is_some() && used.all(|(member, _)| member.is_drained())
    }

    /// The watch of the only target of a service.
    pub(super) fn watch(&self) -> TargetWatch {
        TargetWatch { is_asked: self.is_asked, ..self.member(0).watch.clone() }
    }

    /// Records the time of a connection. Two workers that write at once lose a sample, which a
    /// moving average survives.
    pub(super) fn took(&self, place: usize, time: Duration) {
        self.took_at(place, time, clock_millis());
    }

    fn took_at(&self, place: usize, time: Duration, now: u64) {
        let member = self.member(place);
        let last = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let (average, known) = (&member.micros, member.micros_at(now));
        member.measured.store(now, Ordering::Relaxed);
        let next = if known == 0 {
            last
        } else {
            i64::from(known) + (last - i64::from(known)) / i64::from(STEP)
        };
        average.store(u32::try_from(next.max(1)).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Records how the dial of a visitor ended.
    pub(super) fn dialled(&self, place: usize, outcome: Result<(), &DialError>) {
        if outcome.is_err() || !self.is_asked {
            self.member(place).note(outcome);
        }
    }

    /// Records that a flow to the target at this index is answered, or gets no answer. A target
    /// that is silent while another one answers is down, and its flows should move to another
    /// target, which the result reports. Silence of a whole service has no effect: its protocol may
    /// need no answer. With datagram checks, the checks decide whether the target is down.
    pub(super) fn note_answers(&self, place: usize, answers: bool) -> bool {
        self.note_answers_at(place, answers, clock_millis())
    }

    fn note_answers_at(&self, place: usize, answers: bool, now: u64) -> bool {
        let member = self.member(place);
        let silence = member.note_answers(answers, now);
        if answers {
            return false;
        }
        let is_other = |one: &&Arc<Member>| !Arc::ptr_eq(one, member) && !one.is_drained();
        let mut others = self.members().filter(is_other);
        if member.watch.health.fault().is_some() {
            return others.any(|other| other.watch.health.fault().is_none());
        }
        let fails = silence > SILENT && others.any(|other| other.answers_beside(silence, now));
        if let Some(target) = member.address(Over::Udp).filter(|_| fails && !self.asks_datagrams) {
            let reason = "answers no datagrams, while another target does".to_owned();
            member.note_at(Err(&DialError::Layer { target, reason }), now);
            return true;
        }
        false
    }

    /// The index of the target with this mark, if it is not known to be down. A target of weight 0
    /// and a drained target keep the visitors that they had.
    pub(super) fn serving(&self, mark: u64) -> Option<usize> {
        let is_it = |member: &Member| member.mark() == mark;
        self.members
            .iter()
            .position(|(member, _)| is_it(member) && member.watch.health.fault().is_none())
    }

    /// The index of the target for a visitor, other than the `tried` targets. `None`: all were
    /// tried. If no target serves, targets that are down are tried, because their state may be out
    /// of date. A drained target is not picked.
    pub(super) fn pick(&self, visitor: Option<&Source>, tried: &[usize]) -> Option<usize> {
        self.pick_at(visitor, tried, clock_millis())
    }

    fn pick_at(&self, visitor: Option<&Source>, tried: &[usize], now: u64) -> Option<usize> {
        let candidates = |is_fit: &dyn Fn(&Member) -> bool| -> Vec<_> {
            let all = self.members.iter().enumerate();
            let candidate = |(place, (member, weight)): (usize, &(Arc<Member>, u16))| {
                let is_wanted = !tried.contains(&place) && is_fit(member);
                is_wanted.then(|| {
                    let whole = u64::from(*weight) * 100;
                    Candidate {
                        id: member.id,
                        weight: u32::try_from(whole).unwrap_or(u32::MAX),
                        now: u32::try_from(whole * member.percent(now) / 100).unwrap_or(u32::MAX),
                        live: member.live.load(Ordering::Relaxed),
                        micros: member.micros_at(now),
                    }
                })
            };
            all.map(candidate).collect()
        };
        let key: Option<Key> = visitor.map(key_of);
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pick = |all: Vec<_>| turns.pick(self.policy, &all, key);
        let fit = |member: &Member| !member.is_drained() && member.is_fit(now, self.has_checks);
        let place = pick(candidates(&fit))
            .or_else(|| pick(candidates(&|member| !member.is_drained())))
            // The visitor was admitted just before the last target was drained.
            .or_else(|| tried.is_empty().then(|| pick(candidates(&|_| true))).flatten())?;
        self.member(place).tried.store(now, Ordering::Relaxed);
        Some(place)
    }

    /// Why the service has no target that serves new visitors.
    fn down(&self) -> Option<Down> {
        let is_used = |(member, weight): &&(Arc<Member>, u16)| *weight > 0 && !member.is_drained();
        let used = self.members.iter().filter(is_used);
        let mut first = None;
        for (member, _) in used {
            let down = member.watch.health.status()?;
            first.get_or_insert(down);
        }
        first
    }

    /// The targets for a status; removed targets that still have visitors are last. Empty for a
    /// service with one target.
    fn status(&self) -> Vec<ServiceTarget> {
        let now = clock_millis();
        let leaving = self.leaving.iter().filter(|member| !member.is_empty());
        let gone: Vec<_> = leaving.map(|member| member.status(None, now)).collect();
        if self.members.len() < 2 && gone.is_empty() {
            return Vec::new();
        }
        let own = self.members.iter().map(|(member, weight)| member.status(Some(*weight), now));
        own.chain(gone).collect()
    }
}

/// Checks connect over TCP, or send datagrams. A private UDP service may also have `health` without
/// `udp`, which has no effect.
fn has_checks(service: &Service) -> bool {
    asks_datagrams(service) || (service.health.is_some() && service.carries(Over::Tcp))
}

fn is_asked(service: &Service) -> bool {
    let has_path = |check: &config::Check| check.path.is_some() && service.carries(Over::Tcp);
    asks_datagrams(service) || service.health.as_ref().is_some_and(has_path)
}

fn asks_datagrams(service: &Service) -> bool {
    let has_udp = service.health.as_ref().is_some_and(|check| check.udp.is_some());
    has_udp && service.carries(Over::Udp)
}

/// The targets of a client's services by the name of the service.
#[derive(Debug)]
pub struct Pools {
    /// The word for a service in the log.
    what: &'static str,
    known: Mutex<HashMap<String, Known>>,
}

impl Default for Pools {
    fn default() -> Self {
        Self::of_what("service")
    }
}

/// The targets of one service.
#[derive(Debug)]
struct Known {
    pool: Arc<Pool>,
    /// Every target that a pool, a worker or a visitor has. During a reload, the pool of the former
    /// configuration may be requested after a worker has the new one: a target must not get a
    /// second record then, because the checks would write to one record and the visitors read the
    /// other.
    members: Vec<Weak<Member>>,
    /// A command has drained the whole service, so a target that a reload adds begins drained.
    is_drained: bool,
}

impl Pools {
    /// The targets of services that the log calls `what`.
    pub(super) fn of_what(what: &'static str) -> Self {
        Self { what, known: Mutex::default() }
    }

    /// The targets of a service. A target that stays keeps its state.
    pub fn of(&self, service: &Service) -> Arc<Pool> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&service.name);
        if let Some(known) = known.filter(|known| known.pool.is_of(service)) {
            return Arc::clone(&known.pool);
        }
        let former = known.map(|known| known.members.iter().filter_map(Weak::upgrade).collect());
        let former: Vec<_> = former.unwrap_or_default();
        let is_drained = known.is_some_and(|known| known.is_drained);
        let pool = Arc::new(Pool::new(self.what, service, &former, is_drained));
        let is_new = |one: &&Arc<Member>| !former.iter().any(|other| Arc::ptr_eq(other, one));
        let members = former.iter().chain(pool.members().filter(is_new)).map(Arc::downgrade);
        let members = members.collect();
        let known = Known { pool: Arc::clone(&pool), members, is_drained };
        all.insert(service.name.clone(), known);
        pool
    }

    /// Forgets removed services.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|name, _| is_there(name));
    }
}

impl Targets for Pools {
    fn report(&self, service: &Service, status: &mut ops::status::Service) {
        let pool = self.of(service);
        (status.down, status.targets) = (pool.down(), pool.status());
        if pool.is_drained() && status.state == ServiceState::Up {
            status.state = ServiceState::Draining.into();
        }
    }

    fn drain(&self, order: &DrainOrder) -> anyhow::Result<Drained> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_service = all.contains_key(&order.name);
        let is_meant = |member: &Member| is_service || member.is_called(&order.name);
        let mut drained = Drained::default();
        for (name, known) in all.iter_mut().filter(|(name, _)| !is_service || **name == order.name)
        {
            let targets = known.pool.members().filter(|member| is_meant(member));
            let outcome = |member: &Arc<Member>| DrainedTarget {
                service: name.clone(),
                target: member.watch.target.clone(),
                draining: !order.off,
            };
            let before = drained.targets.len();
            drained.targets.extend(targets.map(outcome));
            if drained.targets.len() == before {
                continue;
            }
            // A target of the former configuration may come back by a reload.
            let members = known.members.iter().filter_map(Weak::upgrade);
            for member in members.filter(|member| is_meant(member)) {
                member.drained.store(!order.off, Ordering::Relaxed);
            }
            known.is_drained = !order.off && (is_service || known.is_drained);
            drained.services.extend(known.pool.is_drained().then(|| name.clone()));
        }
        if drained.targets.is_empty() {
            bail!("there is no service or target `{}`; {}", order.name, known_names(&all));
        }
        // The map has no order; the targets of a service keep theirs.
        drained.targets.sort_by(|a, b| a.service.cmp(&b.service));
        drained.services.sort();
        Ok(drained)
    }
}

/// The names that a command may have, as the end of a message.
fn known_names(all: &HashMap<String, Known>) -> String {
    let targets = all.values().flat_map(|known| known.pool.members());
    let targets: BTreeSet<_> = targets.map(|member| member.watch.target.as_str()).collect();
    let services: BTreeSet<_> = all.keys().map(String::as_str).collect();
    let names: Vec<_> = services.into_iter().chain(targets).collect();
    if names.is_empty() {
        return "this daemon has no service".to_owned();
    }
    let shown: Vec<_> = names.iter().take(NAMES).copied().collect();
    match names.len() - shown.len() {
        0 => format!("known are: {}", shown.join(", ")),
        more => format!("known are: {}, and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
