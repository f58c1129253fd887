//! The status of links and entrances, collected from all workers, and the end of all links. Both
//! roles use this module.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::link::Link;
use ops::status::{StreamKind, StreamNumber};
use ops::{status, term};
use proto::{FlowDrops, FlowId, StreamId, Target};
use relay::{DropReason, FlowStats, Stats, Straight};
use tokio::runtime::Handle as Runtime;
use transport::Fares;

use crate::health::Fault;
use crate::session::{self, Handle, Session, Worker};
use crate::tcp_info::{Connections, Ledger};

/// The period at which a drain checks whether the last stream has ended.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// The time that the last frames of a closing link get to leave.
const FAREWELL: Duration = Duration::from_millis(100);

/// The state of a link, for the status.
fn state(link: &Link) -> &'static str {
    match (link.is_live(), link.is_going_away()) {
        (true, false) => "up",
        (true, true) => "going away",
        (false, _) => "stalled",
    }
}

/// The part of one worker in the status.
#[derive(Default)]
struct Part {
    worker: usize,
    sessions: BTreeMap<u64, (Arc<Session>, status::Session)>,
    connections: Connections,
}

fn part(worker: &Rc<Worker>) -> Part {
    let mut part = Part { worker: worker.index, ..Part::default() };
    for (session, link) in worker.state.all_links() {
        let carriers = link.carriers();
        let round_trip = link.round_trip().map(|rtt| rtt.as_micros());
        let (received, sent, resumes) = link.totals();
        let ends = carriers
            .iter()
            .filter_map(|(number, peer)| Some(((link.serial(), number.0), peer.connection?)));
        part.connections.extend(ends);
        let entry = part.entry(&session);
        entry.add([received, sent, resumes]);
        entry.links.push(status::Link {
            serial: link.serial(),
            worker: worker.index,
            state: state(&link).to_owned(),
            streams: u64::try_from(link.stream_count()).unwrap_or(u64::MAX),
            flows: u64::try_from(link.flow_count()).unwrap_or(u64::MAX),
            dropped: dropped(link.flow_drops()),
            retained_bytes: link.retained(),
            carriers: carriers
                .into_iter()
                .map(|(number, peer)| {
                    let fares = peer.watch.map(|watch| watch.fares());
                    status::Carrier {
                        number: number.0,
                        transport: peer.transport.name().to_owned(),
                        peer: term::address(peer.address),
                        rtt_micros: round_trip.and_then(|micros| u64::try_from(micros).ok()),
                        cipher: peer.cipher.map(|cipher| cipher.suite.to_owned()),
                        backend: peer.cipher.map(|cipher| cipher.backend.to_owned()),
                        tcp: None,
                        quic: fares.and_then(quic),
                        kcp: fares.and_then(kcp),
                    }
                })
                .collect(),
        });
    }
    for open in worker.state.entrances.borrow().values() {
        let entrance = &open.entrance;
        let stats = &open.settings.stats;
        let session = entrance.route.session.load();
        let entry = part.entry(&session);
        let aim = entrance.route.aim.load();
        let (list, target) = match &aim.target {
            Target::Service(_) | Target::Measure(_) => (&mut entry.services, String::new()),
            Target::Forward(target) | Target::Reported(target) => {
                (&mut entry.forwards, target.clone())
            }
        };
        let mut service = status::Service {
            name: aim.name.clone(),
            address: entrance.address.clone(),
            target,
            state: status::UP.to_owned(),
            streams: stats.live(),
            streams_total: stats.opened(),
            bytes_in: stats.bytes_in(),
            bytes_out: stats.bytes_out(),
            refused: refused(stats),
            down: entrance.health.fault().map(Fault::down),
            ..status::Service::default()
        };
        if let Some(flows) = &open.flows {
            add_flows(&mut service, &flows.stats, false);
        }
        list.push(service);
    }
    part
}

/// The figures of a connection of QUIC, which has no forward error correction.
fn quic(fares: Fares) -> Option<status::Quic> {
    fares.repair.is_none().then(|| status::Quic {
        sent_packets: fares.sent_packets,
        lost_packets: fares.lost_packets,
        lost_bytes: fares.lost_bytes,
        window_bytes: fares.window_bytes,
        mtu: fares.mtu,
        rtt_micros: micros(fares.round_trip),
    })
}

/// The figures of a connection of KCP.
fn kcp(fares: Fares) -> Option<status::Kcp> {
    let repair = fares.repair?;
    Some(status::Kcp {
        sent_packets: fares.sent_packets,
        lost_packets: fares.lost_packets,
        retransmitted_packets: repair.retransmitted_packets,
        parity_packets: repair.parity_packets,
        recovered_packets: repair.recovered_packets,
        window_bytes: fares.window_bytes,
        mtu: fares.mtu,
        rtt_micros: micros(fares.round_trip),
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Part {
    fn entry(&mut self, session: &Arc<Session>) -> &mut status::Session {
        let worker = self.worker;
        let new = || {
            let mut told = status::Session {
                peer: session.name.clone(),
                state: if session.live() > 0 { "up" } else { "connecting" }.to_owned(),
                ..status::Session::default()
            };
            told.add(session.past(worker));
            (Arc::clone(session), told)
        };
        &mut self.sessions.entry(session.id).or_insert_with(new).1
    }
}

/// All sessions over all workers, with the kernel's figures of their connections.
pub(crate) async fn sessions(
    handles: &[Handle],
    ledger: &Ledger,
) -> BTreeMap<u64, status::Session> {
    let look = ledger.look().await;
    let mut all: BTreeMap<u64, (Arc<Session>, status::Session)> = BTreeMap::new();
    let (mut seen, mut connections) = (HashSet::new(), Connections::new());
    for (worker, handle) in handles.iter().enumerate() {
        // A worker that has stopped has no sessions.
        let Ok(part) = handle.call(part).await else { continue };
        connections.extend(part.connections);
        for (id, session) in part.sessions {
            seen.insert((id, worker));
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
    }
    look.fill(all.values_mut().map(|(_, told)| told), &connections).await;
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for (id, (session, told)) in &mut all {
        // A worker that knows the session has added the totals of its ended links in the same call
        // as its live links.
        for worker in (0..handles.len()).filter(|worker| !seen.contains(&(*id, *worker))) {
            told.add(session.past(worker));
        }
        newest.insert(session.name.clone(), *id);
    }
    for (name, id) in newest {
        if let Some((_, told)) = all.get_mut(&id) {
            told.add(session::ended(&name));
            told.sent = ledger.sums(&name);
        }
    }
    all.into_iter().map(|(id, (_, told))| (id, told)).collect()
}

/// The status of a session without a link and without an entrance, which no worker knows. `others`
/// are the sessions that a worker knows.
pub(crate) fn without_links(
    session: &Session,
    others: &BTreeMap<u64, status::Session>,
    ledger: &Ledger,
) -> status::Session {
    let mut told = status::Session {
        peer: session.name.clone(),
        state: "connecting".to_owned(),
        ..status::Session::default()
    };
    (0..session.workers()).for_each(|worker| told.add(session.past(worker)));
    if others.values().all(|other| other.peer != session.name) {
        told.add(session::ended(&session.name));
        told.sent = ledger.sums(&session.name);
    }
    told
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

/// Adds the counts of flows. `to_target`: the sockets here belong to targets, so that what they sent
/// came from visitors.
pub(crate) fn add_flows(service: &mut status::Service, flows: &FlowStats, to_target: bool) {
    service.flows += flows.live();
    service.flows_total += flows.opened();
    let (datagrams, bytes) =
        ([flows.datagrams_in(), flows.datagrams_out()], [flows.bytes_in(), flows.bytes_out()]);
    let [visitors, targets] = if to_target { [1, 0] } else { [0, 1] };
    service.datagrams_in += datagrams[visitors];
    service.datagrams_out += datagrams[targets];
    service.bytes_in += bytes[visitors];
    service.bytes_out += bytes[targets];
    for (reason, count) in flows.drops() {
        *service.dropped.entry(reason.name().to_owned()).or_default() += count;
    }
}

/// The numbers of refusals by reason.
pub(crate) fn refused(stats: &Stats) -> BTreeMap<String, u64> {
    let barred = Some((status::VISITOR_DENIED, stats.barred())).filter(|(_, count)| *count > 0);
    let by_code = stats.refusals().map(|(code, count)| (code.name(), count));
    by_code.chain(barred).map(|(reason, count)| (reason.to_owned(), count)).collect()
}

/// Lists at most `limit` streams. `service` restricts the list to one service.
pub(crate) async fn streams(
    handles: &[Handle],
    service: Option<String>,
    limit: usize,
) -> status::Streams {
    let mut all = status::Streams::default();
    for handle in handles {
        let (service, room) = (service.clone(), limit.saturating_sub(all.list.len()));
        let part = handle.call(move |worker| streams_of(worker, service.as_deref(), room)).await;
        let Ok(part) = part else { continue };
        all.total += part.total;
        all.list.extend(part.list);
    }
    all
}

fn streams_of(worker: &Rc<Worker>, wanted: Option<&str>, room: usize) -> status::Streams {
    let names = worker.state.counted_names();
    let mut part = status::Streams::default();
    let mut add = |entry: status::Stream, counted: *const ()| {
        let service = names.get(&counted).map(String::as_str).unwrap_or_default();
        if wanted.is_some_and(|wanted| wanted != service) {
            return;
        }
        part.total += 1;
        if part.list.len() < room {
            part.list.push(status::Stream { service: service.to_owned(), ..entry });
        }
    };
    for (session, link) in worker.state.all_links() {
        let entry = |kind, number, is_ours, [sent, received]: [u64; 2], socket: Option<_>| {
            // The side that opened the stream has the visitor, whose bytes go to the peer.
            let [bytes_in, bytes_out] = if is_ours { [sent, received] } else { [received, sent] };
            status::Stream {
                id: StreamNumber { link: link.serial(), kind, number }.to_string(),
                kind,
                peer: session.name.clone(),
                socket: socket.map(term::address).unwrap_or_default(),
                bytes_in,
                bytes_out,
                ..status::Stream::default()
            }
        };
        let mut streams = link.streams();
        streams.sort_unstable_by_key(|(stream, _)| stream.id.raw());
        for (stream, outlet) in streams {
            let (bytes, number) = ([stream.sent, stream.received], stream.id.raw());
            let stream = entry(StreamKind::Stream, number, stream.is_ours, bytes, outlet.peer());
            add(stream, outlet.counted_in());
        }
        let mut flows = link.flows();
        flows.sort_unstable_by_key(|(flow, _)| flow.id.raw());
        for (flow, outlet) in flows {
            let (bytes, number) = ([flow.sent.bytes, flow.received.bytes], flow.id.raw());
            let flow = entry(StreamKind::Flow, number, flow.is_ours, bytes, outlet.peer());
            add(flow, outlet.counted_in());
        }
    }
    part
}

/// Resets a stream, or closes a flow, on both sides. False: nothing has this number.
pub(crate) async fn kill(handles: &[Handle], wanted: StreamNumber) -> bool {
    for handle in handles {
        let kill = move |worker: &Rc<Worker>| {
            let links = worker.state.all_links();
            let link = links.iter().find(|(_, link)| link.serial() == wanted.link);
            link.is_some_and(|(_, link)| match wanted.kind {
                StreamKind::Stream => link.abort(StreamId::new(wanted.number)),
                StreamKind::Flow => link.abort_flow(FlowId::new(wanted.number)),
            })
        };
        if matches!(handle.call(kill).await, Ok(true)) {
            return true;
        }
    }
    false
}

/// The number of live tasks on the workers and on the runtime of the caller.
pub(crate) async fn tasks(handles: &[Handle]) -> u64 {
    let here = || Runtime::current().metrics().num_alive_tasks();
    let mut count = here();
    for handle in handles {
        count += handle.call(move |_| here()).await.unwrap_or(0);
    }
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The buffer sizes in bytes that the system granted to UDP sockets; `None` before there is a UDP
/// socket.
pub(crate) fn udp() -> Option<status::Udp> {
    let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    net::udp::granted().map(|granted| status::Udp {
        receive_buffer_bytes: bytes(granted.receive),
        send_buffer_bytes: bytes(granted.send),
    })
}

/// The memory budget, and the part that streams, windows, replay and buffers take.
pub(crate) async fn memory(handles: &[Handle]) -> status::Memory {
    let mut memory = status::Memory::default();
    let mut used = 0;
    for (n, handle) in handles.iter().enumerate() {
        let lease = |worker: &Rc<Worker>| {
            let lease = &worker.state.budget;
            let refused = worker.state.accounts.refused();
            (lease.unused(), lease.process().left(), lease.process().total(), refused)
        };
        let Ok((unused, left, total, refused)) = handle.call(lease).await else { continue };
        memory.refused += refused;
        // Each worker knows the total of the process. The unused parts of the workers' leases come
        // off it.
        if n == 0 {
            used = total - left;
            memory.budget_bytes = u64::try_from(total).unwrap_or(0);
        }
        used -= unused;
    }
    memory.used_bytes = u64::try_from(used).unwrap_or(0);
    memory
}

/// The default targets of `mux://` doors, over all workers.
pub(crate) async fn defaults(handles: &[Handle]) -> Vec<status::Service> {
    let mut whole = Vec::new();
    for handle in handles {
        let part = handle.call(|worker| {
            let defaults = worker.state.server.defaults.borrow();
            defaults.iter().map(|(door, default)| of_default(door, default)).collect()
        });
        merge(&mut whole, part.await.unwrap_or_default());
    }
    whole
}

fn of_default(door: &str, default: &Straight) -> status::Service {
    let stats = default.stats();
    status::Service {
        name: "default".to_owned(),
        address: door.to_owned(),
        target: default.target().to_string(),
        state: status::UP.to_owned(),
        streams: stats.live(),
        streams_total: stats.opened(),
        bytes_in: stats.bytes_in(),
        bytes_out: stats.bytes_out(),
        refused: refused(stats),
        ..status::Service::default()
    }
}

/// Adds the counts of a worker's services to those of other workers.
pub(crate) fn merge(whole: &mut Vec<status::Service>, part: Vec<status::Service>) {
    for service in part {
        let same = |s: &&mut status::Service| {
            s.name == service.name && s.address == service.address && s.target == service.target
        };
        match whole.iter_mut().find(same) {
            Some(sum) => sum.add(&service),
            None => whole.push(service),
        }
    }
}

/// Waits until no link has a stream.
pub(crate) async fn drain_links(handles: &[Handle]) {
    loop {
        let mut streams = 0;
        for handle in handles {
            let count = |worker: &Rc<Worker>| -> usize {
                worker.state.all_links().iter().map(|(_, link)| link.stream_count()).sum()
            };
            streams += handle.call(count).await.unwrap_or(0);
        }
        if streams == 0 {
            return;
        }
        tokio::time::sleep(DRAIN_LOOK).await;
    }
}

/// Tells the peers that all links end now, and waits until the frames had time to leave. The stop
/// of the workers ends the links.
pub(crate) async fn say_goodbye(handles: &[Handle]) {
    for handle in handles {
        let tell = |worker: &Rc<Worker>| {
            for (_, link) in worker.state.all_links() {
                link.say_goodbye();
            }
        };
        let _ = handle.call(tell).await;
    }
    tokio::time::sleep(FAREWELL).await;
}
