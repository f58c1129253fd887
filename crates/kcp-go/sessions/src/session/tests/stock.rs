//! A session against a simulated stock peer: the classic machine, an encoder that always sends all
//! its parity, and a decoder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use testkit::netem::Datagrams;

use super::world::ratio;
use crate::classic::{Classic, Config as ClassicConfig, Flush, Packet};
use crate::engine;
use crate::envelope::{Null, Sizes};
use crate::fec::{Decoder, Encoder, LONGEST_PAUSE, Ratio, Settings, Shard};
use crate::session::{Config, Session};
use crate::wire::{Content, Conversation, Millis};
use testkit::pair::epoch;
use testkit::transfer::{byte, path};

const CONVERSATION: Conversation = Conversation(0x7654_3210);

const MTU: usize = 1_350;

struct Stock {
    machine: Classic,
    encoder: Option<Encoder>,
    decoder: Decoder,
    start: Instant,
    next: Instant,
    received: Vec<u8>,
    out: Vec<Vec<u8>>,
}

impl Stock {
    fn new(shards: Option<Ratio>, now: Instant) -> Self {
        let sizes = Sizes::new(MTU, 0, shards.is_some()).unwrap();
        let machine = Classic::new(ClassicConfig {
            conversation: CONVERSATION,
            mtu: u16::try_from(sizes.segments).unwrap(),
            is_quick: true,
            interval: 10,
            resend: 2,
            is_controlled: false,
            send_window: 256,
            receive_window: 512,
            is_stream: true,
        });
        let settings =
            |ratio| Settings { ratio, longest: sizes.segments, pause: Some(LONGEST_PAUSE) };
        Self {
            machine,
            encoder: shards.map(settings).map(Encoder::new),
            decoder: Decoder::new(shards.or_else(|| Ratio::new(1, 1)).unwrap(), 1500),
            start: now,
            next: now,
            received: Vec::new(),
            out: Vec::new(),
        }
    }

    fn clock(&self, now: Instant) -> Millis {
        Millis(u32::try_from((now - self.start).as_millis()).unwrap())
    }

    fn handle(&mut self, now: Instant, datagram: &[u8]) {
        let content = Content::of(datagram).unwrap();
        let mut made = Vec::new();
        let stamp = self.clock(now);
        let mut sink = |datagram: &[u8]| made.push(datagram.to_vec());
        if let Content::Segments(segments) | Content::Data { segments, .. } = content {
            // Fillers are refused.
            let _ = self.machine.input(stamp, Packet::Regular, false, segments, &mut sink);
        }
        if let Some(shard) = Shard::of(&content) {
            for segments in self.decoder.handle_shard(shard).segments() {
                let _ = self.machine.input(stamp, Packet::Recovered, false, segments, &mut sink);
            }
        }
        let mut buffer = [0; 2_048];
        while let Ok(length) = self.machine.recv(&mut buffer) {
            self.received.extend_from_slice(&buffer[..length]);
        }
        self.send(now, made);
    }

    fn turn(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        let mut made = Vec::new();
        let mut sink = |datagram: &[u8]| made.push(datagram.to_vec());
        let wait = self.machine.flush(self.clock(now), Flush::Full, &mut sink);
        self.next = now + Duration::from_millis(wait.max(1).into());
        self.send(now, made);
    }

    fn write(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let mut made = Vec::new();
        let mut sink = |datagram: &[u8]| made.push(datagram.to_vec());
        let is_taken = self.machine.write(self.clock(now), bytes, &mut sink);
        self.send(now, made);
        is_taken
    }

    fn send(&mut self, now: Instant, made: Vec<Vec<u8>>) {
        for segments in made {
            let Some(encoder) = &mut self.encoder else {
                self.out.push(segments);
                continue;
            };
            let head = encoder.push(&segments, now).unwrap();
            self.out.push([&head[..], &segments].concat());
            let mut parity = [0; 1_500];
            while let Some(length) = encoder.poll_parity(&mut parity) {
                self.out.push(parity[..length].to_vec());
            }
        }
    }
}

/// Sends this number of bytes in both directions.
fn exchange(
    (own, stock): (Option<Ratio>, Option<Ratio>),
    loss: f64,
    change: impl Fn(&mut Session, Instant, usize),
    (length, seed): (usize, u64),
) -> (Session, Stock) {
    let start = epoch();
    let mut now = start;
    let engine = engine::Config { send_window: 512, ..engine::Config::new(CONVERSATION, 0) };
    let config =
        Config { engine, encode: own, datagram: MTU, reserve: true, ..Config::new(CONVERSATION) };
    let mut session = Session::new(config, Arc::new(Null), now);
    let mut stock = Stock::new(stock, now);
    let mut paths: [Datagrams<Vec<u8>>; 2] =
        [2 * seed, 2 * seed + 1].map(|seed| Datagrams::new(path(50, 30, loss), seed));
    let (mut written, mut written_back, mut read) = (0, 0, 0);
    loop {
        while let Some(mut datagram) = paths[1].read(now) {
            session.handle_datagram(now, &mut datagram);
        }
        while let Some(datagram) = paths[0].read(now) {
            stock.handle(now, &datagram);
        }
        if session.timeout().is_some_and(|at| at <= now) {
            session.handle_timeout(now);
        }
        while let Some(bytes) = session.read(1000) {
            for got in bytes {
                assert_eq!(got, byte(read));
                read += 1;
            }
        }
        change(&mut session, now, written);
        while written < length && session.room() > 0 {
            let part = (length - written).min(session.room()).min(20_000);
            let mut bytes: Bytes = (written..written + part).map(byte).collect();
            written += session.write(now, &mut bytes);
        }
        let part: Vec<u8> = (written_back..length.min(written_back + 5_000)).map(byte).collect();
        if !part.is_empty() && stock.write(now, &part) {
            written_back += part.len();
        }
        stock.turn(now);
        for datagram in stock.out.drain(..) {
            paths[1].write(now, datagram.len() + 28, || datagram.clone());
        }
        let mut out = Vec::new();
        while let Some(length) = session.poll_transmit(now, &mut |_| (), &mut out) {
            assert!(length <= MTU);
            let datagram = std::mem::take(&mut out);
            paths[0].write(now, length + 28, || datagram.clone());
        }
        if read == length && stock.received.len() == length && session.is_flushed() {
            break;
        }
        let arrivals = paths.iter().filter_map(Datagrams::next_arrival);
        let next = arrivals.chain(session.timeout()).chain([stock.next]).min().unwrap();
        now = next.max(now + Duration::from_micros(1));
        assert!(now - start < Duration::from_secs(300), "{read} {}", stock.received.len());
    }
    assert!(stock.received.iter().enumerate().all(|(at, got)| *got == byte(at)));
    (session, stock)
}

#[test]
fn a_stock_peer_and_a_session_understand_each_other() {
    for own in super::RATIOS.map(ratio) {
        for stock in super::RATIOS.map(ratio) {
            for loss in [0.0, 0.05, 0.2] {
                let (session, peer) = exchange((own, stock), loss, |_, _, _| (), (400_000, 9));
                let counters = session.counters();
                assert_eq!(counters.engine.malformed, 0, "{counters:?}");
                let is_lossy = loss > 0.0;
                assert!(!is_lossy || stock.is_none() || counters.fec.rebuilt > 0, "{counters:?}");
                let rebuilt = peer.decoder.counters().rebuilt;
                assert!(!is_lossy || own.is_none() || rebuilt > 0, "{own:?} {stock:?} {loss}");
            }
        }
    }
}

#[test]
fn a_stock_peer_finds_a_ratio_that_changes() {
    let change = |session: &mut Session, now: Instant, written: usize| {
        // Two of the ratios have groups of the same size.
        let shards = [None, Some((10, 3)), Some((3, 2)), Some((4, 1)), Some((3, 2))];
        let wanted = ratio(shards[(written / 1_500_000) % 5]);
        if session.config.encode != wanted {
            assert!(session.set_encode(now, wanted));
        }
    };
    for seed in 0..4 {
        for loss in [0.02, 0.1] {
            let (session, stock) = exchange((None, None), loss, change, (7_000_000, seed));
            let counters = stock.decoder.counters();
            assert!(counters.tuned > 0, "{counters:?}");
            assert!(counters.rebuilt > 0, "{counters:?} {:?}", session.counters());
        }
    }
}
