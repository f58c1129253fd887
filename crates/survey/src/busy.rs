//! The busiest streams and flows. Each poll compares the bytes of all streams with those of the
//! previous poll, and names the streams that it reports. The name of a stream that was reported
//! before is cached.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use ::link::Link;
use ops::status::{Stream, StreamKind, StreamNumber};
use ops::{BusyStream, BusyStreams, Cursor, rate, term};

use super::slices::{SLICE, Slices};
use super::streams::names;
use node::session;
use node::session::{Handle, Here, Worker};

/// The notes of all workers.
type Notes = Vec<OfWorker>;

/// The state of a worker that one poll keeps for the next. A stream takes 32 bytes.
#[derive(Debug, Default)]
pub(super) struct OfWorker {
    at: Option<Instant>,
    /// The streams of each link, of each kind, in the order of their slots.
    links: HashMap<(u64, StreamKind), Vec<Counted>>,
    /// The streams of the last list, without their bytes.
    streams: HashMap<(u64, StreamKind, u32), Stream>,
}

/// The bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    slot: usize,
    number: u32,
    bytes_in: u64,
    bytes_out: u64,
}

impl Counted {
    /// The side that opened the stream has the visitor, whose bytes are sent to the peer.
    const fn new(slot: usize, number: u32, is_ours: bool, sent: u64, received: u64) -> Self {
        let (bytes_in, bytes_out) = if is_ours { (sent, received) } else { (received, sent) };
        Self { slot, number, bytes_in, bytes_out }
    }
}

/// A stream that may be reported.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    link: u64,
    kind: StreamKind,
    counted: Counted,
    rate: (f64, f64),
}

pub(super) async fn busiest(handles: &[Handle], seen: &mut Cursor, most: usize) -> BusyStreams {
    let mut notes = seen.take::<Notes>().unwrap_or_default();
    notes.resize_with(handles.len(), OfWorker::default);
    let (mut all, mut now) = (BusyStreams::default(), Notes::new());
    for (handle, notes) in handles.iter().zip(notes) {
        // A worker that has stopped has no streams.
        let part = handle.task(move |worker| of_worker(worker, notes, most)).await;
        let (part, noted) = part.unwrap_or_default();
        all.total += part.total;
        all.list.extend(part.list);
        now.push(noted);
    }
    BusyStreams::sort(&mut all.list);
    all.list.truncate(most);
    seen.keep(now);
    all
}

/// The busiest streams of a worker.
pub(super) async fn of_worker(
    worker: Rc<Worker>,
    mut before: OfWorker,
    most: usize,
) -> (BusyStreams, OfWorker) {
    let mut now = OfWorker { at: Some(Instant::now()), ..OfWorker::default() };
    let seconds = before.at.map_or(0.0, |at| at.elapsed().as_secs_f64());
    let mut slices = Slices::default();
    let mut found = Found { seconds, most, total: 0, busy: Vec::new(), resting: Vec::new() };
    let mut owners = HashMap::new();
    for id in worker.state.session_ids() {
        let mut some = Vec::new();
        worker.state.each_link_of(id, |session, link| {
            if link.stream_count() + link.flow_count() > 0 {
                some.push((session.name.clone(), link.clone()));
            }
        });
        slices.count(1).await;
        for (peer, link) in some {
            for kind in [StreamKind::Stream, StreamKind::Flow] {
                let all = all_of(&link, kind, &mut slices).await;
                let key = (link.serial(), kind);
                found.add(key, &all, before.links.remove(&key).as_deref());
                now.links.insert(key, all);
            }
            owners.insert(link.serial(), (peer, link));
        }
    }
    for kind in [StreamKind::Stream, StreamKind::Flow] {
        let all = joined(&worker, kind, &mut slices).await;
        let key = (session::number(worker.index, kind, 0).link, kind);
        // The links of a proxy have no streams, and its connections no link.
        if !all.is_empty() {
            found.add(key, &all, before.links.remove(&key).as_deref());
            now.links.insert(key, all);
        }
    }
    let total = found.total;
    let mut services = None;
    let mut list = Vec::new();
    for Candidate { link, kind, counted, rate } in found.best() {
        let key = (link, kind, counted.number);
        let stream = match before.streams.remove(&key) {
            Some(stream) => stream,
            None => {
                if services.is_none() {
                    services = Some(names(&worker, &mut slices).await);
                }
                let owner = owners.get(&link);
                let (socket, of) = ends(&worker, owner.map(|(_, link)| link), kind, counted);
                let service = services.as_ref().and_then(|services| services.get(&of).cloned());
                slices.count(1).await;
                Stream {
                    id: StreamNumber { link, kind, number: counted.number }.to_string(),
                    kind,
                    peer: owner.map(|(peer, _)| peer.clone()).unwrap_or_default(),
                    service: service.unwrap_or_default(),
                    socket: socket.map(term::address).unwrap_or_default(),
                    ..Stream::default()
                }
            }
        };
        // A stream whose target is dialled has no socket yet.
        if !stream.socket.is_empty() {
            now.streams.insert(key, stream.clone());
        }
        let Counted { bytes_in, bytes_out, .. } = counted;
        list.push(BusyStream { stream: Stream { bytes_in, bytes_out, ..stream }, rate });
    }
    (BusyStreams { total, list }, now)
}

/// The streams or flows of a link that have an outlet.
async fn all_of(link: &Link, kind: StreamKind, slices: &mut Slices) -> Vec<Counted> {
    let mut all = Vec::new();
    let slots = match kind {
        StreamKind::Stream => link.stream_slots(),
        StreamKind::Flow => link.flow_slots(),
    };
    for from in (0..slots).step_by(SLICE) {
        match kind {
            StreamKind::Stream => link.each_stream(from..from + SLICE, |slot, stream, _| {
                let (id, ours) = (stream.id.raw(), stream.is_ours);
                all.push(Counted::new(slot, id, ours, stream.sent, stream.received));
            }),
            StreamKind::Flow => link.each_flow(from..from + SLICE, |slot, flow, _| {
                let (id, ours) = (flow.id.raw(), flow.is_ours);
                all.push(Counted::new(slot, id, ours, flow.sent.bytes, flow.received.bytes));
            }),
        }
        slices.count(SLICE).await;
    }
    all
}

/// The connections or flows that no link carries: those of a proxy. Their numbers grow.
async fn joined(worker: &Worker, kind: StreamKind, slices: &mut Slices) -> Vec<Counted> {
    let here = worker.state.of::<Here>();
    let table = here.table(kind);
    let (mut all, mut last) = (Vec::new(), 0);
    loop {
        let some = table.list(last, SLICE);
        let Some((newest, _)) = some.last() else { return all };
        last = *newest;
        let some = some.into_iter().filter_map(|(number, entry)| Some((number, entry?)));
        all.extend(some.map(|(number, entry)| Counted {
            slot: usize::try_from(number).unwrap_or(usize::MAX),
            number,
            bytes_in: entry.bytes_in,
            bytes_out: entry.bytes_out,
        }));
        slices.count(SLICE).await;
    }
}

/// The socket of a stream, and the identity of the counters of its service.
fn ends(
    worker: &Worker,
    link: Option<&Link>,
    kind: StreamKind,
    counted: Counted,
) -> (Option<SocketAddr>, *const ()) {
    let Counted { slot, number, .. } = counted;
    let mut found = (None, std::ptr::null());
    let slots = slot..slot.saturating_add(1);
    match (link, kind) {
        (Some(link), StreamKind::Stream) => link.each_stream(slots, |_, stream, outlet| {
            if stream.id.raw() == number {
                found = (outlet.peer(), outlet.counted_in());
            }
        }),
        (Some(link), StreamKind::Flow) => link.each_flow(slots, |_, flow, outlet| {
            if flow.id.raw() == number {
                found = (outlet.peer(), outlet.counted_in());
            }
        }),
        (None, _) => {
            let one = worker.state.of::<Here>().table(kind).list(number.saturating_sub(1), 1);
            let one = one.into_iter().find(|(found, _)| *found == number);
            if let Some((_, Some(entry))) = one {
                found = (entry.visitor, entry.counted);
            }
        }
    }
    found
}

/// The candidates of a worker.
#[derive(Debug)]
struct Found {
    /// The seconds since the previous poll; 0: there was none.
    seconds: f64,
    most: usize,
    total: u64,
    /// The streams with a rate. At most twice as many as are reported.
    busy: Vec<Candidate>,
    /// The streams without a rate, for the remaining places.
    resting: Vec<Candidate>,
}

impl Found {
    /// Adds the streams of a link. Both lists are in the order of the slots.
    fn add(
        &mut self,
        (link, kind): (u64, StreamKind),
        now: &[Counted],
        before: Option<&[Counted]>,
    ) {
        self.total += u64::try_from(now.len()).unwrap_or(u64::MAX);
        let mut before = before.unwrap_or_default().iter().peekable();
        for counted in now {
            while before.next_if(|last| last.slot < counted.slot).is_some() {}
            let last = before.next_if(|last| last.slot == counted.slot);
            let bytes = |of: &Counted| (of.bytes_in, of.bytes_out);
            let rate = match last.filter(|last| last.number == counted.number) {
                Some(last) if bytes(last) != bytes(counted) => {
                    rate(bytes(last), bytes(counted), self.seconds)
                }
                Some(_) | None => (0.0, 0.0),
            };
            let candidate = Candidate { link, kind, counted: *counted, rate };
            if rate.0 + rate.1 > 0.0 {
                self.busy.push(candidate);
                if self.busy.len() > 2 * self.most {
                    self.keep_best();
                }
            } else if self.resting.len() < self.most {
                self.resting.push(candidate);
            }
        }
    }

    fn keep_best(&mut self) {
        let sum = |one: &Candidate| one.rate.0 + one.rate.1;
        self.busy.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
        self.busy.truncate(self.most);
    }

    /// The streams that are reported, the busiest first.
    fn best(mut self) -> impl Iterator<Item = Candidate> {
        self.keep_best();
        self.busy.into_iter().chain(self.resting).take(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (u64, StreamKind) = (1, StreamKind::Stream);

    fn counted(all: &[(usize, u32, u64)]) -> Vec<Counted> {
        all.iter().map(|(slot, id, bytes)| Counted::new(*slot, *id, true, *bytes, 0)).collect()
    }

    fn found(
        most: usize,
        before: &[(usize, u32, u64)],
        now: &[(usize, u32, u64)],
    ) -> Vec<(u32, f64)> {
        let mut found =
            Found { seconds: 2.0, most, total: 0, busy: Vec::new(), resting: Vec::new() };
        found.add(KEY, &counted(now), Some(&counted(before)));
        assert_eq!(found.total, now.len() as u64);
        found.best().map(|one| (one.counted.number, one.rate.0)).collect()
    }

    #[test]
    fn the_busiest_come_first_and_resting_streams_fill_the_places() {
        let before = [(1, 11, 100), (3, 13, 100), (4, 14, 100), (6, 16, 100)];
        // 13 has ended, its slot has another stream; 14 and 16 move; 18 is new.
        let now = [(1, 11, 100), (3, 23, 900), (4, 14, 200), (6, 16, 500), (8, 18, 900)];
        let all = [(16, 200.0), (14, 50.0), (11, 0.0), (23, 0.0)];
        assert_eq!(found(4, &before, &now), all);
        assert_eq!(found(1, &before, &now), all[..1]);
        assert_eq!(found(0, &before, &now), []);
        assert_eq!(found(4, &[], &now)[0], (11, 0.0), "a first look knows no rate");
    }

    #[test]
    fn candidates_are_bounded_and_the_best_of_all_are_kept() {
        let all = |bytes: fn(u64) -> u64| -> Vec<(usize, u32, u64)> {
            (0..1_000).map(|n| (n, n as u32, bytes(n as u64))).collect()
        };
        let mut found =
            Found { seconds: 1.0, most: 10, total: 0, busy: Vec::new(), resting: Vec::new() };
        let (before, now) = (counted(&all(|_| 0)), counted(&all(|n| n * 7 % 1_000)));
        found.add(KEY, &now, Some(&before));
        assert!(found.busy.len() <= 20 && found.resting.len() <= 10);
        let rates: Vec<_> = found.best().map(|one| one.rate.0).collect();
        assert_eq!(rates, (990..1_000).rev().map(f64::from).collect::<Vec<_>>());
    }
}
