//! The status of sessions: links and their carriers, services and forwards.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::link::Link;
use ops::status::{self, LinkState, ServiceState, SessionState};
use ops::term;
use proto::{FlowDrops, Target};
use relay::DropReason;
use transport::ConnectionStats;

use super::slices::{SLICE, Slices};
use super::{add_flows, add_streams, merge, requests};
use node::backends::Backend;
use node::entrance::{Entrances, OpenEntrance};
use node::health::Fault;
use node::session;
use node::session::{Handle, PrivateStats, Served, Session, Worker};
use node::tcp_info::{Connections, Ledger};

/// The state of a link, for the status.
pub(super) fn state(link: &Link) -> LinkState {
    match (link.is_live(), link.is_going_away()) {
        (true, false) => LinkState::Up,
        (true, true) => LinkState::GoingAway,
        (false, _) => LinkState::Stalled,
    }
}

/// The part of the status that one worker contributes.
#[derive(Default)]
pub(super) struct Part {
    worker: usize,
    pub(super) sessions: BTreeMap<u64, (Arc<Session>, status::Session)>,
    connections: Connections,
}

pub(super) async fn part(worker: Rc<Worker>) -> Part {
    let mut part = Part { worker: worker.index, ..Part::default() };
    let mut slices = Slices::default();
    for id in worker.state.session_ids() {
        // The links of a session and the totals of its ended links are read without yielding: a
        // link that ends meanwhile is counted once.
        let links = worker.state.links_of(id);
        for (session, link) in &links {
            part.add_link(session, link);
        }
        slices.count(links.len()).await;
        for (nth, (_, link)) in links.iter().enumerate() {
            let mut retained = 0;
            for from in (0..link.stream_slots()).step_by(SLICE) {
                let streams = link.streams(from..from + SLICE);
                retained += streams.iter().map(|(stream, _)| stream.retained).sum::<u64>();
                slices.count(SLICE).await;
            }
            if let Some(summary) =
                part.sessions.get_mut(&id).and_then(|(_, s)| s.links.get_mut(nth))
            {
                summary.retained_bytes = retained;
            }
        }
    }
    part.add_services(&worker, &mut slices, |_| true).await;
    part
}

/// Like [`part`] for some sessions, without the bytes that their links retain, because counting
/// them would visit each stream.
pub(super) async fn part_of(worker: Rc<Worker>, wanted: Arc<HashSet<u64>>) -> Part {
    let mut part = Part { worker: worker.index, ..Part::default() };
    let mut slices = Slices::default();
    for id in &*wanted {
        let links = worker.state.links_of(*id);
        links.iter().for_each(|(session, link)| part.add_link(session, link));
        slices.count(links.len()).await;
    }
    part.add_services(&worker, &mut slices, |session| wanted.contains(&session.id)).await;
    part
}

/// The statistics of a QUIC connection, which has no forward error correction.
fn quic(stats: ConnectionStats) -> Option<status::Quic> {
    stats.repair.is_none().then(|| status::Quic {
        sent_packets: stats.sent_packets,
        lost_packets: stats.lost_packets,
        lost_bytes: stats.lost_bytes,
        window_bytes: stats.window_bytes,
        mtu: stats.mtu,
        rtt_micros: micros(stats.round_trip),
    })
}

/// The statistics of a KCP connection.
fn kcp(stats: ConnectionStats) -> Option<status::Kcp> {
    let repair = stats.repair?;
    Some(status::Kcp {
        sent_packets: stats.sent_packets,
        lost_packets: stats.lost_packets,
        retransmitted_packets: repair.retransmitted_packets,
        parity_packets: repair.parity_packets,
        recovered_packets: repair.recovered_packets,
        window_bytes: stats.window_bytes,
        mtu: stats.mtu,
        rtt_micros: micros(stats.round_trip),
    })
}

/// The path of a link with another client.
fn path(session: &Session, link: &Link) -> Option<status::PeerPath> {
    let peer = link.active_peer()?;
    Some(session.paths.of(link, peer.transport))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Which figures of a part are collected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Those of the fingerprint: without the figures of connections, which are `apart`.
    Printed,
    /// All.
    Whole,
}

/// The status of a session without links and services. The totals are those of its ended links.
pub(super) fn bare(session: &Session, worker: usize) -> status::Session {
    let state = match (session.live() > 0, session.is_on_demand()) {
        (true, _) => SessionState::Up,
        (false, true) => SessionState::Idle,
        (false, false) => SessionState::Connecting,
    };
    let mut summary = status::Session {
        peer: session.name.clone(),
        private: session.is_of_peer(),
        standby: session.is_standby(),
        state: state.into(),
        ..status::Session::default()
    };
    summary.add(session.past(worker));
    summary
}

/// Adds a link of this worker to the status of its session.
pub(super) fn add_link(
    to: &mut status::Session,
    (session, link): (&Session, &Link),
    worker: usize,
    depth: Depth,
) {
    let active = link.active_carrier();
    let round_trip = link.round_trip().map(micros);
    // Most links have one carrier, and a carrier is large.
    let mut carriers = Vec::with_capacity(1);
    link.each_carrier(|number, peer| {
        let watch = peer.watch.as_ref().filter(|_| depth == Depth::Whole);
        let stats = watch.map(|watch| watch.stats());
        carriers.push(status::Carrier {
            number: number.0,
            transport: peer.transport.name().into(),
            peer: term::address(peer.current_address()),
            via: peer.via.as_deref().map(|via| via.to_owned().into()),
            // The round trips of a link are those of its active carrier.
            rtt_micros: round_trip.filter(|_| active == Some(number)),
            cipher: peer.cipher.map(|cipher| cipher.suite.into()),
            backend: peer.cipher.map(|cipher| cipher.backend.into()),
            standby: active.is_some_and(|active| active != number),
            tcp: None,
            quic: stats.and_then(quic),
            kcp: stats.and_then(kcp),
        });
    });
    let (received, sent, resumes) = link.totals();
    to.add([received, sent, resumes]);
    to.links.push(status::Link {
        serial: link.serial(),
        worker,
        state: state(link).into(),
        path: session.is_of_peer().then(|| path(session, link)).flatten(),
        streams: u64::try_from(link.stream_count()).unwrap_or(u64::MAX),
        flows: u64::try_from(link.flow_count()).unwrap_or(u64::MAX),
        dropped: dropped(link.flow_drops()),
        retained_bytes: 0,
        carriers,
    });
}

/// Adds a backend of an entrance to the status of its session. Flows are counted for the entrance,
/// at its first backend.
pub(super) fn add_backend(
    to: &mut status::Session,
    open: &OpenEntrance,
    (nth, backend): (usize, &Backend),
) {
    let aim = &backend.picked.aim;
    let (list, target) = match &aim.target {
        Target::Service(_)
        | Target::Marked { .. }
        | Target::Hop(_)
        | Target::Ask(_)
        | Target::Measure(_) => (&mut to.services, String::new()),
        Target::Private { client, service } => {
            (&mut to.forwards, format!("service://{client}/{service}"))
        }
        Target::Forward(target) | Target::Reported(target) | Target::Detour(target) => {
            (&mut to.forwards, target.clone())
        }
    };
    let mut service = status::Service {
        name: aim.name.clone(),
        address: open.entrance.address.clone(),
        target,
        state: ServiceState::Up.into(),
        down: backend.picked.health.fault().map(Fault::down),
        ..status::Service::default()
    };
    if let Some(stats) = open.stats_by(&backend.picked) {
        add_streams(&mut service, &stats, false);
        service.requests = requests(&stats);
    }
    if let Some(flows) = open.flows.as_ref().filter(|_| nth == 0) {
        add_flows(&mut service, &flows.stats, false);
    }
    list.push(service);
}

/// Adds the joined streams of a private service, which has no entrance, to the status of the
/// session of its client.
pub(super) fn add_private(to: &mut status::Session, private: &PrivateStats) {
    let mut service = status::Service {
        name: private.service.as_str().to_owned(),
        address: status::PRIVATE.to_owned(),
        state: ServiceState::Up.into(),
        ..status::Service::default()
    };
    add_streams(&mut service, &private.stats, false);
    to.services.push(service);
}

impl Part {
    fn add_link(&mut self, session: &Arc<Session>, link: &Link) {
        link.each_carrier(|number, peer| {
            let ends = peer.connection.map(|ends| ((link.serial(), number.0), ends));
            self.connections.extend(ends);
        });
        let worker = self.worker;
        add_link(self.entry(session), (session, link), worker, Depth::Whole);
    }

    /// Adds the services and forwards of the selected sessions.
    async fn add_services(
        &mut self,
        worker: &Worker,
        slices: &mut Slices,
        is_meant: impl Fn(&Session) -> bool,
    ) {
        worker.state.of::<Served>().each_private(|private| {
            if is_meant(&private.session) {
                add_private(self.entry(&private.session), private);
            }
        });
        let entrances: Vec<_> = worker.state.of::<Entrances>().0.borrow().keys().copied().collect();
        for id in entrances {
            if let Some(open) = worker.state.of::<Entrances>().0.borrow().get(&id) {
                self.add_entrance(open, &is_meant);
            }
            slices.count(1).await;
        }
    }

    /// Adds the backends of an entrance whose session is selected.
    fn add_entrance(&mut self, open: &OpenEntrance, is_meant: impl Fn(&Session) -> bool) {
        for (nth, backend) in open.entrance.backends.counted().iter().enumerate() {
            if is_meant(&backend.session) {
                add_backend(self.entry(&backend.session), open, (nth, backend));
            }
        }
    }

    fn entry(&mut self, session: &Arc<Session>) -> &mut status::Session {
        let worker = self.worker;
        let new = || (Arc::clone(session), bare(session, worker));
        &mut self.sessions.entry(session.id).or_insert_with(new).1
    }
}

/// Adds the part of a worker to those of other workers. Returns the TCP connections of its
/// carriers.
pub(super) fn join(
    all: &mut BTreeMap<u64, (Arc<Session>, status::Session)>,
    part: Part,
) -> Connections {
    for (id, session) in part.sessions {
        let Some((_, whole)) = all.get_mut(&id) else {
            all.insert(id, session);
            continue;
        };
        let (_, session) = session;
        whole.add([session.bytes_received, session.bytes_sent, session.resumes]);
        whole.links.extend(session.links);
        merge(&mut whole.services, session.services);
        merge(&mut whole.forwards, session.forwards);
    }
    part.connections
}

/// All sessions over all workers, with the kernel's statistics of their connections.
pub async fn sessions(handles: &[Handle], ledger: &Ledger) -> BTreeMap<u64, status::Session> {
    let look = ledger.look().await;
    let mut all = BTreeMap::new();
    let (mut seen, mut connections) = (HashSet::new(), Connections::new());
    for (worker, handle) in handles.iter().enumerate() {
        // A worker that has stopped has no sessions.
        let Ok(part) = handle.task(part).await else { continue };
        seen.extend(part.sessions.keys().map(|id| (*id, worker)));
        connections.extend(join(&mut all, part));
    }
    look.fill(all.values_mut().map(|(_, summary)| summary), &connections).await;
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for (id, (session, summary)) in &mut all {
        // A worker that knows the session has added the totals of its ended links in the same call
        // as its live links.
        for worker in (0..handles.len()).filter(|worker| !seen.contains(&(*id, *worker))) {
            summary.add(session.past(worker));
        }
        newest.insert(session.name.clone(), *id);
    }
    for (name, id) in newest {
        if let Some((_, summary)) = all.get_mut(&id) {
            summary.add(session::ended(&name));
            summary.sent = ledger.sums(&name);
        }
    }
    all.into_iter().map(|(id, (_, summary))| (id, summary)).collect()
}

/// The status of a session without a link and without an entrance, which no worker has. `others`
/// are the sessions that a worker has.
pub fn without_links(
    session: &Session,
    others: &BTreeMap<u64, status::Session>,
    ledger: &Ledger,
) -> status::Session {
    let mut summary = status::Session {
        peer: session.name.clone(),
        state: SessionState::Connecting.into(),
        ..status::Session::default()
    };
    (0..session.workers()).for_each(|worker| summary.add(session.past(worker)));
    if others.values().all(|other| other.peer != session.name) {
        summary.add(session::ended(&session.name));
        summary.sent = ledger.sums(&session.name);
    }
    summary
}

/// The numbers of datagrams that a link dropped, by reason.
fn dropped(drops: FlowDrops) -> BTreeMap<String, u64> {
    let all = [
        (DropReason::Early, drops.early),
        (DropReason::Late, drops.late),
        (DropReason::Unjoined, drops.unjoined),
    ];
    let some = all.into_iter().filter(|(_, count)| *count > 0);
    some.map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}
