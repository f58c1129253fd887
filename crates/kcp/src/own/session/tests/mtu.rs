//! Paths that drop long packets silently.

use super::*;

fn searching() -> Config {
    Config { datagram: 1_200, datagram_most: 1_472, ..config() }
}

/// Transfers `length` bytes, and changes the MTU of the path after `change`.
fn run(
    world: &mut World,
    length: usize,
    (change, carried): (Duration, usize),
    most: Duration,
) -> Duration {
    let mut transfer = Transfer::new(length);
    let change = world.start + change;
    loop {
        let now = world.now;
        if now >= change {
            world.carried = carried;
        }
        let [from, to] = &mut world.ends;
        if transfer.step(now, from, to) {
            return world.elapsed();
        }
        if !world.settle() {
            let end = if now < change { change } else { now + Duration::from_secs(100) };
            world.advance_until(end);
        }
        assert!(world.elapsed() < most, "{} bytes, {:?}", transfer.read, world.ends[0].counters());
    }
}

#[test]
fn the_size_grows_to_what_the_path_carries_and_probes_are_no_losses() {
    for (carried, least) in [(1_472, 1_472), (1_252, 1_233), (1_200, 1_200), (1_400, 1_381)] {
        let mut weather = path(50, 30, 0.0);
        weather.queue *= 20;
        let mut world = World::new([searching(), searching()], &weather, 1);
        world.carried = carried;
        run(&mut world, 4_000_000, (Duration::ZERO, carried), Duration::from_secs(5));
        let size = usize::from(world.ends[0].datagram());
        assert!((least..=carried).contains(&size), "{size} of {carried}");
        let counters = *world.ends[0].counters();
        assert_eq!((counters.lost, counters.repeated_out), (0, 0), "{counters:?}");
        assert!(world.ends[0].loss() < 0.002, "{}", world.ends[0].loss());
        // Segments that are cut later have the size of the largest packets.
        let before = counters.packet_bytes_out;
        let packets = counters.packets_out;
        world.ends[0].write(world.now, &mut Bytes::from(vec![1; 1_000_000]));
        let end = world.now + Duration::from_secs(2);
        while world.settle() || world.advance_until(end) {}
        let counters = world.ends[0].counters();
        let mean = (counters.packet_bytes_out - before) / (counters.packets_out - packets);
        assert!(mean as usize >= size * 98 / 100, "{mean} of {size}");
        assert_eq!(world.ends[0].timeout(), None, "an idle session searches nothing");
    }
}

#[test]
fn a_search_survives_loss_and_finds_a_size_that_passes() {
    for seed in 0..20 {
        let mut world = World::new([searching(), searching()], &path(50, 30, 0.2), seed);
        world.carried = 1_300;
        run(&mut world, 1_000_000, (Duration::ZERO, 1_300), Duration::from_secs(30));
        let size = world.ends[0].datagram();
        assert!((1_200..=1_300).contains(&size), "{size}");
    }
}

#[test]
fn a_transfer_goes_on_when_the_path_carries_less_in_its_middle() {
    for loss in [0.0, 0.05, 0.2] {
        for seed in 0..3 {
            let mut world = World::new([searching(), searching()], &path(20, 50, loss), seed);
            let (change, carried) = (MS * 1_500, 1_252);
            let took = run(&mut world, 8_000_000, (change, carried), Duration::from_secs(20));
            let counters = world.ends[0].counters();
            assert!(counters.black_holes == 1 && counters.parts_out > 0, "{counters:?}");
            assert!(world.ends[0].datagram() <= 1_252);
            // 8 MB are 3.2 s of the link.
            let most = Duration::from_secs_f64(3.2 / (1.0 - loss) * 1.5 + 2.0);
            assert!(took <= most, "{took:?} of {most:?}");
        }
    }
}

#[test]
fn sparse_requests_and_messages_survive_a_path_that_shrinks() {
    for seed in 0..10 {
        let mut config = searching();
        config.stream = seed % 2 == 0;
        let mut world = World::new([config.clone(), config], &path(20, 50, 0.02), seed);
        let mut read = 0;
        for n in 0..200 {
            if n == 100 {
                assert_eq!(world.ends[0].datagram(), 1_472);
                world.carried = 1_252;
            }
            assert!(world.ends[0].send(world.now, vec![n; 4_000].into()));
            let end = world.now + MS * 100;
            while world.settle() || world.advance_until(end) {}
            let both = std::iter::from_fn(|| world.ends[1].read(usize::MAX));
            read += both.map(|bytes| bytes.len()).sum::<usize>();
        }
        let end = world.now + Duration::from_secs(10);
        while world.settle() || world.advance_until(end) {}
        while let Some(bytes) = world.ends[1].read(usize::MAX) {
            read += bytes.len();
        }
        assert_eq!(read, 200 * 4_000, "{:?}", world.ends[0].counters());
        assert!(world.ends.iter().all(Session::is_flushed), "{:?}", world.ends[0].counters());
        assert!(world.ends[0].datagram() <= 1_252 && world.ends[0].counters().black_holes == 1);
    }
}

#[test]
fn loss_by_chance_is_no_black_hole() {
    let mut world = World::new([searching(), searching()], &path(50, 30, 0.2), 3);
    run(&mut world, 12_000_000, (Duration::ZERO, usize::MAX), Duration::from_secs(30));
    assert_eq!(world.ends[0].datagram(), 1_472);
    assert_eq!(world.ends[0].counters().black_holes, 0);
}

#[test]
fn another_path_begins_with_the_least_size() {
    let mut world = World::new([searching(), searching()], &path(20, 50, 0.0), 1);
    run(&mut world, 1_000_000, (Duration::ZERO, usize::MAX), Duration::from_secs(9));
    assert_eq!(world.ends[0].datagram(), 1_472);
    world.ends[0].write(world.now, &mut Bytes::from(vec![9; 100_000]));
    world.settle();
    world.carried = 1_200;
    let now = world.now;
    world.replace_paths(&path(20, 50, 0.0));
    world.ends[0].path_changed(now);
    assert_eq!(world.ends[0].datagram(), 1_200);
    let end = now + Duration::from_secs(3);
    while world.settle() || world.advance_until(end) {}
    assert!(world.ends[0].is_flushed(), "{:?}", world.ends[0].counters());
}
