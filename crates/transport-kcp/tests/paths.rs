//! Paths that lose, duplicate, corrupt and delay packets, move the client to another address, or
//! carry only small packets. The bytes stay exact.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use setup::{Pair, Setup, run};
use testkit::conformance::{Sum, pattern, read_some, write_all};
use testkit::path::{Fate, Path, Way};
use transport::{Carrier, Datagrams, Lane};
use transport_kcp::{KcpSettings, Protection};

/// A connected pair over a path.
async fn over(setup: &Setup, judge: impl FnMut(Way, &[u8]) -> Fate + 'static) -> (Pair, Path) {
    let mut path = None;
    let pair = setup.pair(|server| {
        let made = Path::new(server, judge);
        let address = made.address();
        path = Some(made);
        address
    });
    (pair.await, path.unwrap())
}

/// Sends `length` bytes of the stream `seed` and compares the received bytes.
async fn transfer(from: &mut Carrier, to: &mut Carrier, seed: u64, length: u64) {
    let sending = async {
        let mut at = 0;
        while at < length {
            let end = (at + 70_000).min(length);
            let piece: Bytes = (at..end).map(|at| pattern(seed, at)).collect();
            write_all(&mut *from.lane, &mut VecDeque::from([piece])).await.unwrap();
            at = end;
        }
    };
    let receiving = async {
        let mut sum = Sum::new(seed);
        while sum.seen() < length {
            let left = usize::try_from(length - sum.seen()).unwrap();
            let bytes = read_some(&mut *to.lane, left.min(60_000)).await.unwrap();
            assert!(!bytes.is_empty(), "an end before its time");
            sum.add(&bytes);
        }
    };
    tokio::join!(sending, receiving);
}

/// Ends both directions of the lane.
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
    for protection in [
        Protection::Off,
        Protection::Adaptive { most: 32 },
        Protection::Fixed { data: 10, parity: 3 },
    ] {
        run(async move {
            let setup = Setup::with(KcpSettings { protection, ..KcpSettings::default() });
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
                let Pair { dialled, accepted, .. } = &mut pair;
                // A lane has one stream of bytes, and each transfer is a part of it.
                transfer(dialled, accepted, seed, 700_000).await;
                transfer(accepted, dialled, !seed, 700_000).await;
            }
            part(&mut *pair.dialled.lane, &mut *pair.accepted.lane).await;
        });
    }
}

#[test]
fn a_transfer_goes_on_when_the_client_s_address_changes_in_its_middle() {
    for is_upload in [true, false] {
        run(async move {
            let setup = Setup::new();
            let passed = Rc::new(Cell::new(0));
            let count = Rc::clone(&passed);
            let judge = move |_, packet: &[u8]| {
                count.set(count.get() + packet.len());
                Fate::Passes
            };
            let (mut pair, path) = over(&setup, judge).await;
            let moves = async {
                for part in 1..=3 {
                    while passed.get() < part * 1_000_000 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    path.rebind();
                }
            };
            // A client that only receives is silent when no packet arrives, and shows its new
            // address with its next packet.
            let mut pings = pair.dialled.datagrams.take().unwrap();
            let pinging = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    send(&mut *pings, Bytes::from_static(b"ping")).await;
                }
            };
            let Pair { dialled, accepted, .. } = &mut pair;
            let moved = async {
                if is_upload {
                    transfer(dialled, accepted, 1, 6_000_000).await;
                } else {
                    transfer(accepted, dialled, 1, 6_000_000).await;
                }
            };
            tokio::select! {
                _ = async { tokio::join!(moves, moved) } => {}
                () = pinging => {}
            }
            // The other direction finds the new address as well.
            if is_upload {
                transfer(accepted, dialled, 2, 100_000).await;
            } else {
                transfer(dialled, accepted, 2, 100_000).await;
            }
        });
    }
}

#[test]
fn the_peer_has_the_address_to_which_the_client_moved() {
    run(async {
        let setup = Setup::new();
        let (mut pair, path) = over(&setup, |_, _: &[u8]| Fate::Passes).await;
        let (mut seed, mut former) = (0, pair.accepted.peer.address);
        assert_eq!(pair.accepted.peer.current_address(), former);
        for _ in 0..2 {
            path.rebind();
            while pair.accepted.peer.current_address() == former {
                transfer(&mut pair.dialled, &mut pair.accepted, seed, 10_000).await;
                transfer(&mut pair.accepted, &mut pair.dialled, seed, 10_000).await;
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

/// The smallest payload of IPv6 and UDP in frames of 1,280 bytes.
const NARROW: usize = 1_232;

#[test]
fn on_a_narrow_path_the_size_of_packets_is_found() {
    run(async {
        let setup = Setup::new();
        let judge = |_, packet: &[u8]| {
            if packet.len() > NARROW { Fate::Lost } else { Fate::Passes }
        };
        let (mut pair, _path) = over(&setup, judge).await;
        transfer(&mut pair.dialled, &mut pair.accepted, 1, 3_000_000).await;
        let mtu = pair.dialled.peer.watch.as_ref().unwrap().stats().mtu;
        assert!((1_200..=NARROW).contains(&usize::from(mtu)), "{mtu}");
    });
}

#[test]
fn a_captured_packet_that_comes_again_has_no_effect() {
    run(async {
        let setup = Setup::new();
        // Each packet comes twice, and once more much later.
        let (mut pair, _path) = over(&setup, |_, _: &[u8]| Fate::Twice).await;
        for seed in 0..2 {
            transfer(&mut pair.dialled, &mut pair.accepted, seed, 400_000).await;
        }
        let datagrams = 50;
        let Pair { dialled, accepted, .. } = &mut pair;
        let sender = dialled.datagrams.as_mut().unwrap();
        for number in 0..datagrams {
            send(&mut **sender, Bytes::from(vec![number; 100])).await;
        }
        transfer(dialled, accepted, 9, 10_000).await;
        let receiver = accepted.datagrams.as_mut().unwrap();
        let mut got = Vec::new();
        while let Ok(datagram) =
            tokio::time::timeout(Duration::from_millis(300), poll_fn(|cx| receiver.poll_recv(cx)))
                .await
        {
            got.push(datagram.unwrap()[0]);
        }
        got.sort_unstable();
        assert_eq!(got, (0..datagrams).collect::<Vec<_>>(), "each once");
    });
}

async fn send(datagrams: &mut dyn Datagrams, datagram: Bytes) {
    let mut queue = VecDeque::from([datagram]);
    while !queue.is_empty() {
        poll_fn(|cx| datagrams.poll_send(cx, &mut queue)).await.unwrap();
    }
}
