//! A direct path that loses, doubles, delays and damages packets, and one that carries only short
//! packets and reports nothing (`reliability.md` 23). The bytes stay exact.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use punch::{Body, Candidate, Kind, Signal};
use testkit::origins::{Digest, Pattern};
use testkit::path::{Fate, Path, Way};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use transport::{Carrier, Lane};
use transport_quic::punched::{Begin, Trial};

use crate::punched::ends::{carrying, publisher, puncher, run};

/// Bytes per direction: several windows.
const LENGTH: u64 = 3_000_000;

/// Both ends of a direct path that leads through a box.
struct Ends {
    dialled: Carrier,
    accepted: Carrier,
    _trials: [Trial; 2],
    path: Path,
}

/// The same signal with these candidates in place of the sender's.
fn with(candidates: &[Candidate], signal: &[u8]) -> Vec<u8> {
    let mut signal = Signal::decode(signal).unwrap();
    if let Body::Offer(offer) = &mut signal.body {
        offer.candidates = candidates.to_vec();
    }
    signal.encode()
}

/// Passes signals on. The receiver of them knows no address but those of `candidates`.
fn through(
    candidates: Vec<Candidate>,
    mut said: mpsc::Receiver<Vec<u8>>,
) -> mpsc::Receiver<Vec<u8>> {
    let (says, heard) = mpsc::channel(64);
    spawn_local(async move {
        while let Some(signal) = said.recv().await {
            if says.send(with(&candidates, &signal)).await.is_err() {
                return;
            }
        }
    });
    heard
}

async fn over(judge: impl FnMut(Way, &[u8]) -> Fate + 'static) -> Ends {
    let puncher = puncher();
    let visitor = puncher.visitor(&Begin { round: 7, ..Begin::default() }).unwrap();
    // The publisher learns where the visitor is by its checks, which come from the box.
    let publisher = publisher(&puncher, &with(&[], &visitor.signal().await));
    let path = Path::new((Ipv4Addr::LOCALHOST, publisher.port().unwrap()).into(), judge);
    let (says, said) = mpsc::channel(64);
    let (answers, answered) = mpsc::channel(64);
    let mut said = through(Vec::new(), said);
    let mut heard = through(vec![Candidate::new(Kind::Host, path.address(), 0)], answered);
    let dial = carrying(&visitor, &says, &mut heard, visitor.dial());
    let accept = carrying(&publisher, &answers, &mut said, async {
        publisher.accept().await.unwrap().handshake().await
    });
    let (dialled, accepted) = tokio::join!(dial, accept);
    let (mut dialled, mut accepted) = (dialled.unwrap(), accepted.unwrap());
    assert_eq!(dialled.peer.address, path.address(), "the path leads through the box");
    for carrier in [&mut dialled, &mut accepted] {
        carrier.lane.authenticated();
        carrier.lanes.as_mut().unwrap().authenticated(32 << 20);
    }
    Ends { dialled, accepted, _trials: [visitor, publisher], path }
}

async fn send(lane: &mut dyn Lane) {
    let mut at = 0;
    while at < LENGTH {
        let part = Pattern.at(at, 70_000.min(LENGTH - at));
        at += part.len() as u64;
        let mut frames = VecDeque::from([Bytes::from_static(part)]);
        while !frames.is_empty() {
            poll_fn(|cx| lane.poll_write(cx, &mut frames)).await.unwrap();
        }
        poll_fn(|cx| lane.poll_flush(cx)).await.unwrap();
    }
}

async fn receive(lane: &mut dyn Lane) -> Digest {
    let (mut digest, mut left) = (Digest::default(), LENGTH);
    while left > 0 {
        let mut bytes = BytesMut::with_capacity(64 << 10);
        let read = poll_fn(|cx| lane.poll_read(cx, &mut bytes)).await.unwrap();
        assert!(read > 0, "an early end");
        digest.update(&bytes);
        left -= bytes.len() as u64;
    }
    digest
}

/// Sends bytes up and then down, and compares them.
async fn transfer(ends: &mut Ends) {
    let Ends { dialled, accepted, .. } = ends;
    let ((), up) = tokio::join!(send(&mut *dialled.lane), receive(&mut *accepted.lane));
    let ((), down) = tokio::join!(send(&mut *accepted.lane), receive(&mut *dialled.lane));
    assert_eq!([up, down], [Pattern.digest(LENGTH), Pattern.digest(LENGTH)]);
}

/// Whether a packet is one of STUN, whose loss the checks of the attempt make good.
fn is_stun(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| *first < 4)
}

#[test]
fn bytes_are_exact_through_loss_doubles_disorder_and_damage() {
    run(async {
        // The fates of the packets are the same in each run.
        let mut dice = 7_u32;
        let weather = move |_, packet: &[u8]| {
            if is_stun(packet) {
                return Fate::Passes;
            }
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match (dice >> 16) % 100 {
                0..3 => Fate::Lost,
                3..6 => Fate::Twice,
                6..12 => Fate::Late(Duration::from_millis(3)),
                12..14 => Fate::Broken,
                _ => Fate::Passes,
            }
        };
        transfer(&mut over(weather).await).await;
    });
}

#[test]
fn a_path_that_swallows_packets_above_1280_bytes_carries_the_bytes() {
    run(async {
        // The IP and UDP heads take 28 bytes of an MTU of 1,280.
        let narrow =
            |_, packet: &[u8]| if packet.len() > 1_252 { Fate::Lost } else { Fate::Passes };
        let mut ends = over(narrow).await;
        transfer(&mut ends).await;
        assert!(ends.path.to_server.packets.get() > 1_000, "the packets passed the box");
    });
}
