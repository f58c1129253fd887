//! A session over own packets does not allocate for each packet, and an idle one keeps little.

#![allow(clippy::disallowed_methods, reason = "a test begins now, and counts from there")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp::own::fec::Protection;
use kcp::own::wire::{ConnectionId, PacketNumber};
use kcp::own::{Config, Keys, Session};
use kcp::{Control, Refused};

/// Keys that hide nothing.
#[derive(Debug)]
struct Open;

impl Keys for Open {
    fn tag(&self) -> usize {
        16
    }

    fn seal(
        &mut self,
        _: PacketNumber,
        _: &[u8],
        _: &mut [u8],
        _: &mut [u8],
    ) -> Result<(), Refused> {
        Ok(())
    }

    fn open(
        &mut self,
        _: bool,
        _: PacketNumber,
        _: &[u8],
        text_and_tag: &mut [u8],
    ) -> Result<usize, Refused> {
        text_and_tag.len().checked_sub(16).ok_or(Refused)
    }
}

struct World {
    ends: [Session; 2],
    now: Instant,
    out: Vec<u8>,
    packets: usize,
    /// One packet of so many is lost; 0: none.
    loss: usize,
}

impl World {
    fn new(protection: Protection, control: Control, loss: usize) -> Self {
        let id = ConnectionId([7; 8]);
        let now = Instant::now();
        let config = Config { protection, control, ..Config::new((id, id), 1_472) };
        let ends = [(); 2].map(|()| Session::new(config.clone(), Box::new(Open), now));
        Self { ends, now, out: Vec::with_capacity(2_000), packets: 0, loss }
    }

    /// Sends pieces of one buffer from the first to the second session.
    fn run(&mut self, pieces: usize) {
        let piece = Bytes::from_static(&[7; 40_000]);
        for _ in 0..pieces {
            self.ends[0].write(self.now, &mut piece.clone());
            for _ in 0..4 {
                self.step();
            }
        }
    }

    fn step(&mut self) {
        for n in 0..2 {
            self.out.clear();
            while self.ends[n].poll_transmit(self.now, &mut self.out).is_some() {
                self.packets += 1;
                if self.loss == 0 || !self.packets.is_multiple_of(self.loss) {
                    self.ends[1 - n].handle_datagram(self.now, &mut self.out, false);
                }
                self.out.clear();
            }
            while self.ends[1 - n].read(usize::MAX).is_some() {}
            while self.ends[1 - n].read_datagram().is_some() {}
        }
        self.now += Duration::from_millis(3);
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
    }
}

#[test]
fn warm_sessions_allocate_for_chunks_and_not_for_packets() {
    let fixed = Protection::Fixed { data: 10, parity: 3 };
    let adaptive = Protection::Adaptive { most: 32 };
    for (protection, loss) in
        [(Protection::Off, 0), (fixed, 0), (adaptive, 0), (fixed, 11), (adaptive, 11)]
    {
        let mut world = World::new(protection, Control::Open, loss);
        world.run(100);
        let before = world.packets;
        let used = allocation_counter::measure(|| world.run(200));
        let packets = world.packets - before;
        println!("{protection:?} {loss}: {} allocations for {packets}", used.count_total);
        assert!(packets > 5_000, "{packets}");
        // The receiver's bytes stand in chunks of 8 KiB and more, which the reader owns.
        let chunks = 200 * 40_000 / 8_192;
        assert!(used.count_total <= 2 * chunks + 300, "{} for {packets}", used.count_total);
    }
}

#[test]
fn datagrams_share_buffers() {
    let mut world = World::new(Protection::Fixed { data: 1, parity: 1 }, Control::Open, 11);
    let datagram = Bytes::from_static(&[7; 160]);
    let run = |world: &mut World| {
        for _ in 0..2_000 {
            world.ends[0].send_datagram(datagram.clone()).unwrap();
            world.step();
        }
    };
    run(&mut world);
    let used = allocation_counter::measure(|| run(&mut world));
    println!("{} allocations for 2,000 datagrams", used.count_total);
    assert!(used.count_total <= 300, "{}", used.count_total);
}

#[test]
fn an_idle_session_keeps_little() {
    for (protection, loss) in [
        (Protection::Adaptive { most: 32 }, 11),
        (Protection::Adaptive { most: 32 }, 0),
        (Protection::Fixed { data: 10, parity: 3 }, 7),
    ] {
        let mut kept = 0;
        // What a world has more than two sessions is small, and counts as theirs.
        let used = allocation_counter::measure(|| {
            let mut world = World::new(protection, Control::Bbr, loss);
            world.run(200);
            for _ in 0..20 {
                world.ends[0].send_datagram(Bytes::from_static(&[7; 1_000])).unwrap();
                world.ends[1].write(world.now, &mut Bytes::from_static(&[7; 100]));
                world.step();
            }
            // All arrives, and then a second passes.
            for _ in 0..5_000 {
                world.step();
            }
            assert!(world.ends.iter().all(|end| end.timeout().is_none()), "no timer runs");
            kept = allocation_counter::measure(|| drop(world)).bytes_current;
        });
        assert_eq!(used.bytes_current, 0);
        let heap = -kept / 2;
        let all = usize::try_from(heap).unwrap() + size_of::<Session>();
        println!("{protection:?} {loss}: {} bytes and {heap} on the heap", size_of::<Session>());
        assert!(all <= 16 << 10, "{all}");
    }
}
