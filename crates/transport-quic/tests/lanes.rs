//! Lanes of single streams: a lane does not wait for other lanes, ends and aborts alone, and there
//! are enough lanes for ten thousand visitors.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::Priority;
use setup::{Pair, Setup, pattern, read_all, read_exact, run, write_all};
use testkit::path::{Fate, Path, Way};
use tokio::sync::Notify;
use transport::{Carrier, RecvLane, SendLane};
use transport_quic::QuicSettings;

/// Opens a lane at one end and accepts it at the other, after its first byte, which makes it known.
async fn lane(from: &mut Carrier, to: &mut Carrier) -> (Box<dyn SendLane>, Box<dyn RecvLane>) {
    let mut send = from.lanes.as_mut().unwrap().open(Priority::Normal).unwrap().unwrap();
    write_all(&mut *send, Bytes::from_static(b".")).await.unwrap();
    let mut recv = poll_fn(|cx| to.lanes.as_mut().unwrap().poll_accept(cx)).await.unwrap();
    read_exact(&mut *recv, 1).await.unwrap();
    (send, recv)
}

/// A connected pair whose ends have greeted.
async fn pair() -> Pair {
    Setup::new().pair(|address| address).await.authenticated()
}

/// The state of the path to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// The next large packet is lost.
    LosesOne,
    /// The next large packet passes, then nothing does.
    PassesOne,
    Shut,
}

/// Writes 800 bytes to `first` in a packet that is lost, then 800 bytes to `second`. Returns
/// whether the second write was readable at `reading` before any byte of the first could be sent
/// again.
async fn arrives_before_the_lost(same_lane: bool) -> bool {
    // Without MTU probes each packet above 500 bytes carries one of these two writes.
    let settings = QuicSettings { mtu: 1_200, ..QuicSettings::default() };
    let setup = Setup::with(settings);
    let (gate, turned) = (Rc::new(Cell::new(Gate::Open)), Rc::<Notify>::default());
    let mut path = None;
    let pair = setup.pair(|server| {
        let (gate, turned) = (Rc::clone(&gate), Rc::clone(&turned));
        let judge = move |way, packet: &[u8]| {
            let large = packet.len() > 500;
            match (way, gate.get()) {
                (Way::ToClient, _) | (Way::ToServer, Gate::Open) => Fate::Passes,
                (Way::ToServer, Gate::LosesOne) if large => {
                    gate.set(Gate::PassesOne);
                    turned.notify_one();
                    Fate::Lost
                }
                (Way::ToServer, Gate::PassesOne) if large => {
                    gate.set(Gate::Shut);
                    Fate::Passes
                }
                (Way::ToServer, Gate::LosesOne) => Fate::Passes,
                (Way::ToServer, Gate::PassesOne | Gate::Shut) => Fate::Lost,
            }
        };
        let made = Path::new(server, judge);
        let address = made.address();
        path = Some(made);
        address
    });
    let mut pair = pair.await.authenticated();
    let (mut a, mut at_a) = lane(&mut pair.dialled, &mut pair.accepted).await;
    let (mut b, mut at_b) = lane(&mut pair.dialled, &mut pair.accepted).await;

    gate.set(Gate::LosesOne);
    write_all(&mut *a, pattern(1, 0, 800)).await.unwrap();
    turned.notified().await;
    let (second, reading) = if same_lane { (&mut a, &mut at_a) } else { (&mut b, &mut at_b) };
    write_all(&mut **second, pattern(2, 0, 800)).await.unwrap();

    let mut buf = BytesMut::with_capacity(800);
    let read = poll_fn(|cx| reading.poll_read(cx, &mut buf));
    // No other packet passes, so only a time-out can show that no byte arrives.
    let early = match tokio::time::timeout(Duration::from_millis(500), read).await {
        Ok(n) => n.unwrap() > 0,
        Err(_) => false,
    };
    if early {
        assert_eq!(buf, pattern(2, 0, 800));
        let mut buf = BytesMut::with_capacity(800);
        let polled = poll_fn(|cx| Poll::Ready(at_a.poll_read(cx, &mut buf).is_pending())).await;
        assert!(polled, "the lost packet of the other lane cannot have arrived");
    }
    gate.set(Gate::Open);
    let mut late = read_exact(&mut *at_a, if same_lane { 1_600 } else { 800 }).await.unwrap();
    assert_eq!(late.split_to(800), pattern(1, 0, 800), "it is sent again");
    early
}

#[test]
fn a_lost_packet_of_one_lane_stalls_no_other() {
    run(async { assert!(arrives_before_the_lost(false).await) });
}

#[test]
fn on_one_lane_the_next_bytes_wait_for_the_lost_ones() {
    run(async { assert!(!arrives_before_the_lost(true).await, "the test above shows nothing") });
}

#[test]
fn ten_thousand_lanes_are_open_at_once() {
    const COUNT: usize = 10_000;
    run(async {
        let mut pair = pair().await;
        let (from, to) = (&mut pair.dialled, &mut pair.accepted);
        let opening = async {
            let mut open = Vec::new();
            let mut waits = 0;
            while open.len() < COUNT {
                let Some(mut lane) = from.lanes.as_mut().unwrap().open(Priority::Normal).unwrap()
                else {
                    // The peer allows more lanes a round trip later.
                    waits += 1;
                    tokio::task::yield_now().await;
                    continue;
                };
                let number = u32::try_from(open.len()).unwrap();
                write_all(&mut *lane, Bytes::copy_from_slice(&number.to_be_bytes())).await.unwrap();
                open.push(lane);
            }
            (open, waits)
        };
        let accepting = async {
            let mut held = Vec::new();
            while held.len() < COUNT {
                to.lanes.as_mut().unwrap().allow(held.len());
                let mut lane =
                    poll_fn(|cx| to.lanes.as_mut().unwrap().poll_accept(cx)).await.unwrap();
                let number = read_exact(&mut *lane, 4).await.unwrap();
                assert_eq!(number, &u32::try_from(held.len()).unwrap().to_be_bytes()[..]);
                held.push(lane);
            }
            held
        };
        let ((open, waits), held) = tokio::join!(opening, accepting);
        assert!(waits > 0, "the limit follows the need");
        for mut lane in open {
            lane.finish();
        }
        for mut lane in held {
            assert!(read_all(&mut *lane).await.unwrap().is_empty());
        }
    });
}

/// A client that opens lanes without streams gets no further lanes, even after it had many streams.
#[test]
fn without_streams_there_are_few_lanes() {
    run(async {
        let mut pair = pair().await;
        for (streams, least, most) in [(0, 256, 256), (5_000, 10_000, 20_000), (0, 256, 512)] {
            pair.accepted.lanes.as_mut().unwrap().allow(streams);
            let (mut open, mut held, mut quiet) = (Vec::new(), Vec::new(), 0);
            // Both ends must first learn of the lanes that were given up.
            while quiet < 100 || held.len() < least {
                quiet += 1;
                while let Some(mut lane) =
                    pair.dialled.lanes.as_mut().unwrap().open(Priority::Normal).unwrap()
                {
                    write_all(&mut *lane, Bytes::from_static(b"?")).await.unwrap();
                    open.push(lane);
                    quiet = 0;
                }
                let lanes = pair.accepted.lanes.as_mut().unwrap();
                while let Poll::Ready(lane) = poll_fn(|cx| Poll::Ready(lanes.poll_accept(cx))).await
                {
                    held.push(lane.unwrap());
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            println!("{streams} streams: {} lanes", held.len());
            assert!((least..=most).contains(&held.len()), "{streams}: {}", held.len());
            // An allowance cannot be revoked, so this call comes before the ends.
            pair.accepted.lanes.as_mut().unwrap().allow(0);
            drop((open, held));
        }
    });
}

#[test]
fn a_finished_lane_is_delivered_after_it_was_dropped() {
    run(async {
        let mut pair = pair().await;
        let (mut send, mut recv) = lane(&mut pair.accepted, &mut pair.dialled).await;
        let bytes = pattern(3, 0, 3_000_000);
        let sending = async {
            write_all(&mut *send, bytes.clone()).await.unwrap();
            send.finish();
            drop(send);
        };
        let ((), got) = tokio::join!(sending, read_all(&mut *recv));
        assert!(got.unwrap() == bytes);
        let again = poll_fn(|cx| recv.poll_read(cx, &mut BytesMut::with_capacity(1))).await;
        assert_eq!(again.unwrap(), 0, "the end repeats");
    });
}

#[test]
fn an_unfinished_lane_that_is_dropped_is_an_abort_and_no_end() {
    run(async {
        let mut pair = pair().await;
        let (send, mut recv) = lane(&mut pair.dialled, &mut pair.accepted).await;
        drop(send);
        for _ in 0..2 {
            let error = read_all(&mut *recv).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        }
        let (mut send, mut recv) = lane(&mut pair.dialled, &mut pair.accepted).await;
        send.finish();
        assert!(read_all(&mut *recv).await.unwrap().is_empty(), "the others live on");
    });
}

#[test]
fn a_lane_that_nobody_reads_any_more_tells_its_writer() {
    run(async {
        let mut pair = pair().await;
        let (mut send, recv) = lane(&mut pair.dialled, &mut pair.accepted).await;
        drop(recv);
        let error = loop {
            if let Err(error) = write_all(&mut *send, pattern(1, 0, 100_000)).await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        let again = write_all(&mut *send, Bytes::from_static(b"x")).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::BrokenPipe, "the error repeats");
        lane(&mut pair.dialled, &mut pair.accepted).await;
    });
}

#[test]
fn with_the_first_lane_all_others_and_datagrams_die() {
    run(async {
        let mut pair = pair().await;
        let (mut send, mut recv) = lane(&mut pair.dialled, &mut pair.accepted).await;
        let (mut back, mut at_back) = lane(&mut pair.accepted, &mut pair.dialled).await;
        drop(pair.dialled.lane);
        let dead =
            |error: std::io::Error| assert_ne!(error.kind(), ErrorKind::BrokenPipe, "{error}");
        dead(read_all(&mut *recv).await.unwrap_err());
        dead(read_all(&mut *at_back).await.unwrap_err());
        dead(write_all(&mut *send, Bytes::from_static(b"x")).await.unwrap_err());
        dead(write_all(&mut *back, Bytes::from_static(b"x")).await.unwrap_err());
        for mut carrier in [pair.accepted.lanes, pair.dialled.lanes].into_iter().flatten() {
            dead(poll_fn(|cx| carrier.poll_accept(cx)).await.unwrap_err());
            dead(carrier.open(Priority::Bulk).unwrap_err());
        }
        for mut datagrams in [pair.accepted.datagrams, pair.dialled.datagrams].into_iter().flatten()
        {
            dead(poll_fn(|cx| datagrams.poll_recv(cx)).await.unwrap_err());
            let mut queue = VecDeque::from([Bytes::new()]);
            dead(poll_fn(|cx| datagrams.poll_send(cx, &mut queue)).await.unwrap_err());
        }
    });
}

#[test]
fn a_peer_that_has_not_greeted_is_held_to_what_a_greeting_needs() {
    run(async {
        let mut pair = Setup::new().pair(|address| address).await;
        let mut send =
            pair.dialled.lanes.as_mut().unwrap().open(Priority::Normal).unwrap().unwrap();
        let mut frames = VecDeque::from([Bytes::from(vec![1; 1 << 20])]);
        let mut taken = 0;
        while let Poll::Ready(n) = poll_fn(|cx| Poll::Ready(send.poll_write(cx, &mut frames))).await
        {
            taken += n.unwrap();
        }
        assert!((1_000..=64 << 10).contains(&taken), "{taken}");
        pair.accepted.lanes.as_mut().unwrap().authenticated(4 << 20);
        while !frames.is_empty() {
            poll_fn(|cx| send.poll_write(cx, &mut frames)).await.unwrap();
        }
        send.finish();
        let mut recv =
            poll_fn(|cx| pair.accepted.lanes.as_mut().unwrap().poll_accept(cx)).await.unwrap();
        assert_eq!(read_all(&mut *recv).await.unwrap().len(), 1 << 20);
    });
}

#[test]
fn interactive_bytes_overtake_bulk_that_was_written_before() {
    run(async {
        let mut pair = pair().await;
        let lanes = pair.dialled.lanes.as_mut().unwrap();
        let mut bulk = lanes.open(Priority::Bulk).unwrap().unwrap();
        let mut quick = lanes.open(Priority::Interactive).unwrap().unwrap();
        // More bytes than congestion control lets out before both lanes are written.
        let heap = pattern(1, 0, 8 << 20);
        let mut frames = VecDeque::from([heap.clone()]);
        poll_fn(|cx| bulk.poll_write(cx, &mut frames)).await.unwrap();
        write_all(&mut *quick, pattern(2, 0, 1_000)).await.unwrap();
        quick.finish();
        let accept = pair.accepted.lanes.as_mut().unwrap();
        let mut at_bulk = poll_fn(|cx| accept.poll_accept(cx)).await.unwrap();
        let mut at_quick = poll_fn(|cx| accept.poll_accept(cx)).await.unwrap();
        assert_eq!(read_all(&mut *at_quick).await.unwrap(), pattern(2, 0, 1_000));
        let mut buf = BytesMut::with_capacity(16 << 20);
        let mut seen = 0;
        while let Poll::Ready(n) = poll_fn(|cx| Poll::Ready(at_bulk.poll_read(cx, &mut buf))).await
        {
            seen += n.unwrap();
        }
        assert!(seen < 1 << 20, "{seen} bytes of bulk came first");
    });
}
