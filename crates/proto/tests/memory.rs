//! The use of the memory budget by streams, and its distribution.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use proto::Side::{Client, Server};
use proto::{
    Attach, Budget, CarrierNumber, HEAD_ROOM, Link, LinkConfig, Open, ResetCode, Share, StreamId,
    Unlimited,
};
use testkit::netem::Conditions;
use testkit::pair::{Pair, Purse, epoch, open};

/// The charge of a stream in addition to its bytes.
const STREAM: u64 = 2 << 10;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_window_is_given_back_when_its_bytes_are_read_and_not_before() {
    for how in ["read", "stopped", "reset by the peer"] {
        // The first window takes at most a 64th of it.
        let purse = Purse::new(64 << 20);
        let budgets: [Rc<dyn Budget>; 2] = [Rc::new(Purse::new(64 << 20)), Rc::new(purse.clone())];
        let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
        pair.reconnect();
        pair.end_mut(Server).automatic = false;
        let idle = purse.used();
        let unread = |kib: u64| idle + STREAM + (kib << 10);
        let id = pair.open(Client, &open("x"));
        pair.feed(Client, id, 200 << 10);
        pair.run();
        if how != "reset by the peer" {
            pair.finish(Client, id);
        } else {
            pair.reset(Client, id, ResetCode::Aborted);
        }
        pair.finish(Server, id);
        pair.run();
        let key = pair.seen(Server, id).key;
        if how != "reset by the peer" {
            let seen = pair.seen(Server, id);
            assert!(seen.finished && !seen.closed, "{how}");
            assert_eq!(purse.used(), unread(200), "{how}: every unread byte, and the stream");
            // The peer has forgotten the stream: that changes nothing here.
            pair.kill();
            pair.reconnect();
            pair.run();
            assert_eq!(purse.used(), unread(200), "{how}");
            pair.consume(Server, id, 100 << 10);
            assert_eq!(purse.used(), unread(100), "{how}");
        }
        match how {
            "read" => pair.consume(Server, id, 100 << 10),
            "stopped" => pair.end_mut(Server).link.stop(key, ResetCode::Aborted),
            _ => {}
        }
        pair.run();
        assert_eq!(purse.used(), idle, "{how}");
        assert!(pair.seen(Server, id).closed && pair.seen(Client, id).closed, "{how}");
        assert_eq!(pair.seen(Server, id).stopped, None, "{how}");
    }
}

/// A budget whose visitors have a source, which may hold `most` bytes.
#[derive(Debug)]
struct Shared {
    purse: Purse,
    source: Rc<Source>,
}

#[derive(Debug)]
struct Source {
    held: Cell<u64>,
    most: u64,
}

impl Share for Source {
    fn change(&self, before: u64, now: u64) {
        self.held.set(self.held.get().checked_sub(before).expect("it was told before") + now);
    }

    fn has_room(&self) -> bool {
        self.held.get() < self.most
    }
}

impl Budget for Shared {
    fn draw(&self, bytes: u64) -> bool {
        self.purse.draw(bytes)
    }

    fn charge(&self, bytes: u64) {
        self.purse.charge(bytes);
    }

    fn release(&self, bytes: u64) {
        self.purse.release(bytes);
    }

    fn left(&self) -> u64 {
        self.purse.left()
    }

    fn total(&self) -> u64 {
        self.purse.total()
    }

    fn share(&self, visitor: SocketAddr) -> Option<Rc<dyn Share>> {
        let source = Rc::<Source>::clone(&self.source);
        (visitor.ip() == LOUD.ip()).then_some(source as Rc<dyn Share>)
    }
}

const LOUD: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 5));
const QUIET: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 5));

#[test]
fn a_stream_counts_for_the_source_of_its_visitor_which_has_a_share() {
    let purse = Purse::new(64 << 20);
    let source = Rc::new(Source { held: Cell::new(0), most: 300 << 10 });
    let shared = Shared { purse: purse.clone(), source: Rc::clone(&source) };
    let budgets: [Rc<dyn Budget>; 2] = [Rc::new(Purse::new(64 << 20)), Rc::new(shared)];
    let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
    pair.reconnect();
    pair.end_mut(Server).automatic = false;
    let idle = purse.used();
    let of = |visitor| Open { visitor: Some(visitor), ..open("x") };
    let mut loud = Vec::new();
    for _ in 0..20 {
        let id = pair.open(Client, &of(LOUD));
        pair.feed(Client, id, 200 << 10);
        pair.run();
        loud.push(id);
    }
    let refused = |pair: &Pair, id| pair.seen(Client, id).reset == Some(ResetCode::Limit);
    let served = loud.iter().filter(|id| !refused(&pair, **id)).count();
    assert!((1..20).contains(&served), "{served}");
    let (reported, used) = (source.held.get(), purse.used() - idle);
    assert!(reported.abs_diff(used) <= used / 4, "{reported} of {used}");
    assert!(source.held.get() >= source.most);
    let quiet = pair.open(Client, &of(QUIET));
    pair.feed(Client, quiet, 10);
    pair.run();
    assert!(!refused(&pair, quiet));
    for id in loud.into_iter().take(served) {
        pair.reset(Client, id, ResetCode::Aborted);
        pair.finish(Server, id);
    }
    pair.run();
    assert_eq!(source.held.get(), 0);
}

#[test]
fn a_retained_frame_costs_the_buffer_that_it_keeps() {
    let purse = Purse::new(64 << 20);
    let now = epoch();
    let mut link = Link::new(Client, LinkConfig::default(), Rc::new(purse.clone()), now);
    link.attach(now, CarrierNumber(1), Attach::New);
    let key = link.open(&open("x")).expect("it opens");
    let before = purse.used();
    let mut buf = BytesMut::with_capacity(64 << 10);
    for (n, payload) in [(1, 5000), (2, 6000)] {
        buf.resize(HEAD_ROOM + payload, 7);
        link.send(key, &mut buf);
        let frames = purse.used() - before - (64 << 10);
        assert!((n..n * 200).contains(&frames), "one buffer and {n} frames' state: {frames}");
    }
    // Small frames are copied out of their buffers.
    let before = purse.used();
    let mut buf = BytesMut::with_capacity(64 << 10);
    buf.resize(HEAD_ROOM + 100, 7);
    link.send(key, &mut buf);
    assert!((100..300).contains(&(purse.used() - before)));
    drop(link);
    assert_eq!(purse.used(), 0);
}

#[test]
fn memory_of_small_frames_waits_for_the_next_ones_and_not_for_ever() {
    for (how, total) in [("silence", 64 << 20), ("a lost carrier", 64 << 20), ("want", 1 << 20)] {
        let purse = Purse::new(total);
        let budgets: [Rc<dyn Budget>; 2] = [Rc::new(purse.clone()), Rc::new(Unlimited)];
        let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
        pair.reconnect();
        let id = pair.open(Client, &open("x"));
        pair.run();
        let quiet = purse.used();
        (0..100).for_each(|_| pair.write(Client, id, &[7; 1000]));
        pair.run_for(ms(200));
        assert_eq!(pair.seen(Server, id).count, 100_000, "{how}");
        let held = purse.used() - quiet;
        match how {
            "silence" => pair.run_for(ms(20_000)),
            "a lost carrier" => pair.kill(),
            // The share of such a small budget is less than one chunk and the queue of its frames.
            _ => assert!(held < 16 << 10, "{held}"),
        }
        if how != "want" {
            assert!((50_000..200_000).contains(&held), "{how}: {held}");
            assert_eq!(purse.used(), quiet, "{how}");
        }
    }
}

#[test]
fn a_sender_without_memory_is_not_kept_waiting_for_the_next_sweep() {
    // The receiver has a large window, the sender memory for little more than the implicit one:
    // it is acknowledged at once, not when a quarter of the large window is consumed.
    let purse = Purse::new(24 << 10);
    let budgets: [Rc<dyn Budget>; 2] = [Rc::new(purse), Rc::new(Unlimited)];
    let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
    pair.conditions = Conditions::path(ms(1), 1000);
    pair.reconnect();
    let id = pair.open(Client, &open("x"));
    pair.feed(Client, id, 4 << 20);
    pair.run_for(ms(1000));
    let count = pair.seen(Server, id).count;
    assert!(count >= 2 << 20, "{count} bytes in a second of round trips of a millisecond");
}

#[test]
fn a_budget_is_shared_out_by_what_is_left_of_it() {
    const TOTAL: u64 = 32 << 20;
    let purse = Purse::new(TOTAL);
    let budgets: [Rc<dyn Budget>; 2] = [Rc::new(Unlimited), Rc::new(purse.clone())];
    let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
    pair.conditions = Conditions::path(ms(20), 1000);
    pair.reconnect();
    pair.end_mut(Server).automatic = false;
    // Five hundred streams that are never read.
    for _ in 0..500 {
        let id = pair.open(Client, &open("x"));
        pair.feed(Client, id, 1 << 20);
    }
    pair.run_for(ms(500));
    let implicit = 500 * ((16 << 10) + STREAM);
    assert!(purse.used() <= TOTAL / 2 + implicit, "they do not get it all: {}", purse.used());
    // A stream that is read takes what it needs of the rest, but no more than half.
    let before = purse.used();
    let id = pair.open(Client, &open("x"));
    pair.feed(Client, id, 64 << 20);
    for _ in 0..400 {
        pair.run_for(ms(5));
        pair.consume(Server, id, usize::MAX);
    }
    let taken = purse.used() - before;
    assert!(taken > 256 << 10, "{taken}");
    assert!(taken <= TOTAL - purse.used() + (64 << 10), "{taken} of {}", purse.used());
    assert!(purse.most() <= TOTAL);
}

#[test]
fn windows_stay_within_the_budget_and_all_is_given_back() {
    let purses = [Purse::new(8 << 20), Purse::new(2 << 20)];
    let budgets = purses.clone().map(|purse| Rc::new(purse) as Rc<dyn Budget>);
    let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
    pair.conditions = Conditions::path(ms(20), 1000);
    pair.reconnect();
    pair.end_mut(Server).automatic = false;
    let ids: Vec<StreamId> = (0..40).map(|_| pair.open(Client, &open("x"))).collect();
    for id in &ids {
        pair.feed(Client, *id, 4 << 20);
    }
    for _ in 0..100 {
        pair.run_for(ms(10));
        for id in &ids {
            pair.consume(Server, *id, 40 << 10);
        }
    }
    println!("most: client {}, server {}", purses[0].most(), purses[1].most());
    assert!(purses[1].most() <= 2 << 20, "a receiver grants no more than its budget");
    // A sender may exceed its share by the minimum of each stream.
    assert!(purses[0].most() <= (8 << 20) + 40 * (16 << 10));
    drop(pair);
    assert_eq!(purses.map(|purse| purse.used()), [0, 0]);
}

#[test]
fn windows_that_nobody_can_refuse_leave_room_for_one_more_stream() {
    const TOTAL: u64 = 32 << 20;
    let purse = Purse::new(TOTAL);
    let budgets: [Rc<dyn Budget>; 2] = [Rc::new(purse.clone()), Rc::new(Unlimited)];
    let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
    pair.reconnect();
    (pair.end_mut(Client).automatic, pair.end_mut(Server).automatic) = (false, false);
    // The cost of carriers.
    purse.charge(5 << 20);
    // Replay of streams that are not read takes its maximum, before the windows of other streams.
    for side in [Client, Server] {
        for _ in 0..600 {
            let id = pair.open(side, &open("x"));
            pair.feed(side, id, 1 << 20);
            pair.run();
        }
    }
    assert!(purse.used() > TOTAL * 3 / 4, "{}", purse.used());
    let id = pair.open(Server, &open("x"));
    pair.write(Server, id, b"x");
    pair.run();
    assert_eq!(pair.seen(Client, id).count, 1, "{} in use", purse.used());
}

#[test]
fn an_implicit_window_is_charged_as_it_fills_and_not_before() {
    // A budget of which no first window is granted.
    let purse = Purse::new(64 << 20);
    purse.charge(32 << 20);
    let budgets: [Rc<dyn Budget>; 2] = [Rc::new(Unlimited), Rc::new(purse.clone())];
    let mut pair = Pair::new([LinkConfig::default(); 2], budgets, 1);
    pair.reconnect();
    pair.end_mut(Server).automatic = false;
    let before = purse.used();
    let ids: Vec<StreamId> = (0..1000).map(|_| pair.open(Client, &open("x"))).collect();
    pair.run();
    assert_eq!(purse.used() - before, 1000 * STREAM, "idle streams cost their state");
    for id in &ids {
        pair.write(Client, *id, &[1; 10_000]);
    }
    pair.run();
    assert_eq!(purse.used() - before, 1000 * (STREAM + 10_000), "and then what waits");
    for id in &ids {
        pair.consume(Server, *id, 4_000);
    }
    pair.run_for(ms(100));
    assert_eq!(purse.used() - before, 1000 * (STREAM + 6_000));
}
