//! Streams that pass a bridge: bytes, ends, resets and credit go on to the second link, whatever
//! happens to the carriers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use link::{Host, Link};
use proto::{Bounds, Limits, ResetCode};
use relay::{Crossing, Duplex, Gate, Permit, bridge, open_duplex, span};
use rig::{Acceptor, Dialler, Party, ThroughLink, WINDOW, to_service, until};
use testkit::origins::{Digest, Pattern};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use transport::memory::{self, MemoryDialer};
use transport::{Connector as _, Inlet, Outlet, PathDialer};

/// Runs in virtual time: it jumps to the next timer when no task has work.
fn virtually<T>(work: impl Future<Output = T>) -> T {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(work)
}

fn path(dialer: &MemoryDialer) -> Rc<dyn PathDialer> {
    let dialer = Rc::new(dialer.clone());
    Rc::new(Host { name: "127.0.0.1".to_owned(), port: 1, dialer })
}

/// How the server joins the streams of the visitor with streams to the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    OneWorker,
    /// On one worker, as a stream does that waits for a verdict about its client.
    AfterAWait,
    TwoWorkers,
}

/// A visitor and a publisher, each with a link to a server that bridges.
struct World {
    visitor: Dialler,
    of_visitor: MemoryDialer,
    of_publisher: MemoryDialer,
    server: Rc<Acceptor>,
    publisher: Dialler,
}

impl World {
    async fn new(way: Way, publisher: Rc<Party>) -> Self {
        Self::limited(way, publisher, Vec::new).await
    }

    /// The streams have these permits at the server.
    async fn limited(
        way: Way,
        publisher: Rc<Party>,
        permits: impl Fn() -> Vec<Permit> + 'static,
    ) -> Self {
        let (listener, of_publisher) = memory::network();
        let to_publisher = Acceptor::new(Party::silent());
        to_publisher.listen(listener);
        let publisher = Dialler::start(path(&of_publisher), publisher);
        until(|| to_publisher.link().is_some()).await;
        let (listener, of_visitor) = memory::network();
        let onward = Rc::clone(&to_publisher);
        let server = Acceptor::new(Party::new(move |open, inlet| {
            let link = onward.link().expect("the publisher is connected");
            match way {
                Way::OneWorker => {
                    let crossing = Crossing::new(Rc::default(), permits());
                    bridge(inlet, &link, open, crossing).expect("a link with room")
                }
                Way::AfterAWait => after_a_wait(inlet, link, open, permits()),
                Way::TwoWorkers => through_span(inlet, &link, open, permits()),
            }
        }));
        server.listen(listener);
        let visitor = Dialler::start(path(&of_visitor), Party::silent());
        visitor.live().await;
        Self { visitor, of_visitor, of_publisher, server, publisher }
    }

    async fn open(&self) -> Duplex {
        let link = self.visitor.live().await;
        open_duplex(&link, to_service("echo"), &Rc::default(), None).unwrap()
    }
}

/// Joins the streams later: the visitor may have sent a window of bytes meanwhile.
fn after_a_wait(
    inlet: Box<dyn Inlet>,
    link: Link,
    open: proto::Open,
    permits: Vec<Permit>,
) -> Rc<dyn Outlet> {
    let waits = span().0.carry(Crossing::default());
    let outlet = waits.outlet();
    spawn_local(async move {
        tokio::time::sleep(Duration::from_millis(3)).await;
        waits.bridge(inlet, &link, open, Crossing::new(Rc::default(), permits));
    });
    outlet
}

/// Both halves run on one thread here, and exchange messages as two workers do.
fn through_span(
    inlet: Box<dyn Inlet>,
    link: &Link,
    open: proto::Open,
    permits: Vec<Permit>,
) -> Rc<dyn Outlet> {
    let (here, there) = span();
    let crossing = Crossing::far(Rc::default(), permits);
    let (here, there) = (here.carry(Crossing::default()), there.carry(crossing));
    let opened = link.open(open, there.outlet()).expect("a link with room");
    there.join(opened);
    let outlet = here.outlet();
    here.join(inlet);
    outlet
}

/// Sends everything back, and the end after it.
fn echo(stream: Duplex) {
    spawn_local(async move {
        let (mut read, mut write) = tokio::io::split(stream);
        if tokio::io::copy(&mut read, &mut write).await.is_ok() {
            write.shutdown().await.ok();
        }
    });
}

/// Sends `length` bytes of the pattern, and its end.
async fn send(mut to: impl tokio::io::AsyncWrite + Unpin, length: u64) {
    let mut at = 0;
    while at < length {
        let part = Pattern.at(at, length - at);
        to.write_all(part).await.unwrap();
        at += part.len() as u64;
    }
    to.shutdown().await.unwrap();
}

/// Reads to the end.
async fn receive(mut from: impl tokio::io::AsyncRead + Unpin) -> Digest {
    let (mut digest, mut buffer) = (Digest::default(), vec![0; 64 << 10]);
    loop {
        let read = from.read(&mut buffer).await.unwrap();
        if read == 0 {
            return digest;
        }
        digest.update(&buffer[..read]);
    }
}

/// Kills every carrier of a network again and again, until the guard is dropped.
struct Killer(tokio::task::AbortHandle);

impl Killer {
    fn start(network: &MemoryDialer, pause: Duration, killed: &Rc<Cell<usize>>) -> Self {
        let (network, killed) = (network.clone(), Rc::clone(killed));
        let task = spawn_local(async move {
            loop {
                tokio::time::sleep(pause).await;
                for breaker in network.breakers() {
                    breaker.kill();
                    killed.set(killed.get() + 1);
                }
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const WAYS: [Way; 3] = [Way::OneWorker, Way::AfterAWait, Way::TwoWorkers];

#[test]
fn bytes_pass_in_both_directions_and_each_direction_ends_on_its_own() {
    for way in WAYS {
        virtually(async {
            let world = World::new(way, Party::serving(echo)).await;
            let length = 10 << 20;
            let (read, write) = tokio::io::split(world.open().await);
            let (digest, ()) = tokio::join!(receive(read), send(write, length));
            assert_eq!(digest, Pattern.digest(length), "{way:?}");
            let link = world.visitor.live().await;
            until(|| link.stream_count() == 0).await;
            until(|| world.server.link().is_some_and(|link| link.stream_count() == 0)).await;
        });
    }
}

#[test]
fn carriers_of_both_links_are_killed_and_no_byte_is_lost() {
    for way in WAYS {
        virtually(async {
            let world = World::new(way, Party::serving(echo)).await;
            let killed = Rc::<Cell<usize>>::default();
            let length = 20 << 20;
            let (read, write) = tokio::io::split(world.open().await);
            let first = Killer::start(&world.of_visitor, Duration::from_millis(7), &killed);
            let second = Killer::start(&world.of_publisher, Duration::from_millis(11), &killed);
            // In virtual time a transfer takes none: a pause lets the killers have their turns.
            let slow = async {
                let mut write = write;
                let mut at = 0;
                while at < length {
                    let part = Pattern.at(at, (64 << 10).min(length - at));
                    write.write_all(part).await.unwrap();
                    at += part.len() as u64;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                write.shutdown().await.unwrap();
            };
            let (digest, ()) = tokio::join!(receive(read), slow);
            drop((first, second));
            assert_eq!(digest, Pattern.digest(length), "{way:?}");
            assert!(killed.get() > 20, "{way:?}: {}", killed.get());
            assert_eq!((world.visitor.links.get(), world.publisher.links.get()), (1, 1));
        });
    }
}

/// Rates in bytes per second; 0: none.
fn rates(up: u64, down: u64) -> Limits {
    let [up, down] = [up, down].map(NonZeroU64::new);
    Limits { all: Bounds { up, down, ..Bounds::default() }, ..Limits::default() }
}

/// Reads and writes as fast as the stream permits, and counts the bytes that were read.
fn busy(stream: Duplex, counted: &Rc<Cell<u64>>) {
    let counted = Rc::clone(counted);
    // A stream knows one task that waits for it.
    spawn_local(async move {
        let (mut read, mut write) = tokio::io::split(stream);
        let reading = async {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(size @ 1..) = read.read(&mut buffer).await {
                counted.set(counted.get() + size as u64);
            }
        };
        let writing = async { while write.write_all(&[7; 16 << 10]).await.is_ok() {} };
        tokio::join!(reading, writing);
    });
}

#[test]
fn the_rates_of_both_clients_and_of_the_server_hold_for_a_joined_stream() {
    // The rates of the server, of the visitor and of the publisher, and those that follow.
    let cases = [
        [rates(300_000, 0), rates(0, 80_000), rates(200_000, 90_000), rates(200_000, 80_000)],
        // A server in which both clients lie counts each byte once.
        [rates(100_000, 1_000_000), rates(0, 0), rates(0, 0), rates(100_000, 1_000_000)],
        [rates(0, 0), rates(50_000, 40_000), rates(0, 0), rates(50_000, 40_000)],
    ];
    for way in WAYS {
        for [of_server, of_visitor, of_publisher, expected] in &cases {
            virtually(async {
                let server = Gate::limited(of_server, None, None);
                let visitor = Gate::limited(of_visitor, None, Some(Arc::clone(&server)));
                let publisher = Gate::limited(of_publisher, None, Some(Arc::clone(&server)));
                let gates = [Arc::clone(&visitor), Arc::clone(&publisher)];
                let permits = move || gates.iter().map(|gate| gate.admit().unwrap()).collect();
                let counted = [Rc::<Cell<u64>>::default(), Rc::default()];
                let party = {
                    let up = Rc::clone(&counted[0]);
                    Party::serving(move |stream| busy(stream, &up))
                };
                let world = World::limited(way, party, permits).await;
                busy(world.open().await, &counted[1]);
                let in_4_s = async |faster: u64| {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let before = counted.each_ref().map(|count| count.get());
                    tokio::time::sleep(Duration::from_secs(4)).await;
                    let Bounds { up, down, .. } = expected.all;
                    for (nth, rate) in [up, down].into_iter().enumerate() {
                        let wanted = 4 * faster * rate.unwrap().get();
                        let moved = counted[nth].get() - before[nth];
                        let fits = wanted - wanted / 20..=wanted + wanted / 20;
                        assert!(fits.contains(&moved), "{way:?} {expected:?} {nth}: {moved}");
                    }
                };
                in_4_s(1).await;
                // New rates hold for the streams that exist.
                for (gate, limits) in
                    [(&server, of_server), (&visitor, of_visitor), (&publisher, of_publisher)]
                {
                    let twice = |rate: Option<NonZeroU64>| rate.map_or(0, |rate| 2 * rate.get());
                    gate.set(&rates(twice(limits.all.up), twice(limits.all.down)));
                }
                in_4_s(2).await;
                drop(world);
            });
        }
    }
}

#[test]
fn a_stream_that_waits_for_its_rate_ends_and_gives_its_places_back() {
    for way in WAYS {
        virtually(async {
            let gate = Gate::limited(&rates(1_000, 0), None, None);
            let of_server = Arc::clone(&gate);
            let permits = move || vec![of_server.admit().unwrap()];
            let world = World::limited(way, Party::serving(echo), permits).await;
            // An end behind bytes that wait comes after all of them.
            let (read, write) = tokio::io::split(world.open().await);
            let (digest, ()) = tokio::join!(receive(read), send(write, 5_000));
            assert_eq!(digest, Pattern.digest(5_000), "{way:?}");
            // A stream that is reset while its bytes wait.
            let mut stream = world.open().await;
            stream.write_all(&[7; 5_000]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(stream);
            until(|| gate.live() == 0).await;
        });
    }
}

#[test]
fn a_reset_of_either_side_reaches_the_other_side() {
    for way in WAYS {
        virtually(async {
            let kept = Rc::<RefCell<Vec<Duplex>>>::default();
            let of_party = Rc::clone(&kept);
            let publisher = Party::serving(move |stream| of_party.borrow_mut().push(stream));
            let world = World::new(way, publisher).await;
            let mut by_publisher = world.open().await;
            until(|| kept.borrow().len() == 1).await;
            drop(kept.borrow_mut().pop());
            let error = by_publisher.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{way:?}");
            assert_eq!(by_publisher.reset_code(), Some(ResetCode::Aborted), "{way:?}");
            let by_visitor = world.open().await;
            until(|| kept.borrow().len() == 1).await;
            drop(by_visitor);
            let mut stream = kept.borrow_mut().pop().unwrap();
            let error = stream.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{way:?}");
        });
    }
}

#[test]
fn a_refusal_has_its_code_on_the_other_side() {
    for way in WAYS {
        virtually(async {
            let publisher =
                Party::new(|_, inlet| relay::refuse_stream(&*inlet, None, ResetCode::Denied));
            let world = World::new(way, publisher).await;
            let mut stream = world.open().await;
            assert!(stream.read_u8().await.is_err());
            assert_eq!(stream.reset_code(), Some(ResetCode::Denied), "{way:?}");
        });
    }
}

#[test]
fn a_reader_that_stops_stops_the_writer_after_both_windows() {
    for way in WAYS {
        virtually(async {
            let kept = Rc::<RefCell<Vec<Duplex>>>::default();
            let of_party = Rc::clone(&kept);
            let publisher = Party::serving(move |stream| of_party.borrow_mut().push(stream));
            let world = World::new(way, publisher).await;
            let mut stream = world.open().await;
            let mut taken = 0;
            let part = vec![7; 16 << 10];
            while let Ok(written) =
                tokio::time::timeout(Duration::from_secs(5), stream.write(&part)).await
            {
                taken += written.unwrap();
            }
            assert!(taken as u64 <= 2 * WINDOW, "{way:?}: {taken}");
            let mut other = kept.borrow_mut().pop().unwrap();
            let mut read = 0;
            while read < taken {
                let mut buffer = vec![0; 64 << 10];
                read += other.read(&mut buffer).await.unwrap();
            }
            tokio::time::timeout(Duration::from_secs(5), stream.write_all(&part))
                .await
                .unwrap()
                .unwrap();
        });
    }
}

/// A client accepts a link of another client: its carrier is a stream that the server joins. Three
/// links exist, and the carriers of all three are killed under a transfer.
#[test]
fn a_client_accepts_a_link_inside_a_bridged_stream_and_no_death_costs_a_byte() {
    for way in WAYS {
        virtually(async {
            let accepting = Acceptor::new(Party::serving(echo));
            let acceptor = Rc::clone(&accepting);
            let publisher = Party::serving(move |stream| acceptor.take_stream(stream));
            let world = World::new(way, publisher).await;
            let dialer = ThroughLink { link: world.visitor.live().await, service: "peer" };
            let peer = Dialler::start(Rc::new(dialer), Party::silent());
            let link = peer.live().await;
            let stream = open_duplex(&link, to_service("echo"), &Rc::default(), None).unwrap();
            let killed = Rc::<Cell<usize>>::default();
            let first = Killer::start(&world.of_visitor, Duration::from_millis(190), &killed);
            let second = Killer::start(&world.of_publisher, Duration::from_millis(310), &killed);
            let of_inner = Rc::<Cell<usize>>::default();
            let third = {
                let (outer, of_inner) = (world.visitor.live().await, Rc::clone(&of_inner));
                spawn_local(async move {
                    loop {
                        tokio::time::sleep(Duration::from_millis(230)).await;
                        // Every stream of the visitor's link to the server is a carrier of the
                        // inner link.
                        let aborted = outer
                            .streams(0..outer.stream_slots())
                            .iter()
                            .filter(|(s, _)| outer.abort(s.id))
                            .count();
                        of_inner.set(of_inner.get() + aborted);
                    }
                })
            };
            let length = 100 << 20;
            let (read, mut write) = tokio::io::split(stream);
            let slow = async {
                let mut at = 0;
                while at < length {
                    let part = Pattern.at(at, (256 << 10).min(length - at));
                    write.write_all(part).await.unwrap();
                    at += part.len() as u64;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                write.shutdown().await.unwrap();
            };
            let (digest, ()) = tokio::join!(receive(read), slow);
            drop((first, second));
            third.abort();
            assert_eq!(digest, Pattern.digest(length), "{way:?}");
            assert!(
                killed.get() >= 10 && of_inner.get() >= 5,
                "{} {}",
                killed.get(),
                of_inner.get()
            );
            assert_eq!(peer.links.get(), 1, "{way:?}: the inner link was resumed");
            assert!(accepting.greeted.get() > 5);
        });
    }
}
