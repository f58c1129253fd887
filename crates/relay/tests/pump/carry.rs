//! A carrier between two nodes: two lanes that carry the bytes of each other, under a paused clock.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use relay::carry_lane;
use testkit::origins::{Digest, Pattern};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};
use transport::Lane;
use transport::memory::{Breaker, CAPACITY, Faults, MemoryLane, pair};

use crate::rig::run_paused;

/// Longer than any transfer of a test takes, and shorter than a time-out.
const SOON: Duration = Duration::from_secs(3);

/// The ends of a client and of the node with its link.
struct Ends {
    client: MemoryLane,
    home: MemoryLane,
    breaker: Breaker,
}

/// Between both ends is a node.
fn ends(answer: &[u8]) -> Ends {
    let ((client, near), (far, home)) = (pair(Faults::default()), pair(Faults::default()));
    let breaker = near.breaker();
    spawn_local(carry_lane(Box::new(near), Box::new(far), BytesMut::from(answer)));
    Ends { client, home, breaker }
}

async fn write(lane: &mut MemoryLane, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let part = Pattern.at(at, 10_000.min(to - at));
        at += part.len() as u64;
        let mut frames = VecDeque::from([Bytes::copy_from_slice(part)]);
        while !frames.is_empty() {
            poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
        }
    }
    poll_fn(|cx| lane.poll_flush(cx)).await
}

async fn close(lane: &mut MemoryLane) {
    poll_fn(|cx| lane.poll_close(cx)).await.unwrap();
}

async fn read_all(lane: &mut MemoryLane) -> io::Result<Digest> {
    let mut digest = Digest::default();
    loop {
        let mut bytes = BytesMut::with_capacity(30_000);
        if poll_fn(|cx| lane.poll_read(cx, &mut bytes)).await? == 0 {
            return Ok(digest);
        }
        digest.update(&bytes);
    }
}

#[test]
fn bytes_pass_both_ways_behind_the_first_answer_and_each_end_passes() {
    run_paused(async {
        let Ends { mut client, mut home, .. } = ends(Pattern.at(0, 100));
        let length = 3_000_000;
        let served = spawn_local(async move {
            write(&mut home, 100, length).await.unwrap();
            let digest = read_all(&mut home).await.unwrap();
            close(&mut home).await;
            digest
        });
        let (mut got, mut digest) = (0, Digest::default());
        while got < length {
            let mut bytes = BytesMut::with_capacity(30_000);
            poll_fn(|cx| client.poll_read(cx, &mut bytes)).await.unwrap();
            got += bytes.len() as u64;
            digest.update(&bytes);
        }
        assert_eq!(digest, Pattern.digest(length));
        write(&mut client, 0, length).await.unwrap();
        close(&mut client).await;
        assert_eq!(served.await.unwrap(), Pattern.digest(length));
        assert_eq!(timeout(SOON, read_all(&mut client)).await.unwrap().unwrap(), Digest::default());
    });
}

#[test]
fn a_side_that_takes_nothing_stops_the_other_side() {
    run_paused(async {
        let Ends { mut client, home, .. } = ends(b"");
        let mut taken = 0;
        let fill = async {
            loop {
                let mut frames = VecDeque::from([Bytes::from_static(&[7; 1000])]);
                taken += poll_fn(|cx| client.poll_write(cx, &mut frames)).await.unwrap();
            }
        };
        timeout(SOON, fill).await.unwrap_err();
        assert!((2 * CAPACITY..=2 * CAPACITY + (128 << 10)).contains(&taken), "{taken}");
        drop(home);
    });
}

#[test]
fn the_failure_of_one_side_ends_the_other_side() {
    run_paused(async {
        let Ends { client, mut home, breaker } = ends(b"");
        breaker.kill();
        // A lane in memory that is dropped before its end is a connection that was reset.
        timeout(SOON, read_all(&mut home)).await.unwrap().unwrap_err();
        drop(client);
    });
}

#[test]
fn a_side_does_not_last_long_when_the_other_direction_has_ended() {
    run_paused(async {
        let Ends { mut client, mut home, .. } = ends(b"");
        close(&mut home).await;
        assert_eq!(read_all(&mut client).await.unwrap(), Digest::default());
        let begin = Instant::now();
        while write(&mut client, 0, 1).await.is_ok() {
            assert!(begin.elapsed() < Duration::from_secs(10), "the direction lasts");
            sleep(Duration::from_millis(100)).await;
        }
        assert!(begin.elapsed() >= Duration::from_secs(4), "{:?}", begin.elapsed());
    });
}
