//! A stream as the lane of a carrier, under a paused clock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::{Open, Priority, ResetCode, Target};
use relay::{Settings, StreamLane, Visitor, accept_duplex, open_duplex};
use testkit::origins::{Digest, Pattern};
use tokio::sync::oneshot;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, sleep};
use transport::Lane;

use crate::link::{Link, Opener};
use crate::rig::{FRAME, WINDOW, run_paused};

/// Longer than any transfer of a test takes, and shorter than a time-out.
const SOON: Duration = Duration::from_secs(10);

/// Bytes that may wait between the two lanes: the windows, and the queue of each lane, which a
/// batch may exceed.
const ON_THE_WAY: usize = WINDOW + 2 * ((128 << 10) + FRAME);

/// A lane of the opener and one of the acceptor.
struct Two {
    near: StreamLane,
    far: StreamLane,
    /// Why the far side reset the near stream.
    reason: oneshot::Receiver<Option<ResetCode>>,
    link: Rc<Link>,
    settings: Rc<Settings>,
}

async fn two() -> Two {
    let settings = Rc::<Settings>::default();
    let of_far = Rc::clone(&settings);
    let accepted = Rc::<Cell<Option<StreamLane>>>::default();
    let lane = Rc::clone(&accepted);
    let accept = Box::new(move |_: Open, inlet| {
        let (outlet, stream) = accept_duplex(inlet, Visitor::Unknown, &of_far, None);
        lane.set(Some(StreamLane::new(stream)));
        outlet
    });
    let link = Link::new(WINDOW, FRAME, accept);
    let target = Target::Service("test".into());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    let stream = open_duplex(&Opener(Rc::clone(&link)), open, &settings, None).unwrap();
    let (near, reason) = StreamLane::watched(stream);
    loop {
        if let Some(far) = accepted.take() {
            return Two { near, far, reason, link, settings };
        }
        yield_now().await;
    }
}

/// Writes the first `length` bytes of the pattern in pieces of `size` bytes.
async fn write(lane: &mut StreamLane, length: u64, size: u64) -> io::Result<()> {
    let mut at = 0;
    while at < length {
        let part = Pattern.at(at, size.min(length - at));
        at += part.len() as u64;
        let mut frames = VecDeque::from([Bytes::copy_from_slice(part)]);
        while !frames.is_empty() {
            poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
        }
    }
    Ok(())
}

async fn read(lane: &mut StreamLane, most: usize) -> io::Result<BytesMut> {
    let mut buffer = BytesMut::with_capacity(most);
    poll_fn(|cx| lane.poll_read(cx, &mut buffer)).await?;
    Ok(buffer)
}

async fn read_all(lane: &mut StreamLane, most: usize) -> io::Result<Digest> {
    let mut digest = Digest::default();
    loop {
        let bytes = read(lane, most).await?;
        if bytes.is_empty() {
            return Ok(digest);
        }
        digest.update(&bytes);
    }
}

async fn close(lane: &mut StreamLane) {
    poll_fn(|cx| lane.poll_close(cx)).await.unwrap();
}

/// Waits until no stream is left.
async fn settled(settings: &Settings) {
    let begin = Instant::now();
    while settings.stats.live() > 0 {
        assert!(begin.elapsed() < SOON, "a stream is left");
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn bytes_of_every_size_pass_in_order_and_each_direction_ends_on_its_own() {
    for (size, most) in [(1, 7), (1000, 16 << 10), (65_537, 1000), (300_000, 256 << 10)] {
        run_paused(async move {
            let Two { mut near, mut far, link, settings, .. } = two().await;
            let length = if size == 1 { 100_000 } else { 5_000_000 };
            let (sent, received) = tokio::join!(
                async {
                    write(&mut near, length, size).await.unwrap();
                    close(&mut near).await;
                },
                read_all(&mut far, most)
            );
            assert_eq!((sent, received.unwrap()), ((), Pattern.digest(length)), "{size}");
            // The other direction goes on.
            let (sent, received) = tokio::join!(
                async {
                    write(&mut far, length, size).await.unwrap();
                    close(&mut far).await;
                },
                read_all(&mut near, most)
            );
            assert_eq!((sent, received.unwrap()), ((), Pattern.digest(length)), "{size}");
            settled(&settings).await;
            assert!(link.max_queued() <= WINDOW);
        });
    }
}

#[test]
fn both_directions_carry_bytes_at_the_same_time() {
    run_paused(async {
        let Two { mut near, mut far, .. } = two().await;
        let length = 3_000_000;
        spawn_local(async move {
            // An echo of the same task: a write that waits must not keep the reads from waking it.
            loop {
                let bytes = read(&mut far, 50_000).await.unwrap();
                if bytes.is_empty() {
                    return close(&mut far).await;
                }
                let mut frames = VecDeque::from([bytes.freeze()]);
                while !frames.is_empty() {
                    poll_fn(|cx| far.poll_write(cx, &mut frames)).await.unwrap();
                }
            }
        });
        let (mut digest, mut at) = (Digest::default(), 0);
        while at < length {
            let part = Pattern.at(at, 40_000.min(length - at));
            let mut frames = VecDeque::from([Bytes::copy_from_slice(part)]);
            poll_fn(|cx| near.poll_write(cx, &mut frames)).await.unwrap();
            assert!(frames.is_empty(), "a piece is taken as a whole");
            at += part.len() as u64;
            digest.update(&read(&mut near, 64 << 10).await.unwrap());
        }
        close(&mut near).await;
        loop {
            let bytes = read(&mut near, 64 << 10).await.unwrap();
            if bytes.is_empty() {
                break;
            }
            digest.update(&bytes);
        }
        assert_eq!(digest, Pattern.digest(length));
    });
}

#[test]
fn a_reader_that_stops_stops_the_writer_after_a_bounded_number_of_bytes() {
    run_paused(async {
        let Two { mut near, mut far, .. } = two().await;
        let mut taken = 0;
        let write = async {
            loop {
                let mut frames = VecDeque::from([Bytes::from_static(&[7; 10_000])]);
                taken += poll_fn(|cx| near.poll_write(cx, &mut frames)).await.unwrap();
            }
        };
        tokio::time::timeout(SOON, write).await.unwrap_err();
        assert!(taken > WINDOW && taken <= ON_THE_WAY, "{taken}");
        assert!(far.held() > 0 && near.held() > 0);
        // It goes on when the reader goes on.
        let bytes = async {
            let mut read_bytes = 0;
            while read_bytes < taken {
                read_bytes += read(&mut far, 64 << 10).await.unwrap().len();
            }
        };
        bytes.await;
        write_one(&mut near).await;
        assert_eq!(read(&mut far, 100).await.unwrap().len(), 1);
    });
}

async fn write_one(lane: &mut StreamLane) {
    write(lane, 1, 1).await.unwrap();
}

#[test]
fn pieces_of_one_byte_are_bounded_by_their_number() {
    run_paused(async {
        let Two { mut near, .. } = two().await;
        // The task has no turn between these calls.
        let mut frames: VecDeque<_> = (0..1000).map(|_| Bytes::from_static(b"x")).collect();
        let taken = poll_fn(|cx| near.poll_write(cx, &mut frames)).await.unwrap();
        assert_eq!((taken, frames.len()), (64, 936));
    });
}

#[test]
fn the_last_bytes_of_a_lane_that_is_dropped_after_its_end_arrive() {
    run_paused(async {
        let Two { mut near, mut far, settings, .. } = two().await;
        let length = 100_000;
        write(&mut near, length, 50_000).await.unwrap();
        close(&mut near).await;
        drop(near);
        assert_eq!(read_all(&mut far, 10_000).await.unwrap(), Pattern.digest(length));
        // Nobody reads what this side sends.
        let error = write(&mut far, 10_000_000, 10_000).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        drop(far);
        settled(&settings).await;
    });
}

#[test]
fn the_bytes_of_a_lane_that_is_dropped_without_an_end_arrive_and_then_nobody_reads() {
    run_paused(async {
        let Two { mut near, mut far, settings, .. } = two().await;
        // A refusal: its sender drops the lane at once.
        write(&mut near, 10, 10).await.unwrap();
        drop(near);
        assert_eq!(read_all(&mut far, 100).await.unwrap(), Pattern.digest(10));
        // No stop comes before this side has sent something: it could overtake those bytes.
        sleep(SOON).await;
        write_one(&mut far).await;
        let error = write(&mut far, 10_000_000, 10_000).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        // The error repeats.
        assert_eq!(write(&mut far, 1, 1).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        settled(&settings).await;
    });
}

#[test]
fn the_end_of_the_link_breaks_the_lane_and_has_its_reason() {
    run_paused(async {
        let Two { mut near, far, reason, link, settings } = two().await;
        let waits = spawn_local(async move { read(&mut near, 100).await.unwrap_err().kind() });
        yield_now().await;
        link.kill();
        assert_eq!(waits.await.unwrap(), ErrorKind::ConnectionReset);
        assert_eq!(reason.await.unwrap(), Some(ResetCode::Shutdown));
        drop(far);
        settled(&settings).await;
    });
}

#[test]
fn a_lane_of_which_one_direction_has_ended_and_that_moves_no_byte_breaks_after_60_s() {
    run_paused(async {
        let Two { mut near, mut far, settings, .. } = two().await;
        close(&mut near).await;
        assert_eq!(read(&mut far, 100).await.unwrap().len(), 0);
        // Bytes of the other direction keep it.
        for _ in 0..10 {
            sleep(Duration::from_secs(20)).await;
            write_one(&mut far).await;
            assert_eq!(read(&mut near, 100).await.unwrap().len(), 1);
        }
        let begin = Instant::now();
        read_all(&mut near, 100).await.unwrap_err();
        let took = begin.elapsed().as_secs();
        assert!((59..=80).contains(&took), "{took}");
        drop((near, far));
        settled(&settings).await;
    });
}

#[test]
fn a_lane_moves_to_another_thread_while_its_stream_stays() {
    crate::rig::run(async {
        let Two { mut near, far, .. } = two().await;
        let length = 5_000_000;
        let (sender, digest) = oneshot::channel();
        let mut far = Box::new(far);
        far.detach().unwrap();
        let thread = std::thread::spawn(move || {
            crate::rig::run(async move {
                far.attach().unwrap();
                sender.send(read_all(&mut far, 100_000).await.unwrap()).unwrap();
                write(&mut far, length, 70_000).await.unwrap();
                close(&mut far).await;
            });
        });
        write(&mut near, length, 70_000).await.unwrap();
        close(&mut near).await;
        assert_eq!(digest.await.unwrap(), Pattern.digest(length));
        assert_eq!(read_all(&mut near, 100_000).await.unwrap(), Pattern.digest(length));
        thread.join().unwrap();
    });
}
