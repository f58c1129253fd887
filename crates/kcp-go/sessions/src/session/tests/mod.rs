mod stock;
mod world;

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::engine::Control;
use testkit::pair::epoch;
use testkit::transfer::{Transfer, path, transfer};
use world::{MTU, World, config, ratio};

const MB: usize = 1_000_000;

/// The FEC of the tests.
const RATIOS: [Option<(usize, usize)>; 3] = [None, Some((10, 3)), Some((3, 2))];

#[test]
fn bytes_are_exact_with_and_without_fec_at_any_loss() {
    for shards in RATIOS {
        for (adaptive, budget, nonces) in [(false, None, None), (true, Some(1.0), Some(0))] {
            for loss in [0.0, 0.05, 0.2] {
                let encode = ratio(shards);
                let config = Config { encode, adaptive, budget, nonces, ..config() };
                let mut weather = path(100, 40, loss);
                weather.reorder = 0.02;
                weather.duplicate = 0.02;
                let mut world = World::new([config.clone(), config], &weather, 1);
                transfer(&mut world, MB);
                world.check_counters();
                let rebuilt = world.ends[1].counters().fec.rebuilt;
                assert!(rebuilt > 0 || shards.is_none() || loss == 0.0, "{shards:?} {loss}");
            }
        }
    }
}

#[test]
fn seeds_of_loss_reordering_and_duplicates_leave_bytes_exact() {
    for seed in 0..150_u64 {
        let mut weather = path(50, 20, (seed % 5) as f64 / 20.0);
        weather.jitter = Duration::from_millis(seed % 7);
        weather.reorder = (seed % 3) as f64 / 10.0;
        weather.duplicate = (seed % 4) as f64 / 20.0;
        let shards = RATIOS[usize::try_from(seed % 3).unwrap()];
        // Each direction has its own FEC.
        let there = Config { encode: ratio(shards), ..config() };
        let back = Config { encode: ratio(RATIOS[1]), adaptive: false, ..config() };
        let mut world = World::new([there, back], &weather, seed);
        let (mut one, mut two) = (Transfer::new(60_000), Transfer::new(40_000));
        loop {
            let [a, b] = &mut world.ends;
            let is_there = one.step(world.now, a, b);
            if two.step(world.now, b, a) && is_there {
                break;
            }
            assert!(world.settle() || world.advance(), "{seed}");
            assert!(world.elapsed() < Duration::from_secs(300), "{seed}");
        }
        world.check_counters();
    }
}

#[test]
fn fec_changes_at_run_time_and_the_peer_finds_the_ratio() {
    for (seed, loss) in (0..12).zip([0.01, 0.05, 0.2].into_iter().cycle()) {
        let config = Config { adaptive: false, budget: None, reserve: true, ..config() };
        let weather = path(100, 20, loss);
        let mut world = World::new([config.clone(), config], &weather, seed);
        for shards in [Some((10, 3)), None, Some((3, 2)), Some((20, 4)), Some((1, 1))] {
            let now = world.now;
            assert!(world.ends[0].set_encode(now, ratio(shards)));
            let before = world.ends[1].counters().fec;
            transfer(&mut world, 3 * MB);
            let after = world.ends[1].counters().fec;
            // At 20 % loss a gapless run of 26 shards is rare.
            if shards.is_some() && loss < 0.2 {
                assert!(after.rebuilt > before.rebuilt, "{shards:?}: {after:?}");
                let decoder = world.ends[1].decoder.as_ref().unwrap();
                assert_eq!(Some(decoder.ratio()), ratio(shards));
            }
        }
        world.check_counters();
    }
    let mut without = World::new([config(), config()], &path(100, 20, 0.0), 3);
    let now = without.now;
    assert!(!without.ends[0].set_encode(now, ratio(RATIOS[1])), "there is no room");
}

#[test]
fn fec_that_changes_again_at_once_rebuilds_no_garbage() {
    // If the datagrams that show the change to the peer are lost, the peer uses the former ratio.
    for seed in 0..200 {
        let config = Config { encode: ratio(Some((1, 3))), reserve: true, ..config() };
        let config = Config { decode: config.encode, adaptive: false, budget: None, ..config };
        let mut world = World::new([config.clone(), config], &path(100, 20, 0.3), seed);
        for _ in 0..2 {
            let now = world.now;
            assert!(world.ends[0].set_encode(now, ratio(Some((3, 3)))));
        }
        transfer(&mut world, 15_000);
        assert_eq!(world.ends[1].counters().engine.malformed, 0, "{seed}");
    }
}

#[test]
fn parity_follows_the_loss() {
    let sent = |loss, seed| {
        let config = Config { encode: ratio(RATIOS[1]), ..config() };
        let mut world = World::new([config.clone(), config], &path(50, 40, loss), seed);
        transfer(&mut world, 10 * MB);
        let before = world.ends[0].counters();
        transfer(&mut world, 20 * MB);
        let after = world.ends[0].counters();
        let data = after.engine.datagrams_out - before.engine.datagrams_out;
        (after.parity_out - before.parity_out) as f64 / data as f64
    };
    let shares = [0.0, 0.03, 0.1].map(|loss| sent(loss, 4));
    println!("{shares:?}");
    assert!(shares[0] < 0.02, "{shares:?}");
    assert!(shares[1] > 0.06 && shares[1] < 0.22, "{shares:?}");
    assert!(shares[2] > 0.15, "{shares:?}");
}

#[test]
fn a_lone_request_is_protected_within_the_budget_of_fillers() {
    let config = Config { encode: ratio(RATIOS[1]), ..config() };
    let mut world = World::new([config.clone(), config], &path(100, 100, 0.1), 5);
    transfer(&mut world, 50_000);
    let begin = world.now;
    let before = world.ends[0].counters();
    for n in 0..200_u32 {
        let mut bytes = Bytes::from(vec![1; 1000]);
        let now = world.now;
        world.ends[0].write(now, &mut bytes);
        let at = begin + Duration::from_millis(50) * (n + 1);
        world.run(at - now, |world| while world.ends[1].read(usize::MAX).is_some() {});
    }
    let after = world.ends[0].counters();
    let took = (world.now - begin).as_secs_f64();
    assert!(after.fillers_out > before.fillers_out, "{after:?}");
    assert!(world.ends[1].counters().fec.rebuilt > 5, "{:?}", world.ends[1].counters());
    let fillers = (after.fillers_out - before.fillers_out) * (12 + 28);
    let added = fillers + after.parity_bytes_out - before.parity_bytes_out;
    assert!((added as f64) < 16_000.0 * (took + 1.0), "{added} bytes in {took} s");
}

#[test]
fn a_long_path_is_filled_with_and_without_fec() {
    for (loss, least) in [(0.0, [0.92, 0.92]), (0.05, [0.84, 0.74]), (0.2, [0.65, 0.58])] {
        for (shards, least) in RATIOS.into_iter().zip(least) {
            let encode = ratio(shards);
            let mut config = Config { encode, decode: encode, ..config() };
            config.engine.send_window = 8_192;
            config.engine.receive_window = 8_192;
            let mut world = World::new([config.clone(), config], &path(100, 100, loss), 3);
            let mut moved = Transfer::new(200 * MB);
            let mut before = 0;
            for seconds in [4, 4] {
                before = moved.read;
                world.run(Duration::from_secs(seconds), |world| {
                    let [from, to] = &mut world.ends;
                    moved.step(world.now, from, to);
                });
            }
            let share = (moved.read - before) as f64 / 50e6;
            let counters = world.ends[0].counters();
            println!("{loss} {shards:?}: {share:.3} of the link, {counters:?}");
            assert!(share > least, "{loss} {shards:?}: {share}");
        }
    }
}

/// Requests and answers of 1,000 bytes, 20 times a second, at 10 % loss.
#[test]
fn requests_are_answered_soon_at_loss() {
    let late = |shards| {
        let config = Config { encode: ratio(shards), ..config() };
        let mut world = World::new([config.clone(), config], &path(100, 100, 0.1), 15);
        transfer(&mut world, MB);
        let mut took = Vec::new();
        for _ in 0..1000 {
            let begin = world.now;
            let mut request = Bytes::from(vec![1; 1000]);
            world.ends[0].write(begin, &mut request);
            let (mut asked, mut answered) = (0, None);
            world.run(Duration::from_millis(50), |world| step(world, &mut asked, &mut answered));
            while answered.is_none() {
                step(&mut world, &mut asked, &mut answered);
                assert!(world.settle() || world.advance());
            }
            took.push(answered.unwrap() - begin);
        }
        took.sort();
        println!("{shards:?}: {:?} {:?} {:?}", took[500], took[990], took[999]);
        took[990]
    };
    let (with, without) = (late(RATIOS[1]), late(None));
    assert!(with < without, "{with:?} {without:?}");
}

/// The second end answers once a request is complete.
fn step(world: &mut World, asked: &mut usize, answered: &mut Option<Instant>) {
    let now = world.now;
    while let Some(bytes) = world.ends[1].read(usize::MAX) {
        *asked += bytes.len();
        if *asked == 1000 {
            world.ends[1].write(now, &mut Bytes::from(vec![2; 1000]));
        }
    }
    while let Some(bytes) = world.ends[0].read(usize::MAX) {
        if bytes.len() == 1000 {
            *answered = Some(now);
        }
    }
}

#[test]
fn the_rate_limit_holds_on_the_wire() {
    for (shards, loss, rate) in
        [(None, 0.0, 1_000_000), (RATIOS[1], 0.0, 1_000_000), (RATIOS[2], 0.1, 300_000)]
    {
        let mut sender = Config { encode: ratio(shards), rate: Some(rate), ..config() };
        sender.adaptive = false;
        sender.budget = None;
        sender.engine.control = Control::Open;
        let mut world = World::new([sender, config()], &path(1000, 20, loss), 6);
        let mut transfer = Transfer::new(100 * MB);
        world.run(Duration::from_secs(12), |world| {
            let [from, to] = &mut world.ends;
            transfer.step(world.now, from, to);
        });
        // Measures ten seconds after the first two seconds.
        let begin = world.start + Duration::from_secs(2);
        let within = |at: Instant, time: Duration| {
            let sent = world.left.iter().filter(|(left, _)| *left >= at && *left < at + time);
            sent.map(|(_, length)| *length as u64).sum::<u64>()
        };
        let sent = within(begin, Duration::from_secs(10)) as f64 / 10.0;
        let share = sent / rate as f64;
        assert!((0.98..=1.02).contains(&share), "{shards:?} {loss}: {share}");
        let burst = rate as f64 * 0.004 + MTU as f64;
        for n in (0..2000).step_by(7) {
            let time = Duration::from_millis(5);
            let sent = within(begin + time * n, time) as f64;
            assert!(sent <= burst + rate as f64 * 0.005, "{sent} bytes at once");
        }
    }
}

#[test]
fn repairs_stay_within_the_budget_and_everything_arrives() {
    for (shards, loss, share) in
        [(RATIOS[2], 0.0, 0.1), (RATIOS[1], 0.2, 0.2), (None, 0.5, 0.1), (None, 0.2, 0.0)]
    {
        let mut sender = Config { encode: ratio(shards), budget: Some(share), ..config() };
        sender.adaptive = false;
        sender.fillers = 0;
        // Compares with the budget of a path that loses more than the budget repairs.
        sender.engine.send_window = 64;
        let mut world = World::new([sender, config()], &path(20, 10, loss), 7);
        transfer(&mut world, 300_000);
        let counters = world.ends[0].counters();
        let repairs = counters.engine.repeated_bytes_out + counters.parity_bytes_out;
        // The accumulated budget, and one datagram in each 10 ms.
        let granted = world.elapsed().as_secs_f64() * 100.0 * MTU as f64;
        let most = 64.0 * MTU as f64 + share * counters.bytes_out as f64 + granted;
        println!("{shards:?} {loss} {share}: {repairs} of {most} {counters:?}");
        assert!((repairs as f64) < most, "{repairs} {most} {counters:?}");
        assert!(shards != RATIOS[2] || counters.parity_dropped > 0, "{counters:?}");
    }
}

#[test]
fn an_idle_session_has_no_timer_and_little_memory() {
    let config = Config { encode: ratio(RATIOS[1]), rate: Some(2_000_000), ..config() };
    let mut world = World::new([config.clone(), config], &path(100, 20, 0.02), 8);
    transfer(&mut world, MB);
    world.finish();
    for end in &world.ends {
        assert!(end.is_flushed());
        assert_eq!(end.timeout(), None);
    }
    // The session becomes active again.
    transfer(&mut world, 10_000);
    world.check_counters();
}

#[test]
fn a_silent_peer_is_dead_after_a_while() {
    let mut world = World::new([config(), config()], &path(100, 20, 1.0), 9);
    let now = world.now;
    world.ends[0].write(now, &mut Bytes::from_static(b"anybody?"));
    while !world.ends[0].is_dead(world.now) {
        assert!(world.settle() || world.advance());
    }
    assert!((30..32).contains(&world.elapsed().as_secs()), "{:?}", world.elapsed());
    world.finish();
    assert_eq!(world.ends[0].timeout(), None);
    assert!(world.elapsed() < Duration::from_secs(60), "nobody is asked for ever");
}

#[test]
fn datagrams_out_of_band_travel_beside_the_stream() {
    let mut world = World::new([config(), config()], &path(100, 20, 0.0), 10);
    let room = world.ends[0].oob_room();
    let long = Bytes::from(vec![1; room + 1]);
    assert_eq!(world.ends[0].send_oob(long.clone()), Err(TooLong { length: room + 1, room }));
    assert_eq!(world.ends[0].send_oob(long.slice(1..)), Ok(()));
    assert_eq!(world.ends[0].send_oob(Bytes::new()), Ok(()));
    world.settle();
    world.run(Duration::from_millis(100), |_| ());
    assert_eq!(world.ends[1].read_oob(), Some(long.slice(1..)));
    assert_eq!(world.ends[1].read_oob(), Some(Bytes::new()));
    assert_eq!(world.ends[1].read_oob(), None);
    for n in 0..100_u8 {
        assert_eq!(world.ends[0].send_oob(Bytes::from(vec![n])), Ok(()));
    }
    assert_eq!(world.ends[0].counters().oob_dropped, 36);
    world.check_counters();
    assert_eq!(world.ends[1].counters().oob_in, 66);
    assert_eq!(world.ends[1].read_oob(), Some(Bytes::from_static(&[36])));
}

#[test]
fn what_is_sent_again_or_sent_back_is_dropped() {
    let mut world = World::new([config(), config()], &path(100, 20, 0.0), 11);
    let now = world.now;
    world.ends[0].write(now, &mut Bytes::from_static(b"once"));
    let mut datagram = Vec::new();
    let mut random = |bytes: &mut [u8]| bytes.fill(9);
    world.ends[0].poll_transmit(now, &mut random, &mut datagram).unwrap();
    for _ in 0..2 {
        world.ends[1].handle_datagram(now, &mut datagram.clone());
    }
    assert_eq!(world.ends[1].counters().replayed, 1);
    world.ends[0].handle_datagram(now, &mut datagram.clone());
    assert_eq!(world.ends[0].counters().replayed, 1);
    assert_eq!(world.ends[0].read(100), None, "its own bytes");
    datagram[20] ^= 1;
    world.ends[1].handle_datagram(now, &mut datagram);
    let counters = world.ends[1].counters();
    assert_eq!((counters.envelope.opened, counters.envelope.refused), (1, 1));
}

#[test]
fn a_segment_without_payload_is_nothing_to_a_reader() {
    use crate::wire::{Command, Head, Millis, Sn};
    for stream in [true, false] {
        let mut config = config();
        config.engine.stream = stream;
        let mut world = World::new([config.clone(), config], &path(100, 20, 0.0), 12);
        let now = world.now;
        for (sn, payload) in [(0, &b""[..]), (1, b"abc"), (2, b""), (3, b"def")] {
            let head = Head {
                conversation: Conversation(7),
                command: Command::Push,
                fragments: 0,
                window: 10,
                timestamp: Millis(0),
                sn: Sn(sn),
                una: Sn(0),
            };
            let length = u32::try_from(payload.len()).unwrap();
            let segment = [&head.encode(length)[..], payload].concat();
            world.ends[0].handle_opened(now, &segment);
        }
        let mut read = Vec::new();
        while let Some(bytes) = world.ends[0].read(3) {
            assert!(!bytes.is_empty());
            read.extend(bytes);
        }
        assert_eq!(read, b"abcdef");
    }
}

#[test]
fn no_datagram_breaks_a_session() {
    let mut rng = testkit::netem::Rng::new(13);
    let config = Config { encode: ratio(RATIOS[2]), ..config() };
    let mut session = Session::new(config, Arc::new(envelope::Null), epoch());
    let mut now = epoch();
    let mut out = Vec::new();
    for _ in 0..50_000 {
        let length = usize::try_from(rng.below(80)).unwrap();
        let mut datagram: Vec<u8> = (0..length).map(|_| rng.bits().to_le_bytes()[7]).collect();
        if length > 8 && rng.within(0.9) {
            let kind = [[7, 0, 0, 0, 81], [1, 0, 0, 0, 0xf1], [4, 0, 0, 0, 0xf2]];
            datagram[..5].copy_from_slice(&kind[usize::try_from(rng.below(3)).unwrap()]);
            datagram[5] = 0;
        }
        session.handle_datagram(now, &mut datagram);
        now += Duration::from_micros(rng.below(3000));
        session.handle_timeout(now);
        out.clear();
        while session.poll_transmit(now, &mut |_| (), &mut out).is_some() {}
        while session.read(1000).is_some() {}
    }
}

#[test]
fn messages_keep_their_boundaries() {
    let mut config = Config { encode: ratio(RATIOS[2]), ..config() };
    config.engine.stream = false;
    let mut world = World::new([config.clone(), config], &path(100, 20, 0.1), 14);
    let now = world.now;
    let messages: Vec<Bytes> =
        [1, 100, 5_000, 1, 20_000].iter().map(|length| Bytes::from(vec![7; *length])).collect();
    for message in &messages {
        assert!(world.ends[0].send(now, message.clone()));
    }
    world.finish();
    for message in messages {
        assert_eq!(world.ends[1].read(1), Some(message));
    }
}
