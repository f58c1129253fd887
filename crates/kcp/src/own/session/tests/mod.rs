//! Two sessions with an emulated path between them, in virtual time.

mod datagrams;
mod life;
mod mtu;
mod world;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::Control;
use crate::own::fec::Protection;
use crate::own::wire::PacketKind;
use testkit::transfer::{Transfer, path, transfer};
use world::{DATAGRAM, HEADS, World, config};

const MS: Duration = Duration::from_millis(1);

#[test]
fn all_bytes_arrive_over_a_clean_path_and_then_there_is_silence() {
    let mut world = World::new([config(), config()], &path(100, 100, 0.0), 1);
    transfer(&mut world, 2_000_000);
    let end = world.now + Duration::from_secs(100);
    while world.settle() || world.advance_until(end) {}
    for end in &world.ends {
        assert!(end.is_flushed());
        assert_eq!(end.active, None, "it is at rest");
        assert_eq!(end.timeout(), None, "an idle session has no timer");
        assert_eq!(end.in_flight(), 0);
    }
    let counters = world.ends[0].counters();
    assert_eq!(counters.bytes_out, 2_000_000);
    assert_eq!(world.ends[1].counters().bytes_in, 2_000_000);
    assert_eq!(counters.spurious, 0, "{counters:?}");
}

#[test]
fn bytes_are_exact_under_loss_reordering_and_duplicates() {
    let seeds = if cfg!(debug_assertions) { 200 } else { 10_000 };
    let protections = [
        Protection::Adaptive { most: 32 },
        Protection::Fixed { data: 10, parity: 3 },
        Protection::Off,
        Protection::Fixed { data: 1, parity: 1 },
    ];
    for seed in 0..seeds {
        let mut weather = path(50, 20, (seed % 5) as f64 / 15.0);
        weather.jitter = MS * u32::try_from(seed % 7).unwrap();
        weather.reorder = (seed % 3) as f64 / 10.0;
        weather.duplicate = (seed % 4) as f64 / 20.0;
        let mut config = config();
        config.protection = protections[usize::try_from(seed / 60 % 4).unwrap()];
        let mut world = World::new([config.clone(), config], &weather, seed);
        transfer(&mut world, 60_000);
    }
}

#[test]
fn both_directions_flow_whoever_is_in_control_and_however_small_the_memory() {
    for control in [Control::Bbr, Control::Classic, Control::Fixed(3_000_000), Control::Open] {
        for loss in [0.0, 0.05, 0.2] {
            let mut config = config();
            config.control = control;
            config.send_window = 256;
            config.receive_window = 256;
            config.decode_memory = 20_000;
            let mut world = World::new([config.clone(), config], &path(30, 30, loss), 2);
            let (mut there, mut back) = (Transfer::new(300_000), Transfer::new(300_000));
            loop {
                let [a, b] = &mut world.ends;
                let is_there = there.step(world.now, a, b);
                let is_back = back.step(world.now, b, a);
                if is_there && is_back {
                    break;
                }
                if !world.settle() {
                    let end = world.now + Duration::from_secs(60);
                    assert!(world.advance_until(end), "everything stands still");
                }
                assert!(world.elapsed() < Duration::from_secs(60), "{control:?} {loss}");
            }
        }
    }
}

#[test]
fn messages_keep_their_boundaries() {
    let mut config = config();
    config.stream = false;
    let mut world = World::new([config.clone(), config], &path(30, 30, 0.1), 5);
    let message = |n: usize| -> Bytes { vec![n.to_le_bytes()[0]; 1 + n * 97 % 5_000].into() };
    for n in 0..300 {
        assert!(world.ends[0].send(world.now, message(n)));
    }
    let end = world.now + Duration::from_secs(20);
    while world.settle() || world.advance_until(end) {}
    for n in 0..300 {
        assert_eq!(world.ends[1].read(1), Some(message(n)), "{n}");
    }
}

#[test]
fn a_packet_is_taken_once_and_a_changed_one_never() {
    let mut world = World::new([config(), config()], &path(100, 100, 0.0), 1);
    world.ends[0].write(world.now, &mut Bytes::from_static(b"hello"));
    let mut packet = Vec::new();
    world.ends[0].poll_transmit(world.now, &mut packet).unwrap();
    let mut changed = packet.clone();
    changed[20] ^= 1;
    world.ends[1].handle_datagram(world.now, &mut changed, false);
    for _ in 0..2 {
        world.ends[1].handle_datagram(world.now, &mut packet.clone(), false);
    }
    assert_eq!(world.ends[1].read(9), Some(Bytes::from_static(b"hello")));
    let counters = world.ends[1].counters();
    assert_eq!((counters.refused, counters.replayed, counters.packets_in), (1, 1, 1));
}

/// The results on a path with a queue of one second, with or without marks: the used share of the
/// link, the longest queue in ms, and the sender.
fn marked(control: Control, marks: bool) -> (f64, u64, Counters) {
    let mut config = config();
    config.control = control;
    let mut weather = path(20, 50, 0.0);
    weather.queue = 2_500_000;
    let mut world = World::new([config.clone(), config], &weather, 1);
    world.marks_above = marks.then_some(2_500 * 10);
    let mut transfer = Transfer::new(usize::MAX / 2);
    let (begin, end) = (world.now + MS * 4_000, world.now + MS * 10_000);
    let (mut early, mut most) = (None, 0);
    while world.now < end {
        let [from, to] = &mut world.ends;
        transfer.step(world.now, from, to);
        if world.now >= begin {
            early.get_or_insert(transfer.read);
            most = most.max(world.paths[0].backlog(world.now) / 2_500);
        }
        if !world.settle() {
            world.advance_until(end);
        }
    }
    let counters = *world.ends[0].counters();
    let marked = world.ends[1].counters().congested_in;
    assert!(counters.congested_out <= marked && counters.congested_out * 10 >= marked * 9);
    let share = (transfer.read - early.unwrap()) as f64 / (2_500_000 * 6) as f64;
    (share, most as u64, counters)
}

#[test]
fn marks_of_congestion_slow_a_sender_without_a_loss() {
    let (open, before, none) = marked(Control::Classic, false);
    assert_eq!((none.congested_out, none.lost > 0 || before > 300), (0, true), "{before} ms");
    let (share, queue, counters) = marked(Control::Classic, true);
    println!("classic: {open:.3} of the link and {before} ms, marked {share:.3} and {queue} ms");
    assert!(counters.congested_out > 0 && counters.lost == 0, "{counters:?}");
    assert!(queue < 100 && share > 0.7, "{queue} ms, {share}");
    let (open, before, _) = marked(Control::Bbr, false);
    let (share, queue, counters) = marked(Control::Bbr, true);
    println!("bbr: {open:.3} of the link and {before} ms, marked {share:.3} and {queue} ms");
    assert!(counters.congested_out > 0 && queue <= before && share > 0.85, "{queue} ms, {share}");
}

#[test]
fn packets_of_the_other_kind_are_refused() {
    let mut bootstrap = config();
    bootstrap.kind = PacketKind::Bootstrap;
    let mut world = World::new([bootstrap, config()], &path(100, 100, 0.0), 1);
    for n in 0..2 {
        world.ends[n].write(world.now, &mut Bytes::from_static(b"hello"));
        let mut packet = Vec::new();
        world.ends[n].poll_transmit(world.now, &mut packet).unwrap();
        world.ends[1 - n].handle_datagram(world.now, &mut packet, false);
        assert_eq!(world.ends[1 - n].counters().refused, 1);
        assert_eq!(world.ends[1 - n].read(9), None);
    }
}

#[test]
fn a_silent_peer_is_dead_after_a_while() {
    let mut world = World::new([config(), config()], &path(100, 100, 1.0), 1);
    world.ends[0].write(world.now, &mut Bytes::from_static(b"hello"));
    let end = world.now + Duration::from_secs(31);
    while world.now < end && !world.ends[0].is_dead(world.now) {
        if !world.settle() {
            world.advance_until(end);
        }
    }
    assert!(
        world.elapsed() >= Duration::from_secs(30) && world.elapsed() < Duration::from_secs(31)
    );
    assert!(world.ends[0].counters().probes < 20);
    let far = world.now + Duration::from_secs(60);
    while world.settle() || world.advance_until(far) {}
    assert_eq!(world.ends[0].timeout(), None, "nobody is asked for ever");
}

/// The results of a bulk transfer.
struct Bulk {
    /// The used share of the link over the whole time, and from the third second on.
    all: f64,
    steady: f64,
    /// Bytes on the wire per byte that arrived, minus the headers of the same number of full
    /// packets.
    cost: f64,
}

fn bulk(loss: f64, seconds: u64, seed: u64) -> Bulk {
    let mut world = World::new([config(), config()], &path(100, 100, loss), seed);
    let mut transfer = Transfer::new(usize::MAX / 2);
    let (warm, end) = (world.now + 2_000 * MS, world.now + Duration::from_secs(seconds));
    let mut early = None;
    while world.now < end {
        let [from, to] = &mut world.ends;
        transfer.step(world.now, from, to);
        if world.now >= warm && early.is_none() {
            early = Some(transfer.read);
        }
        if !world.settle() {
            world.advance_until(end);
        }
    }
    let counters = *world.ends[0].counters();
    let share = |bytes: usize, seconds: u64| bytes as f64 / (12_500_000 * seconds) as f64;
    let sent = counters.packet_bytes_out + counters.packets_out * HEADS as u64;
    let payload = config().payload(16) as f64;
    assert_eq!(config().payload(16), 1_427, "as the documentation tells");
    let heads = f64::from(DATAGRAM) + HEADS as f64;
    println!("{loss}: {counters:?} loss {:.4}", world.ends[0].loss());
    Bulk {
        all: share(transfer.read, seconds),
        steady: share(transfer.read - early.unwrap_or(0), seconds - 2),
        cost: sent as f64 / transfer.read as f64 * payload / heads,
    }
}

#[test]
fn a_long_path_is_filled_whatever_is_lost_and_little_is_sent_for_it() {
    let seconds = if cfg!(debug_assertions) { 6 } else { 12 };
    for (loss, least) in [(0.0, 0.91), (0.01, 0.90), (0.05, 0.87), (0.1, 0.80), (0.2, 0.65)] {
        let Bulk { all, steady, cost } = bulk(loss, seconds, 3);
        println!("loss {loss}: {all:.3} of the link, {steady:.3} steadily, {cost:.3} per byte");
        assert!(steady >= least, "{loss}: {steady}");
        assert!(cost <= 1.0 + loss / (1.0 - loss) + 0.15, "{loss}: {cost}");
    }
}

/// Sends requests of 1,024 bytes at fixed times, which are answered with as many bytes. Returns the
/// time of each request, and the number of sent bytes.
fn requests(loss: f64, count: u32, protection: Protection, seed: u64) -> (Vec<Duration>, World) {
    const LENGTH: usize = 1_024;
    let mut config = config();
    config.protection = protection;
    let mut world = World::new([config.clone(), config], &path(100, 100, loss), seed);
    let mut asked = VecDeque::new();
    let mut took = Vec::new();
    let (mut there, mut back) = (0, 0);
    let mut next = world.now;
    let mut left = count;
    loop {
        if left > 0 && world.now >= next {
            left -= 1;
            next += 50 * MS;
            asked.push_back(world.now);
            world.ends[0].write(world.now, &mut Bytes::from(vec![1; LENGTH]));
        }
        while let Some(bytes) = world.ends[1].read(usize::MAX) {
            there += bytes.len();
        }
        while there >= LENGTH {
            there -= LENGTH;
            world.ends[1].write(world.now, &mut Bytes::from(vec![2; LENGTH]));
        }
        while let Some(bytes) = world.ends[0].read(usize::MAX) {
            back += bytes.len();
        }
        while back >= LENGTH {
            back -= LENGTH;
            took.push(world.now - asked.pop_front().unwrap());
        }
        if took.len() == count as usize {
            return (took, world);
        }
        if !world.settle() {
            let end = if left > 0 { next } else { world.now + Duration::from_secs(5) };
            world.advance_until(end);
        }
    }
}

#[test]
fn sparse_requests_over_a_lossy_path_are_answered_in_time_and_within_the_budget() {
    let count = if cfg!(debug_assertions) { 6_000 } else { 10_000 };
    let mut took = Vec::new();
    // A run has about a hundred late requests, which are too few for a steady p99.
    for seed in 0..3 {
        let (these, world) = requests(0.1, count, Protection::Adaptive { most: 32 }, seed);
        took.extend(these);
        let counters = world.ends[0].counters();
        let seconds = world.elapsed().as_secs_f64();
        let rate = counters.parity_bytes_out as f64 / seconds;
        // The limit is the budget and the additional parity of any traffic. The estimate of the
        // loss varies.
        let data = counters.bytes_out as f64 / seconds / 1_024.0 * (1_024 + 42) as f64;
        let most = 16_000.0 + data * (0.1 / 0.9 + 0.15) * 1.05;
        assert!(rate <= most, "{rate} of {most}");
    }
    took.sort();
    let at = |share: f64| took[(took.len() as f64 * share) as usize];
    println!("p50 {:?} p90 {:?} p99 {:?} p999 {:?}", at(0.5), at(0.9), at(0.99), at(0.999));
    assert!(at(0.99) <= 200 * MS, "{:?}", at(0.99));
}

#[test]
fn sparse_traffic_over_a_clean_path_is_left_alone_soon() {
    let (_, world) = requests(0.0, 1_000, Protection::Adaptive { most: 32 }, 1);
    let counters = world.ends[0].counters();
    let seconds = world.elapsed().as_secs_f64();
    assert!(counters.parity_bytes_out as f64 / seconds <= 16_000.0, "{counters:?}");
    let (before, _) = (counters.parity_out, ());
    assert!(before <= 700, "the path is known to be clean after {before}");
    assert_eq!(counters.repeated_out, 0);
}

#[test]
fn a_fast_path_holds_shards_for_repair_and_no_longer() {
    for (loss, megabytes) in [(0.0, 1), (0.01, 3)] {
        let mut world = World::new([config(), config()], &path(500, 100, loss), 3);
        let mut transfer = Transfer::new(usize::MAX / 2);
        let end = world.now + MS * 2_000;
        let mut most = 0;
        while world.now < end {
            let [from, to] = &mut world.ends;
            transfer.step(world.now, from, to);
            most = most.max(world.ends[1].decoder.held());
            if !world.settle() {
                world.advance_until(end);
            }
        }
        println!("{loss}: {most} bytes");
        assert!(most <= megabytes << 20, "{loss}: {most}");
        assert_eq!(world.ends[0].counters().overdue, 0);
    }
}

/// One system call sends datagrams of one length (UDP GSO).
#[test]
fn full_packets_of_a_group_are_as_long_as_its_parity() {
    let mut config = config();
    config.control = Control::Open;
    config.protection = Protection::Fixed { data: 10, parity: 3 };
    let mut world = World::new([config.clone(), config], &path(1_000, 2, 0.0), 1);
    let now = world.now;
    let payload = world.ends[0].config.payload(16);
    let mut bytes = Bytes::from(vec![7; payload * 40]);
    assert_eq!(world.ends[0].write(now, &mut bytes), payload * 40);
    let mut out = Vec::new();
    let transmits = std::iter::from_fn(|| world.ends[0].poll_transmit(now, &mut out));
    let lengths: Vec<_> = transmits.map(|sent| sent.length).collect();
    assert_eq!(lengths, [usize::from(DATAGRAM); 52], "40 of data and 12 of parity");
}
