//! The status of links and entrances, collected from all workers, and the end of all links. All
//! roles use this crate. A long survey yields to the streams of its worker (`slices::Slices`).

mod busy;
mod glance;
mod sessions;
mod slices;
mod streams;
#[cfg(test)]
pub mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ops::status::{self, ServiceState, StreamKind, StreamNumber};
use ops::{BusyStreams, Carried, Cursor, Reconnected, SendFuture, Traffic};
use proto::{FlowId, StreamId};
use relay::{FlowStats, REQUEST_BOUNDS, Stats, Straight};
use tokio::runtime::Handle as Runtime;

use node::entrance::Entrances;
use node::session::{Handle, Here, Served, Session, Worker, Workers};
use targets::TargetsState;

pub use glance::{Changes, Notes, Prints, changes, print_of};
pub use sessions::{sessions, without_links};

/// The period at which a drain checks whether the last stream has ended.
pub const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// The time in which the last frames of a closing link can be sent.
const FAREWELL: Duration = Duration::from_millis(100);

/// Answers queries about the traffic of the workers of a process.
#[derive(Debug)]
pub struct Survey(Arc<[Handle]>);

impl Survey {
    /// A survey of these workers.
    #[must_use]
    pub fn new(workers: &Workers) -> Self {
        Self(Arc::clone(workers.handles()))
    }
}

impl Traffic for Survey {
    fn streams(&self, service: Option<String>, limit: usize) -> SendFuture<'_, status::Streams> {
        Box::pin(streams::streams(&self.0, service, limit))
    }

    fn busiest<'a>(&'a self, seen: &'a mut Cursor, most: usize) -> SendFuture<'a, BusyStreams> {
        Box::pin(busy::busiest(&self.0, seen, most))
    }

    fn reconnect(&self, peer: Option<String>) -> SendFuture<'_, Reconnected> {
        Box::pin(reconnect(&self.0, peer))
    }

    fn carried(&self) -> SendFuture<'_, Carried> {
        Box::pin(carried(&self.0))
    }

    fn kill(&self, number: StreamNumber) -> SendFuture<'_, bool> {
        Box::pin(kill(&self.0, number))
    }
}

/// Adds the counts of streams. `to_target`: the sockets here belong to targets, so that what was
/// written to them came from visitors.
pub(crate) fn add_streams(service: &mut status::Service, streams: &Stats, to_target: bool) {
    service.streams += streams.live();
    service.streams_total += streams.opened();
    let (read, written) = (streams.bytes_in(), streams.bytes_out());
    let (of_visitors, of_targets) = if to_target { (written, read) } else { (read, written) };
    service.bytes_in += of_visitors;
    service.bytes_out += of_targets;
    for (reason, count) in refused(streams) {
        *service.refused.entry(reason).or_default() += count;
    }
    service.wrong_passwords += streams.wrong_passwords();
    service.failovers += streams.failovers();
}

/// Adds the counts of flows. `to_target`: the sockets here belong to targets, so that what they
/// sent came from visitors.
pub(crate) fn add_flows(service: &mut status::Service, flows: &FlowStats, to_target: bool) {
    service.flows += flows.live();
    service.flows_total += flows.opened();
    service.flows_roamed += flows.roamed();
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

/// The counters of HTTP requests; `None` without a request.
pub fn requests(stats: &Stats) -> Option<status::Requests> {
    const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    let requests = stats.requests();
    let statuses = CLASSES.into_iter().zip(requests.classes()).filter(|(_, count)| *count > 0);
    let statuses: BTreeMap<_, _> =
        statuses.map(|(class, count)| (class.to_owned(), count)).collect();
    let bounds = REQUEST_BOUNDS.into_iter().map(Some).chain([None]);
    let bucket = |(up_to_micros, count)| status::Bucket { up_to_micros, count };
    (!statuses.is_empty()).then(|| status::Requests {
        statuses,
        first_byte: bounds.zip(requests.times()).map(bucket).collect(),
        first_byte_micros: requests.micros(),
    })
}

/// The numbers of refusals by reason.
pub fn refused(stats: &Stats) -> BTreeMap<String, u64> {
    let barred = Some((status::VISITOR_DENIED, stats.barred())).filter(|(_, count)| *count > 0);
    let by_code = stats.refusals().map(|(code, count)| (code.name(), count));
    by_code.chain(barred).map(|(reason, count)| (reason.to_owned(), count)).collect()
}

/// The bytes of all visitors, over all workers.
async fn carried(handles: &[Handle]) -> Carried {
    let mut all = Carried::default();
    for handle in handles {
        // A worker that has stopped counts nothing.
        let Ok(part) = handle.task(carried_by).await else { continue };
        all.bytes_in += part.bytes_in;
        all.bytes_out += part.bytes_out;
    }
    all
}

async fn carried_by(worker: Rc<Worker>) -> Carried {
    let mut all = Carried::default();
    let mut add = |bytes_in: u64, bytes_out: u64| {
        all.bytes_in += bytes_in;
        all.bytes_out += bytes_out;
    };
    let mut slices = slices::Slices::default();
    let entrances: Vec<_> = worker.state.of::<Entrances>().0.borrow().keys().copied().collect();
    for id in entrances {
        if let Some(open) = worker.state.of::<Entrances>().0.borrow().get(&id) {
            open.all_stats().iter().for_each(|stats| add(stats.bytes_in(), stats.bytes_out()));
            if let Some(flows) = &open.flows {
                add(flows.stats.bytes_in(), flows.stats.bytes_out());
            }
        }
        slices.count(1).await;
    }
    worker.state.of::<Served>().each_private(|private| {
        add(private.stats.bytes_in(), private.stats.bytes_out());
    });
    for (_, default) in worker.state.of::<Served>().defaults.borrow().iter() {
        add(default.stats().bytes_in(), default.stats().bytes_out());
    }
    // The sockets of a client's services belong to targets.
    for service in services(&worker) {
        add(service.bytes_in, service.bytes_out);
    }
    all
}

/// The counts of the services whose targets this worker dials.
pub fn services(worker: &Worker) -> Vec<status::Service> {
    let mut all = Vec::new();
    worker.state.of::<TargetsState>().each(|name, streams, flows| {
        let mut service = status::Service { name: name.to_owned(), ..status::Service::default() };
        add_streams(&mut service, streams, true);
        add_flows(&mut service, flows, true);
        all.push(service);
    });
    all
}

/// Ends the carriers of the links to a peer, or of all links, and the pauses of links without a
/// carrier.
async fn reconnect(handles: &[Handle], peer: Option<String>) -> Reconnected {
    let mut sum = Reconnected::default();
    for handle in handles {
        let peer = peer.clone();
        let cut = move |worker: &Rc<Worker>| {
            let is_meant =
                |session: &Session| peer.as_ref().is_none_or(|name| *name == session.name);
            let links = worker.state.all_links();
            let links = links.iter().filter(|(session, _)| is_meant(session));
            let looking = worker.state.redial.now();
            (links.map(|(_, link)| u64::from(link.cut())).sum::<u64>(), looking)
        };
        // A worker that has stopped has no links.
        let (links, looking) = handle.call(cut).await.unwrap_or_default();
        sum.links += links;
        sum.looking += looking;
    }
    sum
}

/// Resets a stream, or closes a flow, on both sides. False: no stream or flow has this number.
async fn kill(handles: &[Handle], wanted: StreamNumber) -> bool {
    for handle in handles {
        let kill = move |worker: &Rc<Worker>| {
            if worker.state.of::<Here>().abort(worker.index, wanted) {
                return true;
            }
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
pub async fn tasks(handles: &[Handle]) -> u64 {
    let here = || Runtime::current().metrics().num_alive_tasks();
    let mut count = here();
    for handle in handles {
        count += handle.call(move |_| here()).await.unwrap_or(0);
    }
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The buffer sizes in bytes that the system granted to UDP sockets; `None` before there is a UDP
/// socket.
pub fn udp() -> Option<status::Udp> {
    let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    net::udp::granted().map(|granted| status::Udp {
        receive_buffer_bytes: bytes(granted.receive),
        send_buffer_bytes: bytes(granted.send),
    })
}

/// The memory budget, and the part that streams, windows, replay and buffers use.
pub async fn memory(handles: &[Handle]) -> status::Memory {
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
        // Each worker knows the total of the process. The unused parts of the workers' leases are
        // subtracted.
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
pub async fn defaults(handles: &[Handle]) -> Vec<status::Service> {
    let mut whole = Vec::new();
    for handle in handles {
        let part = handle.call(|worker| {
            let server = worker.state.of::<Served>();
            let defaults = server.defaults.borrow();
            defaults.iter().map(|(door, default)| of_default(door, default)).collect()
        });
        merge(&mut whole, part.await.unwrap_or_default());
    }
    whole
}

fn of_default(door: &str, default: &Straight) -> status::Service {
    let mut service = status::Service {
        name: "default".to_owned(),
        address: door.to_owned(),
        target: default.target().to_string(),
        state: ServiceState::Up.into(),
        ..status::Service::default()
    };
    add_streams(&mut service, default.stats(), false);
    service
}

/// Adds the counts of a worker's services to those of other workers.
pub fn merge(whole: &mut Vec<status::Service>, part: Vec<status::Service>) {
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

/// Waits until no link has a stream. The two streams of each link between two clients do not count:
/// the server does not know whether the link is used, and its clients resume it. Nor does the
/// stream that leads a client to another server, at either end: the link inside resumes over its
/// next path, and a client counts the streams of that link.
pub async fn drain_links(handles: &[Handle]) {
    loop {
        let (mut streams, mut carriers) = (0, 0);
        for handle in handles {
            let count = |worker: &Rc<Worker>| {
                let links = worker.state.all_links();
                let streams: usize = links.iter().map(|(_, link)| link.stream_count()).sum();
                let served = worker.state.of::<Served>();
                let mut carriers = served.detours.live();
                served.each_private(|private| carriers += 2 * private.stats.live());
                (streams, carriers)
            };
            let (own, of_others) = handle.call(count).await.unwrap_or_default();
            (streams, carriers) = (streams + own, carriers + of_others);
        }
        if streams <= usize::try_from(carriers).unwrap_or(usize::MAX) {
            return;
        }
        tokio::time::sleep(DRAIN_LOOK).await;
    }
}

/// Asks the client of each link for a link to the next generation of this process. Links between
/// nodes of a cluster move in an order of their own.
pub async fn retire_links(handles: &[Handle]) {
    for handle in handles {
        let retire = |worker: &Rc<Worker>| {
            let links = worker.state.all_links().into_iter();
            let of_clients = links.filter(|(session, _)| !session.is_of_node());
            of_clients.for_each(|(_, link)| link.go_away());
        };
        // A worker that has stopped has no links.
        let _ = handle.call(retire).await;
    }
}

/// Asks for the successors of this number of links with clients that were not asked before.
pub async fn retire_some(handles: &[Handle], asked: &mut BTreeSet<u64>, count: usize) {
    let mut left = count;
    for handle in handles {
        let known = asked.clone();
        let retire = move |worker: &Rc<Worker>| {
            let links = worker.state.all_links().into_iter();
            let new = links
                .filter(|(session, _)| !session.is_of_node())
                .map(|(_, link)| link)
                .filter(|link| !known.contains(&link.serial()));
            let new: Vec<_> = new.take(left).collect();
            new.iter().for_each(::link::Link::go_away);
            new.iter().map(::link::Link::serial).collect::<Vec<_>>()
        };
        // A worker that has stopped has no links.
        let retired = handle.call(retire).await.unwrap_or_default();
        left = left.saturating_sub(retired.len());
        asked.extend(retired);
    }
}

/// The number of links with clients that have not ended.
pub async fn links_of_clients(handles: &[Handle]) -> usize {
    let mut count = 0;
    for handle in handles {
        let links = handle.call(|worker: &Rc<Worker>| {
            let links = worker.state.all_links().into_iter();
            links.filter(|(session, _)| !session.is_of_node()).count()
        });
        count += links.await.unwrap_or_default();
    }
    count
}

/// The number of links that have not ended.
pub async fn links(handles: &[Handle]) -> usize {
    let mut count = 0;
    for handle in handles {
        let links = handle.call(|worker: &Rc<Worker>| worker.state.all_links().len());
        count += links.await.unwrap_or_default();
    }
    count
}

/// Informs the peers that all links end now, and waits until the frames are sent. Stopping the
/// workers ends the links.
pub async fn say_goodbye(handles: &[Handle]) {
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
