//! Makes frames for a carrier from the state of a link.

use crate::Instant;

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::{Link, Outgoing, StreamKey, lookup};
use crate::frame::{Credit, Kind, encode_code, encode_credit, encode_fin, encode_ping};
use crate::offset::Offset;
use crate::stream::{CONTROL_WINDOW, Pace, Popped};
use crate::{CarrierNumber, Pages, Priority, StreamId};

/// Maximum number of frames in a batch: the limit of one gathered write.
const BATCH: usize = 64;

/// Maximum number of signals of each kind in a batch. They have at most 24 bytes each and share one
/// buffer.
const SIGNALS: usize = 1024;

/// Quantum of a stream's turn, in bytes; a turn has at least one frame. So streams with tiny frames
/// get as many bytes as streams with large frames.
const TURN: usize = 16 << 10;

/// Length at which a batch ends, in bytes (or the frame limit, if longer): more urgent frames
/// cannot overtake frames that were passed to the carrier.
const BATCH_BYTES: usize = 128 << 10;

/// Maximum bytes by which datagrams may be ahead of or behind stream payload, while both wait.
const LEAD: isize = 16 << 10;

impl Link {
    /// Whether [`Link::poll_transmit`] has frames for this carrier.
    #[must_use]
    pub fn has_output(&mut self, number: CarrierNumber) -> bool {
        let idle = self.schedule.is_empty();
        let datagrams = !self.flows.queues.is_empty();
        let farewell = self.farewell.is_some();
        if self.is_aborted {
            return farewell && self.carriers.find(number).is_some();
        }
        self.carriers.find(number).is_some_and(|carrier| {
            !carrier.resume.is_empty()
                || carrier.liveness.has_ping()
                || carrier.pong.is_some()
                || (carrier.is_live()
                    && (!idle || farewell || (datagrams && !carrier.takes_packets)))
        })
    }

    /// Appends the next batch of frames for a carrier to `out`, and returns the length of the batch
    /// in bytes. The frames count as sent: if a frame does not reach the peer, the carrier is lost.
    pub fn poll_transmit<O: Outgoing>(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        out: &mut O,
    ) -> usize {
        let Some(carrier) = self.carriers.find(number) else { return 0 };
        let mut batch = Batch { out, frames: 0, bytes: 0 };
        if self.is_aborted {
            if let Some(reason) = self.farewell.take() {
                encode_code(&mut self.scratch, Kind::GoAway, StreamId::CONTROL, reason.raw());
            }
            self.take_scratch().into_iter().for_each(|frame| batch.push(frame));
            return batch.bytes;
        }
        while let Some(frame) = carrier.resume.pop_front() {
            batch.push(frame);
        }
        if let Some(value) = carrier.liveness.take_ping(now) {
            encode_ping(&mut self.scratch, Kind::Ping, value);
        }
        if let Some(value) = carrier.pong.take() {
            encode_ping(&mut self.scratch, Kind::Pong, value);
        }
        // PINGs have their own timeout and PONGs have no reply.
        let probes = self.scratch.len();
        let (is_live, takes_packets) = (carrier.is_live(), carrier.takes_packets);
        if is_live {
            self.fill(now, !takes_packets, &mut batch);
            // After the OPENs that were queued before it.
            if let Some(reason) = self.farewell.take_if(|_| self.schedule.opens.is_empty()) {
                encode_code(&mut self.scratch, Kind::GoAway, StreamId::CONTROL, reason.raw());
            }
        }
        let answerable = batch.frames > 0 || self.scratch.len() > probes;
        if let Some(rest) = self.take_scratch() {
            batch.push(rest);
        }
        let bytes = batch.bytes;
        if answerable && let Some(carrier) = self.carriers.find(number) {
            carrier.liveness.sent(now);
        }
        bytes
    }

    /// `datagrams`: whether the carrier takes datagrams as frames.
    fn fill<O: Outgoing>(&mut self, now: Instant, datagrams: bool, batch: &mut Batch<'_, O>) {
        if !self.fill_opens(batch) || !self.fill_signals(now, batch) {
            return;
        }
        // A FlowOpen is sent before the datagrams of its flow.
        let begins_flow = self.has_unsent_control();
        if datagrams && !begins_flow {
            self.fill_datagrams(batch);
        }
        if batch.out.takes_payload() {
            let before = batch.bytes;
            self.fill_payload(batch);
            let sent = (batch.bytes - before) as isize;
            self.datagram_lead = (self.datagram_lead - sent).max(-LEAD);
        }
        if begins_flow {
            self.flows.unpark();
            if datagrams {
                self.fill_datagrams(batch);
            }
        }
    }

    /// Datagrams alternate with streams, by bytes.
    fn fill_datagrams<O: Outgoing>(&mut self, batch: &mut Batch<'_, O>) {
        if self.flows.queues.is_empty() {
            return;
        }
        let reach = self.flow_reach(true);
        let before = batch.bytes;
        let streams_wait = self.schedule.waiting() > 0;
        if !streams_wait {
            self.datagram_lead = 0;
        }
        // Frames that are adjacent in memory are merged: the carrier copies less.
        let mut piece = BytesMut::new();
        while batch.frames < BATCH
            && batch.bytes + piece.len() < before + BATCH_BYTES
            && (!streams_wait || self.datagram_lead < LEAD)
        {
            let Some(frame) = self.flows.pop(reach) else { break };
            self.datagram_lead += frame.len() as isize;
            if !self.scratch.is_empty() {
                batch.push(self.scratch.split().freeze());
            }
            if piece.is_empty() || piece.as_ptr_range().end == frame.as_ptr() {
                piece.unsplit(frame);
            } else {
                batch.push(std::mem::replace(&mut piece, frame).freeze());
            }
        }
        if !piece.is_empty() {
            batch.push(piece.freeze());
        }
        self.flows.account(&*self.budget);
    }

    /// True when none is left.
    fn fill_opens<O: Outgoing>(&mut self, batch: &mut Batch<'_, O>) -> bool {
        while batch.frames < BATCH {
            let Some(key) = self.schedule.opens.pop_front() else { return true };
            let Some(stream) = lookup(&mut self.streams, key) else { continue };
            let Some(open) = &stream.open else { continue };
            if let Some(before) = (!self.scratch.is_empty()).then(|| self.scratch.split().freeze())
            {
                batch.push(before);
            }
            batch.push(open.clone());
        }
        self.schedule.opens.is_empty()
    }

    /// True when none is left.
    fn fill_signals<O: Outgoing>(&mut self, now: Instant, batch: &mut Batch<'_, O>) -> bool {
        for _ in 0..SIGNALS {
            let Some((id, code)) = self.schedule.refusals.pop_front() else { break };
            encode_code(&mut self.scratch, Kind::Reset, id, code.raw());
            encode_code(&mut self.scratch, Kind::Stop, id, code.raw());
        }
        for _ in 0..SIGNALS {
            let Some(id) = self.schedule.acks.pop_front() else { break };
            let credit = Credit { limit: Offset::ZERO, consumed: Offset::ZERO, ack_end: true };
            encode_credit(&mut self.scratch, id, credit);
        }
        let carrier = self.carriers.active();
        let pace = Pace {
            round_trip: self.round_trip(),
            is_shared: self.turns.are_shared(now),
            is_apart: carrier.is_some_and(|carrier| carrier.has_lanes),
            is_repaired: carrier.is_some_and(|carrier| carrier.takes_packets),
        };
        for _ in 0..SIGNALS {
            let Some(member) = self.schedule.signals.pop() else { return true };
            let key = member.key;
            let Some(stream) = member.stream(&mut self.streams) else { continue };
            if let Some(code) = stream.send.reset_due() {
                encode_code(&mut self.scratch, Kind::Reset, key.id, code.raw());
                stream.send.reset_sent();
                batch.out.abort(key);
            }
            if let Some(code) = stream.recv.stop_due() {
                encode_code(&mut self.scratch, Kind::Stop, key.id, code.raw());
                stream.recv.stop_sent();
            }
            if stream.recv.take_credit_due() {
                let range = match key.id {
                    // The control stream's window is fixed.
                    StreamId::CONTROL => CONTROL_WINDOW..=CONTROL_WINDOW,
                    _ => self.config.window_initial..=self.config.window_max,
                };
                let moving = &mut self.moving.receiving;
                let credit = stream.recv.credit(now, pace, range, &*self.budget, moving);
                if key.id != StreamId::CONTROL {
                    self.first_window.credited(key.id, &stream.recv);
                }
                encode_credit(&mut self.scratch, key.id, credit);
            }
            self.try_forget(key);
        }
        self.schedule.signals.is_empty()
    }

    fn fill_payload<O: Outgoing>(&mut self, batch: &mut Batch<'_, O>) {
        let most = self.rate.frame_limit().max(BATCH_BYTES);
        // One class per batch: between batches streams that have room again queue more payload, and
        // a lower class must not take the capacity that a higher class is about to use.
        let mut class = self.schedule.class();
        let before = batch.frames;
        while batch.frames < BATCH && batch.bytes < most && self.schedule.class() == class {
            let Some(member) = self.schedule.next() else { return };
            let key = member.key;
            let Some(stream) = member.stream(&mut self.streams) else { continue };
            if O::LANES
                && stream.send.unsent() > 0
                && batch.out.holds_back(key, stream.priority, stream.send.under_way())
            {
                // The next CREDIT makes the stream ready again. Until then it blocks no other
                // stream.
                if batch.frames == before {
                    class = self.schedule.class();
                }
                continue;
            }
            let end_of_turn = batch.bytes + TURN;
            while batch.frames < BATCH && batch.bytes < end_of_turn {
                let Some(Popped { bytes: frame, pages }) = stream.send.pop() else { break };
                if let Some(pages) = pages {
                    if !self.scratch.is_empty() {
                        batch.push(self.scratch.split().freeze());
                    }
                    batch.push_pages(key, stream.priority, frame, pages);
                    continue;
                }
                if O::LANES && key.id != StreamId::CONTROL {
                    batch.push_payload(key, stream.priority, frame);
                    continue;
                }
                if !self.scratch.is_empty() {
                    batch.push(self.scratch.split().freeze());
                }
                batch.push(frame);
            }
            if let Some(end) = stream.send.take_fin() {
                if O::LANES && !self.scratch.is_empty() {
                    batch.push(self.scratch.split().freeze());
                }
                encode_fin(&mut self.scratch, key.id, end);
                if O::LANES {
                    batch.push_fin(key, self.scratch.split().freeze());
                }
            }
            self.schedule.make_ready(key, stream);
            self.announce_room(key);
        }
    }
}

struct Batch<'a, O> {
    out: &'a mut O,
    frames: usize,
    bytes: usize,
}

impl<O: Outgoing> Batch<'_, O> {
    fn push(&mut self, frame: Bytes) {
        self.count(&frame);
        self.out.push(frame);
    }

    fn push_payload(&mut self, key: StreamKey, priority: Priority, frame: Bytes) {
        self.count(&frame);
        self.out.push_payload(key, priority, frame);
    }

    fn push_pages(
        &mut self,
        key: StreamKey,
        priority: Priority,
        head: Bytes,
        pages: (Rc<dyn Pages>, usize),
    ) {
        self.count(&head);
        self.bytes += pages.1;
        self.out.push_pages(key, priority, head, pages);
    }

    fn push_fin(&mut self, key: StreamKey, frame: Bytes) {
        self.count(&frame);
        self.out.push_fin(key, frame);
    }

    fn count(&mut self, frame: &Bytes) {
        self.frames += 1;
        self.bytes += frame.len();
    }
}
