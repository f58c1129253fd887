//! Datagrams are bounded, are not mixed up with segments, are delivered at most once, and are
//! protected.

use testkit::netem::Weather;

use super::*;

const COUNT: usize = 2_000;

/// The bytes of datagram `n`.
fn content(n: usize) -> Bytes {
    let length = 8 + n * 37 % 400;
    let mut bytes = vec![n.to_le_bytes()[0]; length];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes.into()
}

/// Sends datagrams at fixed times over a path, beside a stream or not. Returns the share that
/// arrived, and the delay of each datagram.
fn flow(
    protection: Protection,
    weather: &Weather,
    beside: bool,
    seed: u64,
) -> (f64, Vec<Duration>) {
    let mut config = config();
    config.protection = protection;
    let mut world = World::new([config.clone(), config], weather, seed);
    let mut transfer = Transfer::new(usize::MAX / 2);
    let mut seen = vec![None; COUNT];
    let (begin, gap) = (world.now, MS * 20);
    let end = begin + gap * (COUNT as u32 + 100);
    let mut next = 0;
    let mut took = Vec::new();
    while world.now < end {
        let now = world.now;
        while next < COUNT && now >= begin + gap * next as u32 {
            world.ends[0].send_datagram(content(next)).unwrap();
            next += 1;
        }
        if beside {
            let [from, to] = &mut world.ends;
            transfer.step(now, from, to);
        }
        while let Some(datagram) = world.ends[1].read_datagram() {
            let n = usize::from_le_bytes(datagram[..8].try_into().unwrap());
            assert_eq!(datagram, content(n), "{n}");
            assert_eq!(seen[n].replace(now), None, "{n} came twice");
            took.push(now - (begin + gap * n as u32));
        }
        if !world.settle() {
            let due = if next < COUNT { begin + gap * next as u32 } else { end };
            world.advance_until(due);
        }
    }
    let counters = world.ends[0].counters();
    assert_eq!(counters.datagrams_out, COUNT as u64);
    let share = took.len() as f64 / COUNT as f64;
    took.sort();
    let (half, most) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    let late = world.ends[1].counters().datagrams_late;
    let rate = transfer.read as f64 / (end - begin).as_secs_f64() / 125_000.0;
    println!(
        "{protection:?} stream {rate:.1} Mbit/s: {share:.3}, p50 {half:?} p99 {most:?}, late {late}"
    );
    (share, took)
}

#[test]
fn parity_delivers_datagrams_that_the_path_has_lost() {
    for seed in 0..2 {
        for (protection, beside, least) in [
            (Protection::Off, false, 0.77),
            (Protection::Adaptive { most: 32 }, false, 0.93),
            (Protection::Fixed { data: 1, parity: 1 }, false, 0.93),
            (Protection::Fixed { data: 10, parity: 3 }, false, 0.93),
            (Protection::Adaptive { most: 32 }, true, 0.88),
            (Protection::Fixed { data: 10, parity: 5 }, true, 0.90),
        ] {
            let (share, _) = flow(protection, &path(20, 50, 0.2), beside, seed);
            assert!(share >= least, "{protection:?} {beside}: {share}");
            assert!(protection != Protection::Off || share <= 0.83, "nobody repeats: {share}");
        }
    }
}

#[test]
fn a_datagram_is_delivered_at_most_once_whatever_the_path_does() {
    let seeds = if cfg!(debug_assertions) { 4 } else { 50 };
    for seed in 0..seeds {
        let mut weather = path(20, 50, 0.1);
        (weather.reorder, weather.duplicate, weather.jitter) = (0.3, 0.3, MS * 30);
        // `flow` panics if a datagram arrives twice.
        flow(Protection::Fixed { data: 2, parity: 3 }, &weather, seed % 2 == 1, seed);
    }
}

#[test]
fn datagrams_do_not_wait_for_the_stream() {
    let (_, alone) = flow(Protection::Adaptive { most: 32 }, &path(20, 50, 0.0), false, 1);
    assert!(*alone.last().unwrap() <= MS * 27, "half of a round trip");
    let (_, beside) = flow(Protection::Adaptive { most: 32 }, &path(20, 50, 0.0), true, 1);
    // The queue of the path itself is 50 ms.
    assert!(beside[COUNT * 99 / 100] <= MS * 60, "{:?}", beside[COUNT * 99 / 100]);
}

#[test]
fn queues_of_datagrams_are_bounded_and_the_sender_keeps_what_there_is_no_room_for() {
    let mut world = World::new([config(), config()], &path(1_000, 2, 0.0), 1);
    let limit = world.ends[0].datagram_limit();
    assert_eq!(limit, 1_432);
    let long = Bytes::from(vec![0; limit + 1]);
    assert_eq!(world.ends[0].send_datagram(long.clone()), Err(Unsent::TooLong(long)));
    let mut taken = 0_u32;
    let datagram = |n: u32| -> Bytes { [&n.to_be_bytes()[..], &[7; 996]].concat().into() };
    while world.ends[0].datagram_room() >= 1_000 {
        world.ends[0].send_datagram(datagram(taken)).unwrap();
        taken += 1;
    }
    let more = datagram(taken);
    assert_eq!(world.ends[0].send_datagram(more.clone()), Err(Unsent::Full(more)));
    assert_eq!(taken, (256 << 10) / 1_032);
    let empty = std::iter::from_fn(|| world.ends[0].send_datagram(Bytes::new()).ok());
    assert!(empty.count() <= 32, "empty ones cost as well");
    let end = world.now + Duration::from_secs(1);
    while world.settle() || world.advance_until(end) {}
    // The user does not read, so the newest datagrams stay.
    for n in taken..2 * taken {
        world.ends[0].send_datagram(datagram(n)).unwrap();
        let end = world.now + MS * 10;
        while world.settle() || world.advance_until(end) {}
    }
    let received = world.ends[1].counters();
    assert!(received.datagrams_dropped >= u64::from(taken), "{received:?}");
    let first = world.ends[1].read_datagram().unwrap();
    assert_eq!(first, datagram(taken), "the oldest were dropped");
}

#[test]
fn an_empty_datagram_is_a_datagram() {
    let mut world = World::new([config(), config()], &path(50, 20, 0.0), 1);
    world.ends[0].send_datagram(Bytes::new()).unwrap();
    let end = world.now + Duration::from_secs(1);
    while world.settle() || world.advance_until(end) {}
    assert_eq!(world.ends[1].read_datagram(), Some(Bytes::new()));
    assert_eq!(world.ends[1].read_datagram(), None);
    assert_eq!(world.ends[1].read(9), None);
}
