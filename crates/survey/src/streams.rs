//! The list of streams and flows.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;

use ops::status::{self, StreamKind, StreamNumber};
use ops::term;

use super::slices::{SLICE, Slices};
use node::entrance::Entrances;
use node::session;
use node::session::{Handle, Here, Served, Worker};
use targets::TargetsState;

/// Lists at most `limit` streams. `service` restricts the list to one service.
pub(super) async fn streams(
    handles: &[Handle],
    service: Option<String>,
    limit: usize,
) -> status::Streams {
    let mut all = status::Streams::default();
    for handle in handles {
        let (service, room) = (service.clone(), limit.saturating_sub(all.list.len()));
        let part = handle.task(move |worker| streams_of(worker, service, room)).await;
        let Ok(part) = part else { continue };
        all.total += part.total;
        all.list.extend(part.list);
    }
    all
}

/// A stream or flow in the list.
struct Listed {
    is_ours: bool,
    sent: u64,
    received: u64,
    socket: Option<SocketAddr>,
    /// The identity of the counters of its service.
    counted: *const (),
}

/// The streams or flows of one link, in the order of their numbers.
struct List<'a> {
    names: &'a HashMap<*const (), String>,
    wanted: Option<&'a str>,
    /// The maximum number of listed streams.
    room: usize,
    total: u64,
    /// By kind and number. The streams with the highest numbers are dropped when there are too
    /// many.
    listed: BTreeMap<(StreamKind, u32), Listed>,
}

impl List<'_> {
    fn add(&mut self, key: (StreamKind, u32), entry: Listed) {
        if self.wanted.is_some_and(|wanted| wanted != self.name(entry.counted)) {
            return;
        }
        self.total += 1;
        self.listed.insert(key, entry);
        if self.listed.len() > self.room {
            self.listed.pop_last();
        }
    }

    fn name(&self, counted: *const ()) -> &str {
        self.names.get(&counted).map(String::as_str).unwrap_or_default()
    }
}

pub(super) async fn streams_of(
    worker: Rc<Worker>,
    wanted: Option<String>,
    room: usize,
) -> status::Streams {
    let mut slices = Slices::default();
    let names = names(&worker, &mut slices).await;
    let mut part = status::Streams::default();
    for (session, link) in worker.state.all_links() {
        let room = room.saturating_sub(part.list.len());
        let (wanted, listed) = (wanted.as_deref(), BTreeMap::new());
        let mut list = List { names: &names, wanted, room, total: 0, listed };
        for from in (0..link.stream_slots()).step_by(SLICE) {
            for (stream, outlet) in link.streams(from..from + SLICE) {
                let Some(outlet) = outlet else { continue };
                let (socket, counted) = (outlet.peer(), outlet.counted_in());
                let (is_ours, sent, received) = (stream.is_ours, stream.sent, stream.received);
                let entry = Listed { is_ours, sent, received, socket, counted };
                list.add((StreamKind::Stream, stream.id.raw()), entry);
            }
            slices.count(SLICE).await;
        }
        for from in (0..link.flow_slots()).step_by(SLICE) {
            for (flow, outlet) in link.flows(from..from + SLICE) {
                let Some(outlet) = outlet else { continue };
                let (socket, counted) = (outlet.peer(), outlet.counted_in());
                let (sent, received) = (flow.sent.bytes, flow.received.bytes);
                let entry = Listed { is_ours: flow.is_ours, sent, received, socket, counted };
                list.add((StreamKind::Flow, flow.id.raw()), entry);
            }
            slices.count(SLICE).await;
        }
        part.total += list.total;
        for ((kind, number), entry) in std::mem::take(&mut list.listed) {
            let Listed { is_ours, sent, received, socket, counted } = entry;
            // The side that opened the stream has the visitor, whose bytes are sent to the peer.
            let [bytes_in, bytes_out] = if is_ours { [sent, received] } else { [received, sent] };
            part.list.push(status::Stream {
                id: StreamNumber { link: link.serial(), kind, number }.to_string(),
                kind,
                service: list.name(counted).to_owned(),
                peer: session.name.clone(),
                socket: socket.map(term::address).unwrap_or_default(),
                bytes_in,
                bytes_out,
            });
            slices.count(1).await;
        }
    }
    let joined = Joined { names: &names, wanted: wanted.as_deref(), room };
    joined.add(&worker, &mut part, &mut slices).await;
    part
}

/// Connections and flows that no link carries: those of a proxy.
struct Joined<'a> {
    names: &'a HashMap<*const (), String>,
    wanted: Option<&'a str>,
    room: usize,
}

impl Joined<'_> {
    async fn add(&self, worker: &Worker, part: &mut status::Streams, slices: &mut Slices) {
        for kind in [StreamKind::Stream, StreamKind::Flow] {
            let here = worker.state.of::<Here>();
            let table = here.table(kind);
            let mut last = 0;
            loop {
                let some = table.list(last, SLICE);
                let Some((newest, _)) = some.last() else { break };
                last = *newest;
                for (number, entry) in some {
                    let Some(entry) = entry else { continue };
                    let service = self.names.get(&entry.counted).cloned().unwrap_or_default();
                    if self.wanted.is_some_and(|wanted| wanted != service) {
                        continue;
                    }
                    part.total += 1;
                    if part.list.len() >= self.room {
                        continue;
                    }
                    part.list.push(status::Stream {
                        id: session::number(worker.index, kind, number).to_string(),
                        kind,
                        service,
                        peer: String::new(),
                        socket: entry.visitor.map(term::address).unwrap_or_default(),
                        bytes_in: entry.bytes_in,
                        bytes_out: entry.bytes_out,
                    });
                }
                slices.count(SLICE).await;
            }
        }
    }
}

/// The names under which the streams of a worker are counted: services and forwards. A closed
/// entrance is included while it has streams. The key is the identity of the counters.
pub(super) async fn names(worker: &Worker, slices: &mut Slices) -> HashMap<*const (), String> {
    let mut names: HashMap<_, _> = worker.state.former_names().into_iter().collect();
    names.extend(worker.state.of::<TargetsState>().counted_names());
    worker.state.of::<Served>().each_private(|private| {
        names.insert(private.stats.identity(), private.service.as_str().to_owned());
    });
    let entrances: Vec<_> = worker.state.of::<Entrances>().0.borrow().keys().copied().collect();
    for id in entrances {
        if let Some(open) = worker.state.of::<Entrances>().0.borrow().get(&id) {
            let flows = open.flows.as_ref().map(|flows| flows.stats.identity());
            let streams = open.all_stats().into_iter().map(|stats| stats.identity());
            names.extend(streams.chain(flows).map(|identity| (identity, open.label())));
        }
        slices.count(1).await;
    }
    names
}
