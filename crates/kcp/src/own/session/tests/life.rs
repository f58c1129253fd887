//! The end of a stream, of a session, and of a path.

use super::*;

/// Reads all bytes that have arrived, and returns their number.
fn drain(end: &mut Session) -> usize {
    std::iter::from_fn(|| end.read(usize::MAX)).map(|bytes| bytes.len()).sum()
}

#[test]
fn a_direction_ends_behind_its_last_byte_and_the_other_one_goes_on() {
    let seeds = if cfg!(debug_assertions) { 300 } else { 10_000 };
    for seed in 0..seeds {
        let mut weather = path(50, 20, (seed % 4) as f64 / 12.0);
        weather.reorder = (seed % 3) as f64 / 10.0;
        weather.duplicate = (seed % 2) as f64 / 20.0;
        let mut config = config();
        config.receive_window = 16;
        if seed % 5 == 0 {
            config.protection = Protection::Off;
        }
        let mut world = World::new([config.clone(), config], &weather, seed);
        let length = usize::try_from(seed * 7_919 % 40_000).unwrap();
        let mut left = Bytes::from(vec![1; length]);
        let (mut there, mut back) = (0, 0);
        let mut has_answered = false;
        while !(world.ends[0].is_finished() && world.ends[0].is_flushed()) {
            let now = world.now;
            world.ends[0].write(now, &mut left);
            if left.is_empty() {
                world.ends[0].finish(now);
                let mut more = Bytes::from_static(b"more");
                assert_eq!(world.ends[0].write(now, &mut more), 0);
                assert_eq!((world.ends[0].room(), world.ends[0].send(now, more)), (0, false));
            }
            let was_finished = world.ends[1].is_finished();
            there += drain(&mut world.ends[1]);
            assert!(!was_finished || there == length, "the end came before the last byte");
            if world.ends[1].is_finished() && !has_answered {
                has_answered = true;
                assert!(!world.ends[0].is_finished());
                world.ends[1].write(now, &mut Bytes::from(vec![2; 3_000]));
                world.ends[1].finish(now);
            }
            back += drain(&mut world.ends[0]);
            if !world.settle() {
                assert!(world.advance_until(now + Duration::from_secs(60)), "{seed} stands still");
            }
        }
        assert_eq!((there, back), (length, 3_000), "{seed}");
    }
}

#[test]
fn a_stranger_leaves_few_bytes_unread_whatever_its_window_is_until_its_limits_are_raised() {
    const UNREAD: usize = 16 << 10;
    for seed in 0..10 {
        let stranger =
            Config { receive_window: 32, decode_memory: 16 << 10, unread: UNREAD, ..config() };
        let loss = if seed % 2 == 0 { 0.0 } else { 0.1 };
        let mut world = World::new([config(), stranger], &path(50, 20, loss), seed);
        let mut left = Bytes::from(vec![1; 2_000_000]);
        let mut run = |world: &mut World, seconds: u64| {
            let until = world.now + Duration::from_secs(seconds);
            while world.now < until {
                let now = world.now;
                world.ends[0].write(now, &mut left);
                let is_stranger = world.ends[1].config.unread == UNREAD;
                if is_stranger {
                    let _ = world.ends[0].send_datagram(Bytes::from(vec![2; 1_000]));
                }
                let held = world.ends[1].incoming.unread(Sn(u32::MAX / 2));
                let is_bounded = held <= UNREAD && world.ends[1].datagrams_in.held() <= UNREAD / 8;
                assert!(is_bounded || !is_stranger, "{seed}: {held} bytes");
                if !world.settle() && !world.advance_until(until) {
                    world.now = until;
                }
            }
        };
        run(&mut world, 5);
        let before = world.ends[1].counters().bytes_in;
        assert!((1..=UNREAD as u64).contains(&before), "{seed}: {before} bytes");
        world.ends[1].raise_limits(512, 1 << 20);
        run(&mut world, 20);
        let after = world.ends[1].counters().bytes_in;
        assert!(after > 512 * 1_000, "{seed}: {before}, then {after} bytes");
    }
}

#[test]
fn a_stranger_leaves_little_unread_and_a_peer_with_raised_limits_as_much_as_the_window_holds() {
    for seed in 0..20 {
        let mut stranger = config();
        (stranger.receive_window, stranger.decode_memory) = (32, 64 << 10);
        stranger.protection = Protection::Fixed { data: 10, parity: 3 };
        let weather = path(50, 20, if seed % 2 == 0 { 0.0 } else { 0.1 });
        let mut world = World::new([config(), stranger], &weather, seed);
        let mut left = Bytes::from(vec![1; 2_000_000]);
        // The user at the other end does not read.
        let mut run = |world: &mut World, seconds: u64| {
            let until = world.now + Duration::from_secs(seconds);
            while world.now < until {
                let now = world.now;
                world.ends[0].write(now, &mut left);
                if !world.settle() && !world.advance_until(until) {
                    world.now = until;
                }
            }
        };
        run(&mut world, 10);
        let before = world.ends[1].counters().bytes_in;
        // In order, and behind a gap.
        assert!(before <= 2 * 32 * 1_472, "{before} bytes");
        assert!(world.ends[1].decoder.held() <= 64 << 10);
        world.ends[1].raise_limits(512, 1 << 20);
        run(&mut world, 20);
        let after = world.ends[1].counters().bytes_in;
        assert!(after > 512 * 1_000 && after <= 2 * 512 * 1_472, "{before}, then {after} bytes");
        // A smaller window than before has no effect.
        world.ends[1].raise_limits(1, 1);
        let read = drain(&mut world.ends[1]);
        run(&mut world, 10);
        assert!(world.ends[1].counters().bytes_in > after, "{read} bytes were read");
    }
}

#[test]
fn messages_end_as_well_and_an_end_alone_is_an_end() {
    let mut config = config();
    config.stream = false;
    let mut world = World::new([config.clone(), config], &path(50, 20, 0.0), 1);
    assert!(world.ends[0].send(world.now, Bytes::from_static(b"one")));
    for n in 0..2 {
        world.ends[n].finish(world.now);
        assert!(!world.ends[n].is_flushed());
    }
    let end = world.now + Duration::from_secs(1);
    while world.settle() || world.advance_until(end) {}
    assert!(world.ends[0].is_finished() && !world.ends[1].is_finished());
    assert_eq!(world.ends[1].read(9), Some(Bytes::from_static(b"one")));
    assert!(world.ends[1].is_finished());
    assert!(world.ends.iter().all(Session::is_flushed));
}

#[test]
fn a_challenge_leaves_alone_and_its_answer_goes_to_where_it_came_from() {
    let mut world = World::new([config(), config()], &path(50, 20, 0.0), 1);
    let now = world.now;
    world.ends[0].write(now, &mut Bytes::from_static(b"hello"));
    world.ends[0].challenge(*b"12345678");
    let mut packets = [Vec::new(), Vec::new()];
    let uses: Vec<_> = packets
        .iter_mut()
        .map(|packet| world.ends[0].poll_transmit(now, packet).unwrap().path)
        .collect();
    assert_eq!(uses, [PathUse::Other, PathUse::Current]);
    let [mut challenge, mut data] = packets;
    let again = &mut challenge.clone();
    let heard = world.ends[1].handle_datagram(now, &mut data, false).unwrap();
    assert_eq!(heard, Heard { is_newest: true, is_challenge: false, answered: None });
    let heard = world.ends[1].handle_datagram(now, &mut challenge, false).unwrap();
    assert_eq!(heard, Heard { is_newest: false, is_challenge: true, answered: None });
    assert_eq!(
        world.ends[1].handle_datagram(now, again, false),
        None,
        "a spoofed copy has no effect"
    );
    let mut answer = Vec::new();
    let sent = world.ends[1].poll_transmit(now, &mut answer).unwrap();
    assert_eq!((sent.path, sent.length), (PathUse::Reply, again.len()), "no answer is larger");
    let heard = world.ends[0].handle_datagram(now, &mut answer, false).unwrap();
    assert_eq!(heard.answered, Some(*b"12345678"));
    let mut more = Vec::new();
    let next = world.ends[1].poll_transmit(now, &mut more).map(|sent| sent.path);
    assert!(next.is_none_or(|path| path == PathUse::Current), "there is one answer");
}

#[test]
fn a_transfer_goes_on_over_another_path_at_its_speed() {
    for (before, after) in [((100, 20), (20, 200)), ((10, 200), (100, 20))] {
        for loss in [0.0, 0.05] {
            let mut world = World::new([config(), config()], &path(before.0, before.1, loss), 1);
            let mut transfer = Transfer::new(usize::MAX / 2);
            let (change, warm) = (world.now + MS * 3_000, world.now + MS * 7_000);
            let end = warm + Duration::from_secs(5);
            let (mut has_changed, mut early) = (false, None);
            while world.now < end {
                let now = world.now;
                if now >= change && !has_changed {
                    has_changed = true;
                    // Packets in flight are lost.
                    world.replace_paths(&path(after.0, after.1, loss));
                    world.ends[1].challenge([9; 8]);
                    world.ends.iter_mut().for_each(|end| end.path_changed(now));
                }
                if now >= warm && early.is_none() {
                    early = Some(transfer.read);
                }
                let [from, to] = &mut world.ends;
                transfer.step(now, from, to);
                if !world.settle() {
                    world.advance_until(if has_changed { end } else { change });
                }
            }
            let steady = (transfer.read - early.unwrap()) as f64;
            let link = (after.0 * 125_000 * 5) as f64;
            let share = steady / link;
            assert!(share >= 0.8, "{before:?} {after:?} {loss}: {share:.2}");
            assert!(world.answered.len() <= 1);
            assert!(loss > 0.0 || world.answered == [[9; 8]]);
        }
    }
}

#[test]
fn a_close_packet_is_the_last_packet_and_is_repeated_for_a_peer_that_goes_on() {
    let mut world = World::new([config(), config()], &path(50, 20, 0.0), 1);
    let mut now = world.now;
    let [one, other] = &mut world.ends;
    one.write(now, &mut Bytes::from(vec![1; 100_000]));
    one.close(now, 7, &[b'x'; 300]);
    one.close(now, 8, b"the first one counts");
    let mut close = Vec::new();
    one.poll_transmit(now, &mut close).unwrap();
    assert_eq!(one.poll_transmit(now, &mut Vec::new()), None);
    assert_eq!(one.timeout(), None);
    let expected = |by_peer| Closed { code: 7, reason: vec![b'x'; 200].into(), by_peer };
    assert_eq!(one.closed(), Some(&expected(false)));

    // The peer has not received the close packet.
    let mut closes = 0;
    for _ in 0..50 {
        other.write(now, &mut Bytes::from_static(b"still there?"));
        other.handle_timeout(now);
        let mut packet = Vec::new();
        if other.poll_transmit(now, &mut packet).is_some() {
            assert_eq!(one.handle_datagram(now, &mut packet, false), None);
        }
        let mut again = Vec::new();
        closes += usize::from(one.poll_transmit(now, &mut again).is_some());
        assert!(again.len() <= close.len());
        assert_eq!(one.poll_transmit(now, &mut again), None);
        now += MS * 10;
    }
    assert!((3..=5).contains(&closes), "{closes} in 500 ms");

    let mut third = World::new([config(), config()], &path(50, 20, 0.0), 1);
    third.ends[1].close(now, 9, b"");
    assert_eq!(third.ends[1].handle_datagram(now, &mut close.clone(), false), None);
    third.ends[1].poll_transmit(now, &mut Vec::new()).unwrap();
    third.ends[1].handle_datagram(now + MS * 500, &mut close.clone(), false);
    assert_eq!(third.ends[1].poll_transmit(now + MS * 500, &mut Vec::new()), None, "no dispute");

    other.write(now, &mut Bytes::from_static(b"more"));
    assert!(other.handle_datagram(now, &mut close, false).is_some());
    assert_eq!(other.closed(), Some(&expected(true)));
    assert_eq!(other.poll_transmit(now, &mut Vec::new()), None, "there is nobody to hear it");
    assert_eq!(other.timeout(), None);
}
