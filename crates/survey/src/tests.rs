//! A survey of many streams: it lists them once, and gives way to the other tasks of its worker.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ::link::{Lease, Link, ProcessBudget};
use bytes::{Bytes, BytesMut};
use ops::status::{Service, StreamKind};
use proto::control::ControlMessage;
use proto::greeting::Features;
use proto::{
    Attach, CarrierNumber, HEAD_ROOM, LinkConfig, Open, Priority, ResetCode, Side, Target,
    Unlimited,
};
use relay::Stats;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use transport::memory::{self, Faults, MEMORY};
use transport::{Carrier, ConnectionStats, Connector as _, Inlet, Outlet, Peer, Watch};

use super::add_streams;
use super::busy::of_worker;
use super::glance::prints;
use super::sessions::{part, part_of};
use super::slices::SLICE;
use super::streams::streams_of;
use node::session::{Session, State, Worker};

/// The owner of a link whose peer does nothing.
#[derive(Debug)]
struct Nobody;

impl ::link::Owner for Nobody {
    fn accept(&self, _: &Link, _: Open, _: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        Rc::new(Idle)
    }

    fn message(&self, _: &Link, _: ControlMessage) {}

    fn changed(&self, _: &Link, _: ::link::State) {}
}

/// The outlet of an idle stream.
#[derive(Debug)]
struct Idle;

impl Outlet for Idle {
    fn deliver(&self, _: &mut VecDeque<Bytes>) -> usize {
        0
    }

    fn finish(&self) {}

    fn reset(&self, _: ResetCode) {}

    fn stop(&self, _: ResetCode) {}

    fn room(&self) {}

    fn peer(&self) -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, 1], 5)))
    }
}

/// A worker with a link that has so many streams. The streams live as long as the inlets.
fn worker(streams: usize) -> (Rc<Worker>, Vec<Box<dyn Inlet>>) {
    let budget = ProcessBudget::new(1 << 30);
    let state = State::new(Lease::new(budget));
    let worker = Rc::new(Worker { index: 0, peers: Arc::from([]), state });
    let link = link_to_nobody();
    let target = Target::Service("web".to_owned());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    let inlets = (0..streams).map(|_| link.open(open.clone(), Rc::new(Idle)).unwrap()).collect();
    worker.state.add_link(0, &Session::new("home", 1), &link);
    (worker, inlets)
}

/// A link without a carrier.
pub fn link_to_nobody() -> Link {
    let settings = ::link::Settings {
        side: Side::Client,
        config: LinkConfig::default(),
        budget: Rc::new(Unlimited),
        serial: 7,
        features: Features::OURS,
    };
    Link::new(settings, Rc::new(Nobody))
}

/// Runs a survey. Returns its result and the turns that it took.
async fn turns<T>(survey: impl Future<Output = T>) -> (T, usize) {
    let (mut survey, mut turns) = (pin!(survey), 0);
    let result = poll_fn(|cx| {
        turns += 1;
        survey.as_mut().poll(cx)
    });
    (result.await, turns)
}

#[tokio::test(flavor = "local")]
async fn a_list_of_many_streams_takes_a_turn_per_slice() {
    let count = 20 * SLICE;
    let (worker, inlets) = worker(count);
    let (list, took) = turns(streams_of(Rc::clone(&worker), None, 3 * SLICE)).await;
    assert_eq!((list.total, list.list.len()), (count as u64, 3 * SLICE));
    assert!(took >= 20 + 3, "{took} turns");
    let numbers: Vec<u64> = list
        .list
        .iter()
        .map(|stream| stream.id.rsplit_once('/').unwrap().1.parse().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "the first streams, each of them once");
    assert!(list.list.iter().all(|stream| stream.kind == StreamKind::Stream));
    let (none, _) = turns(streams_of(Rc::clone(&worker), Some("other".to_owned()), 10)).await;
    assert_eq!((none.total, none.list.len()), (0, 0));
    drop(inlets);
}

#[tokio::test(flavor = "local")]
async fn a_status_beside_many_streams_takes_a_turn_per_slice() {
    let count = 20 * SLICE;
    let (worker, inlets) = worker(count);
    inlets[0].send(&mut BytesMut::zeroed(HEAD_ROOM + 26));
    let (part, took) = turns(part(Rc::clone(&worker))).await;
    assert!(took >= 20, "{took} turns");
    let links: Vec<_> = part.sessions.values().flat_map(|(_, session)| &session.links).collect();
    assert_eq!((links.len(), links[0].streams, links[0].retained_bytes), (1, count as u64, 26));
}

#[tokio::test(flavor = "local")]
async fn the_print_of_a_session_changes_with_its_figures() {
    let (worker, inlets) = worker(3);
    let look = || prints(Rc::clone(&worker));
    let first = look().await;
    assert_eq!(first, look().await, "nothing has moved");
    inlets[0].send(&mut BytesMut::zeroed(HEAD_ROOM + 26));
    let moved = look().await;
    assert_ne!(first, moved);
    assert_eq!(moved, look().await);
    worker.state.add_link(0, &Session::new("other", 1), &link_to_nobody());
    assert_ne!(moved, look().await);
    // The status of the sessions that are meant, and of no other.
    let id = worker.state.session_ids().into_iter().max().unwrap();
    let part = part_of(Rc::clone(&worker), Arc::new(HashSet::from([id, u64::MAX]))).await;
    let peers: Vec<_> = part.sessions.values().map(|(_, session)| session.peer.as_str()).collect();
    assert_eq!(peers, ["other"]);
}

#[tokio::test(flavor = "local")]
async fn a_look_at_as_many_links_as_a_slice_has_takes_another_turn() {
    let (worker, _) = worker(0);
    let session = Session::new("many", 1);
    for _ in 0..SLICE {
        worker.state.add_link(0, &session, &link_to_nobody());
    }
    let (_, took) = turns(prints(Rc::clone(&worker))).await;
    assert_eq!(took, 2);
    let wanted = Arc::new(HashSet::from([session.id]));
    let (_, took) = turns(part_of(Rc::clone(&worker), wanted)).await;
    assert_eq!(took, 2);
}

#[test]
fn the_counts_of_streams_are_added() {
    let stats = Stats::default();
    stats.count_refused(ResetCode::Limit);
    let mut service = Service::default();
    for _ in 0..2 {
        add_streams(&mut service, &stats, false);
    }
    assert_eq!(service.refused, BTreeMap::from([("limit".to_owned(), 2)]));
}

/// A connection whose peer moves from port to port.
#[derive(Debug)]
struct Moves(AtomicU16);

impl Moves {
    fn at(&self) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 7], self.0.load(Ordering::Relaxed)))
    }
}

impl Watch for Moves {
    fn stats(&self) -> ConnectionStats {
        ConnectionStats::default()
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.at())
    }
}

#[tokio::test(flavor = "local")]
async fn a_status_has_the_address_to_which_a_peer_moved() {
    let (worker, _) = worker(0);
    let moves = Arc::new(Moves(AtomicU16::new(1)));
    let peer = Peer {
        address: moves.at(),
        transport: MEMORY,
        connection: None,
        watch: Some(Arc::clone(&moves) as Arc<dyn Watch>),
        exporter: None,
        certificate_name: None,
        cipher: None,
        via: None,
    };
    let (near, _far) = memory::pair(Faults::default());
    let link = link_to_nobody();
    link.attach(
        CarrierNumber(1),
        Attach::New,
        Carrier::single(peer, Box::new(near)),
        BytesMut::new(),
    );
    let session = Session::new("moving", 1);
    worker.state.add_link(0, &session, &link);
    let before = prints(Rc::clone(&worker)).await;
    moves.0.store(2, Ordering::Relaxed);
    assert_ne!(prints(Rc::clone(&worker)).await, before, "the live view sees a change");
    let part = part(Rc::clone(&worker)).await;
    assert_eq!(part.sessions[&session.id].1.links[0].carriers[0].peer, "192.0.2.7:2");
    assert_eq!(link.peer_address(), Some(moves.at()), "of later streams");
}

#[tokio::test(flavor = "local")]
async fn the_busiest_of_many_streams_are_found_in_a_turn_per_slice() {
    let count = 20 * SLICE;
    let (worker, inlets) = worker(count);
    let ((first, notes), took) = turns(of_worker(Rc::clone(&worker), <_>::default(), 5)).await;
    assert_eq!((first.total, first.list.len()), (count as u64, 5));
    assert!(took >= 20, "{took} turns");
    assert!(first.list.iter().all(|one| one.rate == (0.0, 0.0)));
    inlets[2_000].send(&mut BytesMut::zeroed(HEAD_ROOM + 500));
    let (next, _) = of_worker(Rc::clone(&worker), notes, 5).await;
    let busiest = &next.list[0];
    // A client opens streams with odd numbers.
    assert_eq!((busiest.stream.bytes_in, busiest.stream.bytes_out), (500, 0));
    assert!(busiest.rate.0 > 0.0 && next.list[1].rate == (0.0, 0.0) && next.list.len() == 5);
    let (list, _) = turns(streams_of(Rc::clone(&worker), None, count)).await;
    let moved: Vec<_> = list.list.into_iter().filter(|one| one.bytes_in > 0).collect();
    assert_eq!(moved, std::slice::from_ref(&busiest.stream), "the figures are those of a list");
}

/// The figure of a worker with 100,000 streams: an echo over TCP on the worker, while a status and
/// a list of streams run one after the other.
#[tokio::test(flavor = "local")]
#[ignore = "measures time: the long step `timed`"]
async fn an_echo_beside_a_status_of_100_000_streams_is_quick() {
    let (worker, _inlets) = worker(100_000);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let echo = spawn_local(async move {
        let (mut read, mut write) = far.split();
        tokio::io::copy(&mut read, &mut write).await
    });
    let surveys = Rc::new(Cell::new(0));
    let count = Rc::clone(&surveys);
    let busy = spawn_local(async move {
        loop {
            part(Rc::clone(&worker)).await;
            streams_of(Rc::clone(&worker), None, 1_000).await;
            count.set(count.get() + 1);
        }
    });
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        let sent = Instant::now();
        near.write_all(b"echo").await.unwrap();
        near.read_exact(&mut [0; 4]).await.unwrap();
        times.push(sent.elapsed());
    }
    busy.abort();
    echo.abort();
    times.sort_unstable();
    let at = |part: f64| times[(part * times.len() as f64) as usize];
    let (p50, p99) = (at(0.5), at(0.99));
    println!("{} echoes beside {} surveys: p50 {p50:?}, p99 {p99:?}", times.len(), surveys.get());
    assert!(p99 <= Duration::from_millis(5));
}
