mod world;

use std::time::Duration;

use super::*;
use testkit::transfer::{Transfer, path, transfer};
use world::{World, config, steady};

const MB: usize = 1_000_000;

/// The throughput of `length` bytes as a share of the link's rate.
fn share(took: Duration, length: usize, megabits: u64) -> f64 {
    length as f64 * 8.0 / took.as_secs_f64() / (megabits as f64 * 1e6)
}

#[test]
fn all_bytes_arrive_over_a_clean_path_and_then_there_is_silence() {
    let mut world = World::new([config(), config()], &path(100, 100, 0.0), 1);
    let took = transfer(&mut world, 20 * MB);
    while world.settle() || world.advance() {}
    for end in &world.ends {
        assert!(end.is_flushed());
        assert_eq!(end.timeout(), None, "an idle engine has no timer");
        assert_eq!(end.in_flight(), 0);
    }
    let counters = *world.ends[0].counters();
    assert_eq!(counters.bytes_out, 20 * MB as u64);
    assert!(counters.repeated_out < 600, "{counters:?}");
    assert!(share(took, 20 * MB, 100) > 0.55, "{took:?}");
}

#[test]
fn loss_is_repaired_in_both_directions_whoever_is_in_control() {
    for control in [Control::Bbr, Control::Classic, Control::Fixed(12_000_000), Control::Open] {
        for loss in [0.01, 0.05, 0.2] {
            let mut config = config();
            config.control = control;
            config.send_window = 1024;
            let mut world = World::new([config.clone(), config], &path(100, 30, loss), 2);
            let (mut there, mut back) = (Transfer::new(MB), Transfer::new(MB));
            loop {
                let [a, b] = &mut world.ends;
                let is_there = there.step(world.now, a, b);
                let is_back = back.step(world.now, b, a);
                if is_there && is_back {
                    break;
                }
                if !world.settle() {
                    assert!(world.advance());
                }
                assert!(world.elapsed() < Duration::from_secs(300), "{control:?} {loss}");
            }
        }
    }
}

#[test]
fn bytes_are_exact_under_loss_reordering_and_duplicates() {
    let seeds = if cfg!(debug_assertions) { 200 } else { 10_000 };
    for seed in 0..seeds {
        let mut weather = path(50, 20, (seed % 5) as f64 / 20.0);
        weather.jitter = Duration::from_millis(seed % 7);
        weather.reorder = (seed % 3) as f64 / 10.0;
        weather.duplicate = (seed % 4) as f64 / 20.0;
        let mut world = World::new([config(), config()], &weather, seed);
        transfer(&mut world, 60_000);
    }
}

/// The share of the link that an endless transfer uses after its start. A transfer with an end
/// waits one round trip for its first byte, and several round trips for the repair of its last
/// bytes.
#[test]
fn a_long_path_is_filled_whatever_is_lost() {
    for (loss, least) in [(0.0, 0.92), (0.01, 0.9), (0.05, 0.84), (0.1, 0.78), (0.2, 0.66)] {
        let mut world = World::new([config(), config()], &path(100, 100, loss), 3);
        let shares = steady(&mut world, 20 * MB, 100 * MB);
        let share = share(shares, 100 * MB, 100);
        let counters = world.ends[0].counters();
        println!("{loss}: {share:.3} of the link, {counters:?}");
        assert!(share > least, "{loss}: {share}");
        assert!(counters.spurious * 100 < counters.lost, "{counters:?}");
    }
}

#[test]
fn a_dead_peer_costs_nothing_and_comes_back() {
    let mut world = World::new([config(), config()], &path(100, 20, 1.0), 4);
    world.ends[0].write(world.now, &mut Bytes::from_static(b"anybody?"));
    while world.settle() || world.advance() {
        assert!(world.elapsed() < Duration::from_secs(60), "nobody is asked for ever");
    }
    assert!(world.ends[0].is_dead(world.now));
    let sent = world.ends[0].counters().datagrams_out;
    assert!(world.ends[0].poll_transmit(world.now, &mut Vec::new()).is_none());
    // The peer sends again, and the waiting bytes arrive.
    world.paths = World::new([config(), config()], &path(100, 20, 0.0), 4).paths;
    world.ends[1].write(world.now, &mut Bytes::from_static(b"here"));
    while world.settle() || world.advance() {}
    assert_eq!(world.ends[0].read(9), Some(Bytes::from_static(b"here")));
    assert_eq!(world.ends[1].read(9), Some(Bytes::from_static(b"anybody?")));
    assert!(!world.ends[0].is_dead(world.now));
    assert!(world.ends[0].counters().datagrams_out > sent);
}
