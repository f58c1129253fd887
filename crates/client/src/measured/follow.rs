//! The task that measures the paths to the servers, asks the chooser for its next step, and carries
//! the step out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use config::Choose;
use link::MoveError;
use node::session::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::away::Available;
use super::chooser::{Active, BUSY, ChoiceReason, Chooser, LOADED, NextStep, PROBE, SeenLinks};
use super::figures::{DOWN, Figures, UP};
use super::sample::{self, LinkCounts, WorkerCounts};
use super::{Choice, Measured};
use crate::links::Links;
use crate::moving::move_of;
use crate::shared::ClientShared;
use crate::uplink::Uplink;

/// The interval of the counts, and that during a choice or a transfer.
const LOOK: Duration = Duration::from_secs(1);
const CLOSE_LOOK: Duration = Duration::from_millis(500);

/// The interval of the measurements of the round trip while little is carried.
const PING: Duration = Duration::from_secs(10);

/// The limit for the answer to such a measurement.
const PATIENCE: Duration = Duration::from_secs(3);

/// The interval of the questions to the kernel about TCP connections.
const TCP: Duration = Duration::from_secs(10);

/// The shortest time between two writes of the file.
const WRITE: Duration = Duration::from_secs(60);

/// The interval of a look at the network while it is not known. A known network is looked at when
/// the kernel announces a change, and otherwise as often as the file is written.
const NETWORK: Duration = Duration::from_secs(5);

/// The longest wait for a move of the links.
const MOVE: Duration = Duration::from_secs(5);

/// A second of a transfer is at least this long.
const SECOND: Duration = Duration::from_millis(950);

/// The least bytes between two looks of which the processor time is counted, and the most bytes
/// over other links meanwhile.
const ALONE: u64 = 1 << 20;
const OTHERS: u64 = 64 << 10;

/// The end of something that was begun.
enum Done {
    /// The round trip; `None`: there was no answer within [`PROBE`].
    Probed(u64, usize, Option<Result<Duration, MoveError>>),
    Moved(u64, usize, bool),
    /// The round trips by the serial of the link, in microseconds.
    Pinged(Vec<(u64, u64)>),
    Tcp(HashMap<(u64, u32), [u64; 2]>),
}

/// The counters of a link at the last look.
struct Last {
    path: String,
    bytes: [u64; 2],
    packets: Option<(u32, [u64; 2])>,
}

/// The choice for the links of an uplink.
struct ChosenServer {
    chooser: Chooser,
    links: Arc<Links>,
    name: Arc<String>,
    labels: Vec<String>,
    /// The bytes since the beginning of the present second.
    second: Option<(Instant, [u64; 2])>,
    /// The rates since the last look.
    rates: Option<[u64; 2]>,
    active: Active,
    /// The paths that exist now.
    available: Available,
    /// When the round trip was asked for last.
    pinged: Option<Instant>,
}

struct Follower {
    handles: Arc<[Handle]>,
    shared: Arc<ClientShared>,
    /// By the id of the session.
    servers: HashMap<u64, ChosenServer>,
    last: HashMap<u64, Last>,
    /// The processor time of each worker at the last look.
    cpu: Vec<Option<Duration>>,
    looked: Instant,
    tcp_at: Instant,
    /// The packets of TCP connections at the last question.
    tcp: HashMap<(u64, u32), [u64; 2]>,
    network_at: Instant,
    written: Instant,
    tasks: JoinSet<Done>,
}

/// Measures and chooses, while the configuration says so, until the client stops.
pub(crate) async fn follow(handles: Arc<[Handle]>, shared: Arc<ClientShared>) {
    let now = Instant::now();
    let mut follower = Follower {
        handles,
        shared,
        servers: HashMap::new(),
        last: HashMap::new(),
        cpu: Vec::new(),
        looked: now,
        tcp_at: now + TCP,
        tcp: HashMap::new(),
        network_at: now,
        written: now,
        tasks: JoinSet::new(),
    };
    while !follower.shared.is_leaving() {
        let config = follower.shared.config.load_full();
        if config.choose == Choose::Listed {
            follower.servers.clear();
            let shared = &follower.shared;
            shared.uplinks.until(|| shared.config.load().choose != Choose::Listed).await;
            continue;
        }
        follower.shared.measured.open(&config).await;
        follower.look_at_network().await;
        follower.look().await;
        if follower.written.elapsed() >= WRITE {
            follower.written = Instant::now();
            follower.shared.measured.save(&config).await;
        }
        let is_close = follower.servers.values().any(|one| one.chooser.is_looking_closely());
        let next = sleep(if is_close { CLOSE_LOOK } else { LOOK });
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = &mut next => break,
                Some(done) = follower.tasks.join_next() => {
                    // A task of a worker that has stopped has no result.
                    if let Ok(done) = done {
                        follower.note(done);
                    }
                }
            }
        }
    }
}

impl Follower {
    async fn look_at_network(&mut self) {
        let measured = &self.shared.measured;
        let now = Instant::now();
        let has_changed = measured.take_change();
        if !has_changed && now < self.network_at {
            return;
        }
        if measured.look_at_network().await {
            self.servers.clear();
        }
        let pause = if measured.knows_network() { WRITE } else { NETWORK };
        self.network_at = now + pause;
    }

    /// Counts, and takes the next steps.
    async fn look(&mut self) {
        let counts = sample::all(&self.handles).await;
        let now = Instant::now();
        self.follow_servers();
        self.count(&counts, now);
        self.ask_tcp(&counts, now);
        for path in self.shared.measured.take_commands() {
            for server in self.servers.values_mut() {
                if let Some(nth) = server.labels.iter().position(|label| *label == path) {
                    server.chooser.commanded(nth, now);
                }
            }
        }
        let ids: Vec<_> = self.servers.keys().copied().collect();
        for id in ids {
            self.choose(id, now);
        }
    }

    /// Begins to choose for new links, and forgets links that were replaced.
    fn follow_servers(&mut self) {
        let all = self.shared.uplinks.all();
        let current: Vec<_> = all.iter().map(|uplink| (uplink, uplink.links())).collect();
        self.servers.retain(|id, _| current.iter().any(|(_, links)| links.session.id == *id));
        for (uplink, links) in current {
            if links.choice.is_some() && !self.servers.contains_key(&links.session.id) {
                let server = ChosenServer::new(uplink, links, &self.shared.measured);
                self.servers.insert(server.links.session.id, server);
            }
        }
    }

    /// Records what was carried since the last look.
    fn count(&mut self, counts: &[WorkerCounts], now: Instant) {
        let measured = &self.shared.measured;
        let span = now - std::mem::replace(&mut self.looked, now);
        let paths = measured.paths_of_links();
        let mut sums: HashMap<u64, Option<[u64; 2]>> = HashMap::new();
        let mut actives: HashMap<u64, Vec<&str>> = HashMap::new();
        let mut met = HashMap::new();
        for (nth, worker) in counts.iter().enumerate() {
            let (mut carried, mut others) = (HashMap::<(u64, &str), u64>::new(), 0);
            for link in &worker.links {
                let path = paths.get(&link.serial).map(String::as_str);
                let known = self.servers.contains_key(&link.session);
                let Some(path) = path.filter(|_| known) else {
                    others += 1;
                    continue;
                };
                if link.is_live {
                    actives.entry(link.session).or_default().push(path);
                }
                let last = self.last.get(&link.serial).filter(|last| last.path == path);
                let sum = sums.entry(link.session).or_insert(Some([0; 2]));
                match last {
                    Some(last) => {
                        let more =
                            [UP, DOWN].map(|way| link.bytes[way].saturating_sub(last.bytes[way]));
                        if let Some(sum) = sum {
                            (sum[UP], sum[DOWN]) = (sum[UP] + more[UP], sum[DOWN] + more[DOWN]);
                        }
                        *carried.entry((link.session, path)).or_default() += more[UP] + more[DOWN];
                        self.note_packets(link, last, path);
                    }
                    None => *sum = None,
                }
                let last = Last { path: path.to_owned(), bytes: link.bytes, packets: link.packets };
                met.insert(link.serial, last);
            }
            let before = self.cpu.get(nth).copied().flatten();
            self.note_cpu(worker.cpu.zip(before), &carried, others);
        }
        self.last = met;
        self.cpu = counts.iter().map(|worker| worker.cpu).collect();
        for (id, server) in &mut self.servers {
            let bytes = sums.get(id).copied().flatten();
            let live = actives.get(id).map(Vec::as_slice).unwrap_or_default();
            server.count(bytes, live, (now, span), measured);
        }
    }

    fn note_packets(&self, link: &LinkCounts, last: &Last, path: &str) {
        let Some(server) = self.servers.get(&link.session) else { return };
        if let (Some((carrier, now)), Some((before, then))) = (link.packets, last.packets)
            && carrier == before
        {
            let [sent, lost] = [0, 1].map(|nth| now[nth].saturating_sub(then[nth]));
            if sent > 0 {
                self.shared.measured.note(&server.name, path, |place, _| {
                    place.note_packets(sent, lost);
                });
            }
        }
    }

    /// Records the processor time of a worker, if one path alone was busy there.
    fn note_cpu(
        &self,
        times: Option<(Duration, Duration)>,
        carried: &HashMap<(u64, &str), u64>,
        others: u64,
    ) {
        let Some((now, before)) = times.filter(|_| others == 0) else { return };
        let busy = carried.iter().max_by_key(|(_, bytes)| **bytes);
        let Some(((session, path), bytes)) = busy.filter(|(_, bytes)| **bytes >= ALONE) else {
            return;
        };
        let all: u64 = carried.values().sum();
        let Some(server) = self.servers.get(session).filter(|_| all - bytes <= OTHERS) else {
            return;
        };
        let time = now.saturating_sub(before);
        self.shared.measured.note(&server.name, path, |place, at| {
            place.note_cpu(time, *bytes, at);
        });
    }

    /// Asks the kernel for the packets of TCP connections.
    fn ask_tcp(&mut self, counts: &[WorkerCounts], now: Instant) {
        if now < self.tcp_at {
            return;
        }
        self.tcp_at = now + TCP;
        let links = counts.iter().flat_map(|worker| &worker.links);
        let own = links.filter(|link| self.servers.contains_key(&link.session));
        let tcp = own.filter_map(|link| {
            let (carrier, connection) = link.tcp?;
            Some(((link.serial, carrier), connection))
        });
        let tcp: Vec<_> = tcp.collect();
        if !tcp.is_empty() {
            self.tasks.spawn_local(async move { Done::Tcp(sample::packets_of_tcp(tcp).await) });
        }
    }

    fn choose(&mut self, id: u64, now: Instant) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let measured = &self.shared.measured;
        let all = self.shared.uplinks.all();
        let is_there = |name: &str| {
            all.iter().any(|uplink| **uplink.label() == *name && uplink.session().answers())
        };
        for path in server.look_at_others(is_there) {
            server.chooser.is_available_again(path, now);
        }
        let figures = server.figures(measured);
        let seen = SeenLinks { now, paths: &figures, active: server.active, rates: server.rates };
        let before = server.chooser.choice();
        let step = server.chooser.step(&seen);
        for verdict in server.chooser.take_verdicts() {
            let Some(path) = server.labels.get(verdict.path) else { continue };
            measured.note(&server.name, path, |place, at| {
                place.note_trial(verdict.direction, verdict.rate, at);
                place.note_policed(verdict.policed);
            });
        }
        let figures = server.figures(measured);
        if let Some(order) = &server.links.choice {
            order.set(server.chooser.order(&figures));
        }
        server.show(id, measured);
        let choice = server.chooser.choice();
        if let Some((path, why)) = choice.filter(|_| choice != before) {
            let (server, path, why) = (&server.name, server.name_of(path), server.text(why));
            tracing::info!(%server, path, "{path} is the path to {server}, because {why}");
        }
        match step {
            Some(NextStep::Probe(path)) => self.probe(id, path),
            Some(NextStep::Move(path)) => self.move_links(id, path),
            None => {}
        }
        self.ping(id, now);
    }

    /// Measures the round trip of a server, when it is due.
    fn ping(&mut self, id: u64, now: Instant) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let since = server.pinged.map(|at| now - at);
        let is_first = server.chooser.chooses_first();
        if server.active == Active::None || !ping_is_due(since, server.rates, is_first) {
            return;
        }
        server.pinged = Some(now);
        let (handles, session) = (Arc::clone(&self.handles), Arc::clone(&server.links.session));
        self.tasks.spawn_local(async move {
            let ping = probes::ping_links(&handles, &session, PATIENCE).await;
            let told = ping.links.into_iter().filter_map(|pong| Some((pong.link, pong.micros?)));
            Done::Pinged(told.collect())
        });
    }

    fn probe(&mut self, id: u64, path: usize) {
        let Some(server) = self.servers.get(&id) else { return };
        let (handles, label) = (Arc::clone(&self.handles), server.name_of(path));
        tracing::debug!(path = label, "a path is probed");
        self.tasks.spawn_local(async move {
            for handle in handles.iter() {
                let to = label.clone();
                let probe = handle.task(move |worker| async move {
                    let links = worker.state.links_of(id);
                    let live = links.iter().find(|(_, link)| link.is_live())?;
                    Some(timeout(PROBE, live.1.probe(&to)).await)
                });
                if let Ok(Some(outcome)) = probe.await {
                    return Done::Probed(id, path, outcome.ok());
                }
            }
            Done::Probed(id, path, Some(Err(MoveError::Interrupted)))
        });
    }

    fn move_links(&mut self, id: u64, path: usize) {
        let Some(server) = self.servers.get(&id) else { return };
        let (handles, label) = (Arc::clone(&self.handles), server.name_of(path));
        let what = if server.chooser.trial().is_some() { "for a trial" } else { "to stay" };
        let name = &server.name;
        tracing::info!(server = %name, path = label, "the links to {name} move to {label} {what}");
        self.tasks.spawn_local(async move {
            let mut parts = JoinSet::new();
            for handle in handles.iter() {
                let (handle, to) = (handle.clone(), Some(label.clone()));
                parts.spawn_local(async move {
                    // A worker that has stopped has no links.
                    let part = handle.task(move |worker| move_of(worker, id, to)).await;
                    part.map(|part| (part.moved.len(), part.failed.len())).unwrap_or_default()
                });
            }
            let all = async {
                let mut sum = (0, 0);
                while let Some(part) = parts.join_next().await {
                    let (moved, failed) = part.unwrap_or_default();
                    sum = (sum.0 + moved, sum.1 + failed);
                }
                sum.0 > 0 && sum.1 == 0
            };
            Done::Moved(id, path, timeout(MOVE, all).await.unwrap_or(false))
        });
    }

    fn note(&mut self, done: Done) {
        let measured = &self.shared.measured;
        match done {
            Done::Probed(id, path, outcome) => {
                let Some(server) = self.servers.get_mut(&id) else { return };
                let label = server.name_of(path);
                // The other server was lost during the probe.
                let is_away = outcome.is_none() && !server.available.has(path);
                let is_loaded = is_loaded(server.rates);
                match &outcome {
                    Some(Ok(_)) if is_loaded => {}
                    Some(Ok(rtt)) => measured.note(&server.name, &label, |place, now| {
                        place.note_round_trip(*rtt, now);
                    }),
                    // The link has recorded the end of its attempt.
                    Some(Err(_)) => {}
                    None if is_away => {}
                    None => measured.note(&server.name, &label, |place, now| {
                        let why = format!("no answer within {} s", PROBE.as_secs());
                        place.note_attempt(Some(&why), now);
                    }),
                }
                let is_put_off = matches!(
                    outcome,
                    Some(Err(MoveError::Interrupted | MoveError::Unavailable { .. }))
                );
                if is_put_off || is_away {
                    server.chooser.probe_was_put_off(path, Instant::now());
                } else {
                    let works = matches!(outcome, Some(Ok(_)));
                    server.chooser.probed(path, works, Instant::now());
                    if works && is_loaded {
                        server.chooser.probe_was_in_queue(path);
                    }
                }
            }
            Done::Moved(id, path, works) => {
                if let Some(server) = self.servers.get_mut(&id) {
                    server.chooser.moved(path, works);
                    // The round trip over the new path is not known.
                    server.pinged = None;
                }
            }
            Done::Pinged(told) => {
                let paths = measured.paths_of_links();
                for (link, micros) in told {
                    let Some(path) = paths.get(&link) else { continue };
                    let of = self.servers.values().find(|server| server.labels.contains(path));
                    let Some(server) = of else { continue };
                    measured.note(&server.name, path, |place, now| {
                        place.note_round_trip(Duration::from_micros(micros), now);
                    });
                }
            }
            Done::Tcp(told) => {
                let paths = measured.paths_of_links();
                for (whose, now) in &told {
                    let Some(then) = self.tcp.get(whose) else { continue };
                    let [sent, lost] = [0, 1].map(|nth| now[nth].saturating_sub(then[nth]));
                    let Some(path) = paths.get(&whose.0).filter(|_| sent > 0) else { continue };
                    let of = self.servers.values().find(|server| server.labels.contains(path));
                    let Some(server) = of else { continue };
                    measured.note(&server.name, path, |place, _| place.note_packets(sent, lost));
                }
                self.tcp = told;
            }
        }
    }
}

/// Whether so much is carried that a round trip may be that of a full queue.
fn is_loaded(rates: Option<[u64; 2]>) -> bool {
    rates.is_some_and(|rates| rates.iter().any(|rate| *rate >= LOADED))
}

/// Whether the round trip is measured, `since` the last measurement on the present path: while
/// little is carried, because a full queue says nothing about the path. The first choice needs the
/// figure in any case.
fn ping_is_due(since: Option<Duration>, rates: Option<[u64; 2]>, is_first: bool) -> bool {
    let is_idle = rates.is_some() && !is_loaded(rates);
    match since {
        None => is_idle || is_first,
        Some(since) => since >= PING && is_idle,
    }
}

impl ChosenServer {
    fn new(uplink: &Uplink, links: Arc<Links>, measured: &Measured) -> Self {
        let labels: Vec<_> = links.paths.iter().map(|path| path.label.clone()).collect();
        let name = uplink.label();
        Self {
            chooser: Chooser::new(&measured.figures(&name, &labels)),
            links,
            name,
            available: Available::all(labels.len()),
            labels,
            second: None,
            rates: None,
            active: Active::None,
            pinged: None,
        }
    }

    /// Records which paths are available; `is_there`: whether the client has a link to the server
    /// of this name. Returns the paths that are available again.
    fn look_at_others(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<usize> {
        let ways = self.links.plan.ways.iter();
        self.available.look(ways.map(|way| way.via().is_none_or(&is_there)))
    }

    /// The figures of the paths for the choice.
    fn figures(&self, measured: &Measured) -> Vec<Figures> {
        self.available.applied_to(measured.figures(&self.name, &self.labels))
    }

    fn name_of(&self, path: usize) -> String {
        self.labels.get(path).cloned().unwrap_or_default()
    }

    fn text(&self, why: ChoiceReason) -> String {
        why.text(|path| self.name_of(path))
    }

    /// Records the bytes since the last look; `None`: a link is new, or has changed its path.
    fn count(
        &mut self,
        bytes: Option<[u64; 2]>,
        live: &[&str],
        (now, span): (Instant, Duration),
        measured: &Measured,
    ) {
        let index = |path: &str| self.labels.iter().position(|known| known == path);
        self.active = match live.split_first() {
            None => Active::None,
            Some((first, others)) if others.iter().all(|other| other == first) => {
                index(first).map_or(Active::None, Active::One)
            }
            Some(_) => Active::Several,
        };
        let per_second = |bytes: u64, span: Duration| {
            let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
            bytes.saturating_mul(1_000_000) / micros
        };
        let (Some(bytes), Active::One(path)) = (bytes, self.active) else {
            (self.second, self.rates) = (None, None);
            return;
        };
        self.rates = Some(bytes.map(|bytes| per_second(bytes, span)));
        let (began, sum) = self.second.unwrap_or((now - span, [0; 2]));
        let sum = [sum[UP] + bytes[UP], sum[DOWN] + bytes[DOWN]];
        if now - began < SECOND {
            self.second = Some((began, sum));
            return;
        }
        self.second = None;
        // The rate of a trial is known at its end: a transfer may end in it.
        if self.chooser.trial() == Some(path) {
            return;
        }
        for direction in [UP, DOWN] {
            let rate = per_second(sum[direction], now - began);
            if rate >= BUSY {
                let label = self.name_of(path);
                measured.note(&self.name, &label, |place, now| {
                    place.note_rate(direction, rate, now);
                });
            }
        }
    }

    /// Shows the choice in the status.
    fn show(&self, id: u64, measured: &Measured) {
        let in_use = match self.active {
            Active::One(path) => Some(self.name_of(path)),
            Active::None | Active::Several => None,
        };
        let choice = self.chooser.choice();
        let mut why = choice.map(|(_, why)| self.text(why)).unwrap_or_default();
        if let Some(trial) = self.chooser.trial() {
            why.push_str(&format!(", and {} is being tried", self.name_of(trial)));
        }
        let chosen = choice.map(|(path, _)| self.name_of(path));
        measured.state().choices.insert(id, Choice { in_use, chosen, why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_of_a_path_is_not_measured_in_a_full_queue() {
        let (idle, busy) = (Some([0, BUSY]), Some([0, LOADED]));
        assert!(ping_is_due(None, idle, false) && ping_is_due(None, busy, true));
        assert!(!ping_is_due(None, busy, false), "the path of a trial");
        assert!(!ping_is_due(None, None, false), "the links have moved a moment ago");
        assert!(ping_is_due(Some(PING), idle, false));
        assert!(!ping_is_due(Some(PING), busy, true) && !ping_is_due(Some(PING / 2), idle, true));
    }
}
