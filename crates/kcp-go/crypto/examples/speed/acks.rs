//! The time of one acknowledgement while many segments are under way.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kcp_go::engine::{Config, Control, Engine};
use kcp_go::wire::{Command, Conversation, HEAD, Head, Millis, Sn};

use crate::Failure;

const CONVERSATION: Conversation = Conversation(1);
const MTU: u16 = 1322;
/// Acknowledgements of a datagram.
const BATCH: u32 = 32;
/// Acknowledgements of a measurement.
const COUNT: u32 = 400_000;

fn segment(command: Command, sn: u32, una: u32) -> [u8; HEAD] {
    let head = Head {
        conversation: CONVERSATION,
        command,
        fragments: 0,
        window: u16::MAX,
        timestamp: Millis(0),
        sn: Sn(sn),
        una: Sn(una),
    };
    head.encode(0)
}

/// An engine with `count` segments under way.
fn engine(now: Instant, count: u32) -> Result<Engine, Failure> {
    let mut config = Config::new(CONVERSATION, MTU);
    (config.send_window, config.receive_window) = (u16::MAX, u16::MAX);
    (config.control, config.resend) = (Control::Open, 0);
    let mut engine = Engine::new(config, now);
    engine.handle_datagram(now, &segment(Command::TellWindow, 0, 0), false)?;
    fill(&mut engine, now, count);
    if engine.in_flight() != u64::from(count) * u64::from(MTU) {
        return Err("not all segments are under way".into());
    }
    Ok(engine)
}

fn fill(engine: &mut Engine, now: Instant, count: u32) {
    let payload = Bytes::from(vec![1; usize::from(MTU) - HEAD]);
    let mut buffer = Vec::new();
    for _ in 0..count {
        engine.write(now, &mut payload.clone());
        while engine.poll_transmit(now, &mut buffer).is_some() {
            buffer.clear();
        }
    }
}

/// The time of one acknowledgement in order, and of one behind a gap.
pub(crate) fn run(in_flight: u32) -> Result<[Duration; 2], Failure> {
    let now = Instant::now();
    let mut buffer = Vec::new();
    let mut took = [Duration::ZERO; 2];
    let mut end = engine(now, in_flight)?;
    for first in (0..COUNT).step_by(BATCH as usize) {
        buffer.clear();
        for sn in first..first + BATCH {
            buffer.extend_from_slice(&segment(Command::Ack, sn, first + BATCH));
        }
        let begin = Instant::now();
        end.handle_datagram(now, &buffer, false)?;
        took[0] += begin.elapsed();
        fill(&mut end, now, BATCH);
    }
    let mut done = 0;
    while done < COUNT {
        let mut end = engine(now, in_flight)?;
        for first in (1..in_flight.saturating_sub(BATCH).max(2)).step_by(BATCH as usize) {
            buffer.clear();
            for sn in first..(first + BATCH).min(in_flight) {
                buffer.extend_from_slice(&segment(Command::Ack, sn, 0));
                done += 1;
            }
            let begin = Instant::now();
            end.handle_datagram(now, &buffer, false)?;
            took[1] += begin.elapsed();
        }
    }
    Ok([took[0] / COUNT, took[1] / done])
}
