//! Paths that lose, duplicate, corrupt and delay packets, move the client to another address, or
//! carry only small packets. The bytes stay exact.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::Priority;
use setup::{Pair, Setup, pattern, read_all, run, write_all};
use testkit::path::{Fate, Path, Way};
use transport::{Carrier, Datagrams, Lane};
use transport_quic::{Congestion, QuicSettings};

/// A connected pair over a path, whose ends have greeted.
async fn over(setup: &Setup, judge: impl FnMut(Way, &[u8]) -> Fate + 'static) -> (Pair, Path) {
    let mut path = None;
    let pair = setup.pair(|server| {
        let made = Path::new(server, judge);
        let address = made.address();
        path = Some(made);
        address
    });
    (pair.await.authenticated(), path.unwrap())
}

/// Sends a stream of `length` bytes over a lane of its own and compares the received bytes.
async fn transfer(from: &mut Carrier, to: &mut Carrier, seed: u64, length: usize) {
    let bytes = pattern(seed, 0, length);
    let sending = async {
        let mut lane = from.lanes.as_mut().unwrap().open(Priority::Normal).unwrap().unwrap();
        for piece in bytes.chunks(70_000) {
            write_all(&mut *lane, bytes.slice_ref(piece)).await.unwrap();
        }
        lane.finish();
    };
    let receiving = async {
        let mut lane = poll_fn(|cx| to.lanes.as_mut().unwrap().poll_accept(cx)).await.unwrap();
        read_all(&mut *lane).await.unwrap()
    };
    let ((), got) = tokio::join!(sending, receiving);
    assert!(got == bytes, "stream {seed}: not the bytes that were sent");
}

/// Ends both directions of the first lane.
async fn part(a: &mut dyn Lane, b: &mut dyn Lane) {
    let (one, other) = tokio::join!(poll_fn(|cx| a.poll_close(cx)), poll_fn(|cx| b.poll_close(cx)));
    one.and(other).unwrap();
}

/// A random generator (xorshift64*) with a fixed seed, so that every run loses the same packets.
struct Dice(u64);

impl Dice {
    fn percent(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % 100
    }
}

#[test]
fn bytes_are_exact_through_loss_doubles_disorder_and_damage() {
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        run(async move {
            let setup =
                Setup::with(QuicSettings { loopback: congestion, ..QuicSettings::default() });
            let mut dice = Dice(7);
            let weather = move |_, _: &[u8]| match dice.percent() {
                0..3 => Fate::Lost,
                3..6 => Fate::Twice,
                6..12 => Fate::Late(Duration::from_millis(3)),
                12..14 => Fate::Broken,
                _ => Fate::Passes,
            };
            let (mut pair, _path) = over(&setup, weather).await;
            for seed in 0..3 {
                transfer(&mut pair.dialled, &mut pair.accepted, seed, 700_000).await;
                transfer(&mut pair.accepted, &mut pair.dialled, !seed, 700_000).await;
            }
            part(&mut *pair.dialled.lane, &mut *pair.accepted.lane).await;
        });
    }
}

/// Longer than any packet of the client is under way.
const AWAY: Duration = Duration::from_millis(50);

#[test]
fn a_transfer_goes_on_when_the_client_s_address_changes_in_its_middle() {
    // A client that only receives is silent when no packet arrives, and shows its new address with
    // its next ping.
    let keepalive = Some(Duration::from_millis(200));
    run(async move {
        let setup = Setup::with(QuicSettings { keepalive, ..QuicSettings::default() });
        let moved = Rc::new(Cell::new(None::<Instant>));
        let seen = Rc::clone(&moved);
        // The client's packets under way are lost with its old port.
        let box_that_moves = move |way, _: &[u8]| match seen.get() {
            Some(at) if way == Way::ToServer && at.elapsed() < AWAY => Fate::Lost,
            _ => Fate::Passes,
        };
        let (mut pair, path) = over(&setup, box_that_moves).await;
        for (turn, up) in [(0, true), (1, false), (2, true)] {
            let total = 4 << 20;
            let count = if up { &path.to_server } else { &path.to_client };
            let middle = count.bytes.get() + total / 2;
            let (from, to) = if up {
                (&mut pair.dialled, &mut pair.accepted)
            } else {
                (&mut pair.accepted, &mut pair.dialled)
            };
            let moving = async {
                while count.bytes.get() < middle {
                    tokio::task::yield_now().await;
                }
                path.rebind();
                moved.set(Some(Instant::now()));
            };
            tokio::join!(transfer(from, to, turn, total), moving);
        }
    });
}

#[test]
fn the_peer_has_the_address_to_which_the_client_moved() {
    run(async {
        let (mut pair, path) = over(&Setup::new(), |_, _: &[u8]| Fate::Passes).await;
        let (mut seed, mut former) = (0, pair.accepted.peer.address);
        assert_eq!(pair.accepted.peer.current_address(), former);
        for _ in 0..2 {
            path.rebind();
            while pair.accepted.peer.current_address() == former {
                transfer(&mut pair.dialled, &mut pair.accepted, seed, 10_000).await;
                seed += 1;
            }
            let current = pair.accepted.peer.current_address();
            assert_eq!(current.ip(), former.ip());
            former = current;
        }
        assert_eq!(pair.accepted.peer.current().address, former);
        assert_eq!(pair.dialled.peer.current_address(), path.address(), "the server has not moved");
    });
}

/// On loopback the bytes in flight wait in a socket's buffer, and later bytes wait behind them, so
/// they are limited. Behind a relay on this machine the path is not short, and BBR controls it as
/// any path: loss does not slow it down.
#[test]
fn little_is_under_way_on_loopback_and_as_much_as_fits_behind_a_relay() {
    const MOST: u64 = 384 << 10;
    let window = |sender: &Carrier| {
        let window = sender.peer.watch.as_ref().unwrap().stats().window_bytes;
        println!("a window of {window} bytes");
        window
    };
    run(async move {
        let mut pair = Setup::new().pair(|server| server).await.authenticated();
        // A packet takes 0.05 to 0.3 ms there and back. On a busy machine a handshake can take
        // longer than the round trip of a short path.
        for seed in 0..100 {
            transfer(&mut pair.dialled, &mut pair.accepted, seed, 4_000).await;
        }
        transfer(&mut pair.dialled, &mut pair.accepted, 1, 8 << 20).await;
        assert!(window(&pair.dialled) <= MOST);
        let mut dice = Dice(7);
        let relay = move |_, _: &[u8]| match dice.percent() {
            0 => Fate::Lost,
            _ => Fate::Late(Duration::from_millis(20)),
        };
        let (mut pair, _path) = over(&Setup::new(), relay).await;
        transfer(&mut pair.dialled, &mut pair.accepted, 1, 8 << 20).await;
        assert!(window(&pair.dialled) > MOST);
    });
}

/// The UDP payload on a path with an MTU of 1,280 bytes over IPv4.
const NARROW: usize = 1_280 - 28;

#[test]
fn on_a_narrow_path_the_search_for_the_mtu_costs_little() {
    run(async {
        let lost = Rc::new(Cell::new((0, 0)));
        let seen = Rc::clone(&lost);
        let narrow = move |_, packet: &[u8]| {
            if packet.len() <= NARROW {
                return Fate::Passes;
            }
            let (packets, bytes) = seen.get();
            seen.set((packets + 1, bytes + packet.len()));
            Fate::Lost
        };
        let (mut pair, _path) = over(&Setup::new(), narrow).await;
        for seed in 0..4 {
            transfer(&mut pair.dialled, &mut pair.accepted, seed, 1 << 20).await;
            transfer(&mut pair.accepted, &mut pair.dialled, !seed, 1 << 20).await;
        }
        let (packets, bytes) = lost.get();
        println!("{packets} probes of {bytes} bytes were lost, both ways");
        // A binary search takes eight sizes, each sent three times in both directions.
        assert!((1..=60).contains(&packets), "{packets} packets");
        assert!(bytes < 200_000, "{bytes} bytes");
        for carrier in [&pair.dialled, &pair.accepted] {
            let limit = carrier.datagrams.as_ref().unwrap().limit();
            assert!((1_100..NARROW).contains(&limit), "{limit}");
        }
    });
}

#[test]
fn a_path_that_becomes_narrow_is_noticed() {
    run(async {
        let most = Rc::new(Cell::new(usize::MAX));
        let seen = Rc::clone(&most);
        let judge = move |_, packet: &[u8]| {
            if packet.len() <= seen.get() { Fate::Passes } else { Fate::Lost }
        };
        let (mut pair, _path) = over(&Setup::new(), judge).await;
        let limit = |pair: &Pair| pair.dialled.datagrams.as_ref().unwrap().limit();
        while limit(&pair) < 8_000 {
            transfer(&mut pair.dialled, &mut pair.accepted, 1, 1 << 18).await;
        }
        most.set(NARROW);
        for seed in 0..4 {
            transfer(&mut pair.dialled, &mut pair.accepted, seed, 1 << 20).await;
        }
        assert!(limit(&pair) < NARROW, "{}", limit(&pair));
    });
}

#[test]
fn datagrams_of_every_size_arrive_whole_and_longer_ones_are_dropped() {
    run(async {
        let mut pair = Setup::new().pair(|address| address).await.authenticated();
        // MTU discovery runs during these transfers.
        for seed in 0..8 {
            transfer(&mut pair.dialled, &mut pair.accepted, seed, 1 << 18).await;
        }
        let (mut from, mut to) =
            (pair.dialled.datagrams.take().unwrap(), pair.accepted.datagrams.take().unwrap());
        let limit = from.limit();
        assert!(limit > 4_000, "{limit}");
        for length in (0..=limit).step_by(7).chain([1, 2, limit - 1, limit]) {
            let sent = pattern(length as u64, 0, length);
            send(&mut *from, sent.clone()).await;
            assert!(poll_fn(|cx| to.poll_recv(cx)).await.unwrap() == sent, "{length}");
        }
        for length in [from.limit() + 1, 65_535, 1 << 20] {
            send(&mut *from, Bytes::from(vec![0; length])).await;
        }
        send(&mut *from, Bytes::from_static(b"after")).await;
        assert_eq!(&poll_fn(|cx| to.poll_recv(cx)).await.unwrap()[..], b"after");
    });
}

/// Sends one datagram, and waits for room.
async fn send(datagrams: &mut dyn Datagrams, datagram: Bytes) {
    let mut queue = VecDeque::from([datagram]);
    assert_eq!(poll_fn(|cx| datagrams.poll_send(cx, &mut queue)).await.unwrap(), 1);
}

#[test]
fn datagrams_without_room_stay_with_the_caller_and_none_is_dropped() {
    const COUNT: u32 = 10_000;
    run(async {
        let mut pair = Setup::new().pair(|address| address).await.authenticated();
        let (mut from, mut to) =
            (pair.dialled.datagrams.take().unwrap(), pair.accepted.datagrams.take().unwrap());
        let datagram = |number: u32| {
            let mut datagram = vec![0; 1_000];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            Bytes::from(datagram)
        };
        // Ten times the bytes that may wait, sent before the connection's task runs.
        let mut queue: VecDeque<Bytes> = (0..COUNT).map(datagram).collect();
        let taken = poll_fn(|cx| from.poll_send(cx, &mut queue)).await.unwrap();
        assert!((200..1_100).contains(&taken), "{taken}");
        assert_eq!(queue.len(), COUNT as usize - taken);
        assert!(from.carried().waiting >= 200_000);
        let blocked = poll_fn(|cx| Poll::Ready(from.poll_send(cx, &mut queue).is_pending())).await;
        assert!(blocked, "the first datagram waits for room");
        for number in 0..taken {
            let datagram = poll_fn(|cx| to.poll_recv(cx)).await.unwrap();
            assert_eq!(datagram[..4], u32::try_from(number).unwrap().to_be_bytes());
            if number == taken / 2 {
                // There is room again, and the caller is woken.
                let more = poll_fn(|cx| from.poll_send(cx, &mut queue)).await.unwrap();
                assert!(more > 0);
                queue.clear();
            }
        }
        assert!(from.carried().packets >= 1_000 * taken as u64);
    });
}
