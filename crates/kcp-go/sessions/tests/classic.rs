//! Whole sessions of two classic ends over an emulated path in virtual time: every byte arrives,
//! once and in its order, whatever the path does.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::time::{Duration, Instant};

use kcp_go::classic::{Classic, Config, Flush, Packet};
use kcp_go::wire::{Conversation, Millis, Sn};
use testkit::netem::{Datagrams, Rng, Weather};
use testkit::pair::epoch;

const MS: Duration = Duration::from_millis(1);

/// Longer than any transfer takes.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Both clocks and both numbers wrap within the first round trips.
const CLOCK: u32 = u32::MAX - 150;
const FIRST: Sn = Sn(u32::MAX - 20);

/// The settings of kcptun's profile `fast3`.
const QUICK: Config = Config {
    conversation: Conversation(0x0102_0304),
    mtu: 1_350,
    is_quick: true,
    interval: 10,
    resend: 2,
    is_controlled: false,
    send_window: 128,
    receive_window: 512,
    is_stream: true,
};

/// A path of 30 ms each way that overtakes, repeats and loses.
fn bad(loss: f64) -> Weather {
    Weather { delay: 30 * MS, loss, duplicate: 0.05, reorder: 0.1, ..Weather::default() }
}

/// One end, its application and the path to the other end.
struct End {
    session: Classic,
    ack_no_delay: bool,
    /// The application writes so many bytes at a time, and reads as often as this.
    writes: usize,
    reads: Duration,
    path: Datagrams<Vec<u8>>,
    to_send: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    next_flush: Instant,
    next_read: Instant,
}

impl End {
    fn new(config: Config, weather: Weather, seed: u64, length: usize) -> Self {
        let mut session = Classic::new(config);
        session.start_at(FIRST, FIRST);
        let mut rng = Rng::new(seed);
        let to_send = (0..length).map(|_| rng.bits().to_le_bytes()[7]).collect();
        Self {
            session,
            ack_no_delay: seed % 2 == 1,
            writes: 5_000,
            reads: Duration::ZERO,
            path: Datagrams::new(weather, seed),
            to_send,
            written: 0,
            received: Vec::new(),
            next_flush: epoch(),
            next_read: epoch(),
        }
    }

    /// Does everything that is due.
    fn turn(&mut self, now: Instant, arrivals: &mut Datagrams<Vec<u8>>) {
        let millis = u32::try_from((now - epoch()).as_millis()).unwrap();
        let clock = Millis(CLOCK).plus(millis);
        let path = &mut self.path;
        let mut sink = |datagram: &[u8]| path.write(now, datagram.len(), || datagram.to_vec());
        while let Some(datagram) = arrivals.read(now) {
            let input =
                self.session.input(clock, Packet::Regular, self.ack_no_delay, &datagram, &mut sink);
            input.unwrap();
        }
        if now >= self.next_read {
            let mut buffer = [0; 1_500];
            while let Ok(length) = self.session.recv(&mut buffer) {
                self.received.extend_from_slice(&buffer[..length]);
            }
            self.next_read = now + self.reads;
        }
        while self.written < self.to_send.len() {
            let end = self.to_send.len().min(self.written + self.writes);
            if !self.session.write(clock, &self.to_send[self.written..end], &mut sink) {
                break;
            }
            self.written = end;
        }
        if now >= self.next_flush {
            let next = self.session.flush(clock, Flush::Full, &mut sink);
            self.next_flush = now + MS * next;
        }
    }
}

/// Runs two ends until both have all bytes. Returns the time that it took.
fn run(mut ends: [End; 2]) -> Duration {
    let start = epoch();
    let mut now = start;
    let is_done = |[a, b]: &[End; 2]| {
        a.received.len() >= b.to_send.len() && b.received.len() >= a.to_send.len()
    };
    while !is_done(&ends) {
        let [a, b] = &mut ends;
        a.turn(now, &mut b.path);
        b.turn(now, &mut a.path);
        let next =
            [Some(a.next_flush), Some(b.next_flush), a.path.next_arrival(), b.path.next_arrival()];
        // The clock of kcp-go knows whole milliseconds.
        let next = next.into_iter().flatten().min().unwrap() - start;
        let millis = u32::try_from(next.as_micros().div_ceil(1_000)).unwrap();
        now = start + MS * millis;
        assert!(now - start < PATIENCE, "{:?} {:?}", a.session.counters(), b.session.counters());
    }
    let [a, b] = ends;
    assert!(a.received == b.to_send && b.received == a.to_send, "other bytes");
    now - start
}

fn pair(config: Config, weather: Weather, seed: u64, length: usize) -> [End; 2] {
    [2 * seed, 2 * seed + 1].map(|seed| End::new(config, weather, seed, length))
}

#[test]
fn bytes_arrive_as_they_were_sent_at_any_loss() {
    for (loss, seconds) in [(0.0, 2), (0.05, 4), (0.2, 10)] {
        for is_stream in [true, false] {
            let took = run(pair(Config { is_stream, ..QUICK }, bad(loss), 1, 1 << 20));
            assert!(took < Duration::from_secs(seconds), "{loss}: {took:?}");
        }
    }
}

#[test]
fn the_congestion_window_delays_and_loses_nothing() {
    let slow = Config { is_quick: false, interval: 40, is_controlled: true, ..QUICK };
    for resend in [0, 2] {
        for loss in [0.0, 0.05, 0.2] {
            run(pair(Config { resend, ..slow }, bad(loss), 2, 100_000));
        }
    }
    run(pair(Config { conversation: Conversation(7), ..Config::default() }, bad(0.05), 3, 100_000));
}

#[test]
fn a_reader_that_sleeps_closes_the_window_and_opens_it_again() {
    let mut ends = pair(Config { receive_window: 16, ..QUICK }, bad(0.05), 4, 100_000);
    ends[1].reads = Duration::from_secs(2);
    // Each time 16 segments are read, and as many that waited behind them move up.
    let took = run(ends);
    assert!(took >= Duration::from_secs(6), "{took:?}");
}

#[test]
fn a_narrow_path_drops_and_bytes_still_arrive() {
    let narrow = Weather { rate: Some(250_000), queue: 20_000, ..bad(0.01) };
    run(pair(QUICK, narrow, 5, 200_000));
}

/// Anything that two ends may be set to, over any path.
#[test]
fn no_setting_and_no_path_changes_a_byte() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut draw =
            |choices: &[u16]| choices[usize::try_from(rng.below(choices.len() as u64)).unwrap()];
        let config = Config {
            mtu: draw(&[25, 50, 576, 1_350]),
            is_quick: draw(&[0, 1]) == 1,
            interval: u32::from(draw(&[10, 20, 100])),
            resend: u32::from(draw(&[0, 1, 2, 5])),
            is_controlled: draw(&[0, 0, 1]) == 1,
            send_window: draw(&[1, 4, 32, 300]),
            receive_window: draw(&[1, 4, 32, 300]),
            is_stream: draw(&[0, 1]) == 1,
            ..QUICK
        };
        let share = |thousandths| f64::from(thousandths) / 1_000.0;
        let weather = Weather {
            delay: MS * u32::from(draw(&[1, 10, 100])),
            jitter: MS * u32::from(draw(&[0, 1, 20])),
            loss: share(draw(&[0, 10, 100, 300])),
            duplicate: share(draw(&[0, 50, 300])),
            reorder: share(draw(&[0, 50, 500])),
            ..Weather::default()
        };
        let writes = draw(&[1, 30, 1_000, 5_000]);
        let mut ends = pair(config, weather, seed, usize::from(draw(&[200, 3_000])));
        ends.iter_mut().for_each(|end| end.writes = usize::from(writes));
        run(ends);
    }
}
