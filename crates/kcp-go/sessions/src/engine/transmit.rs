//! Builds datagrams: first acknowledgements and windows, then probes, lost segments, and new
//! segments.

use std::time::Instant;

use super::{Engine, Purpose};
use crate::wire::{Command, HEAD, Head, Millis, Sn};
use kcp::stream::outgoing::{Fresh, Sent, State};

impl Engine {
    /// Appends the segments of the next datagram to `buf`. `None` if nothing may be sent now. Then
    /// `buf` is unchanged. At most [`Config::mtu`](super::Config::mtu) bytes are appended.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Purpose> {
        if self.is_silent {
            return None;
        }
        let start = buf.len();
        let end = start + usize::from(self.config.mtu);
        self.put_acks(now, buf, end);
        self.put_windows(now, buf, end);
        let purpose =
            if self.put_payload(now, buf, end) { Purpose::Data } else { Purpose::Control };
        if buf.len() == start {
            return None;
        }
        self.counters.datagrams_out += 1;
        Some(purpose)
    }

    fn head(&self, command: Command, timestamp: Millis, sn: Sn) -> Head {
        Head {
            conversation: self.config.conversation,
            command,
            fragments: 0,
            window: self.incoming.room(),
            timestamp,
            sn,
            una: self.incoming.next(),
        }
    }

    fn put_acks(&mut self, now: Instant, buf: &mut Vec<u8>, end: usize) {
        if self.acks.due().is_none_or(|due| due > now) {
            return;
        }
        let again = self.acks.again(self.incoming.next());
        while end - buf.len() >= HEAD
            && let Some(ack) = self.acks.pop(&self.incoming)
        {
            buf.extend_from_slice(&self.head(Command::Ack, ack.timestamp, ack.sn).encode(0));
            self.counters.acks_out += 1;
        }
        for _ in 0..again.min((end - buf.len()) / HEAD) {
            let Some(ack) = self.acks.pop_again() else { break };
            buf.extend_from_slice(&self.head(Command::Ack, ack.timestamp, ack.sn).encode(0));
        }
    }

    fn put_windows(&mut self, now: Instant, buf: &mut Vec<u8>, end: usize) {
        let has_to_send = self.outgoing.has_fresh() || self.outgoing.outstanding() > 0;
        if end - buf.len() >= HEAD
            && self.window_probe.asks(now, self.peer_window == 0 && has_to_send)
        {
            buf.extend_from_slice(&self.head(Command::AskWindow, Millis(0), Sn(0)).encode(0));
        }
        if end - buf.len() >= HEAD && self.incoming.tells_window() {
            buf.extend_from_slice(&self.head(Command::TellWindow, Millis(0), Sn(0)).encode(0));
        }
    }

    /// Appends segments with payload. Returns whether there was a segment.
    fn put_payload(&mut self, now: Instant, buf: &mut Vec<u8>, end: usize) -> bool {
        let start = buf.len();
        self.paced = None;
        while let Some(sn) = self.probes.front().copied() {
            match self.outgoing.sent(sn).map(|sent| (sent.state, sent.payload.len())) {
                Some((State::Flying | State::Lost, length)) => {
                    if end - buf.len() < HEAD + length {
                        return buf.len() > start;
                    }
                    self.probes.pop_front();
                    self.repeat(now, sn, buf);
                }
                _ => {
                    self.probes.pop_front();
                }
            }
        }
        while !self.holds_repeats
            && let Some(sn) = self.lost.front().copied()
        {
            match self.outgoing.sent(sn).map(|sent| (sent.state, sent.payload.len())) {
                Some((State::Lost, length)) => {
                    if end - buf.len() < HEAD + length || !self.may_send(now, length) {
                        return buf.len() > start;
                    }
                    self.lost.pop_front();
                    self.repeat(now, sn, buf);
                }
                _ => {
                    self.lost.pop_front();
                }
            }
        }
        self.put_fresh(now, buf, end);
        buf.len() > start
    }

    /// Appends segments that were never sent.
    fn put_fresh(&mut self, now: Instant, buf: &mut Vec<u8>, end: usize) {
        if self.delayed.is_some_and(|at| at > now) {
            return;
        }
        loop {
            let Some(length) = self.outgoing.next_length() else {
                self.is_limited = true;
                return;
            };
            let window = usize::from(self.peer_window.min(self.config.send_window));
            if self.outgoing.outstanding() >= window {
                self.is_limited = true;
                return;
            }
            if end - buf.len() < HEAD + length || !self.may_send(now, length) {
                return;
            }
            let Some(Fresh { payload, fragments }) = self.outgoing.pop_fresh() else { return };
            let sn = self.outgoing.next();
            self.counters.bytes_out += payload.len() as u64;
            let transmission = self.put(now, sn, fragments, &payload, buf);
            self.outgoing.push_sent(Sent {
                payload,
                fragments,
                transmission,
                transmissions: 1,
                state: State::Flying,
            });
        }
    }

    /// Sends an outstanding segment again.
    fn repeat(&mut self, now: Instant, sn: Sn, buf: &mut Vec<u8>) {
        let Some(sent) = self.outgoing.sent(sn) else { return };
        let (payload, fragments) = (sent.payload.clone(), sent.fragments);
        let (before, state) = (sent.transmission, sent.state);
        if state == State::Flying {
            // Of two copies in flight only the later copy counts.
            self.recovery.flight.withdraw(before);
        }
        self.counters.repeated_out += 1;
        self.counters.repeated_bytes_out += (HEAD + payload.len()) as u64;
        let transmission = self.put(now, sn, fragments, &payload, buf);
        if let Some(sent) = self.outgoing.sent(sn) {
            sent.transmission = transmission;
            sent.transmissions += 1;
            sent.state = State::Flying;
        }
    }

    /// Appends a segment. Returns the number of the transmission.
    fn put(
        &mut self,
        now: Instant,
        sn: Sn,
        fragments: u8,
        payload: &[u8],
        buf: &mut Vec<u8>,
    ) -> u64 {
        let stamp = self.stamp(now);
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let head = Head { fragments, ..self.head(Command::Push, stamp, sn) };
        buf.extend_from_slice(&head.encode(length));
        buf.extend_from_slice(payload);
        let bytes = length.saturating_add(HEAD as u32);
        // An answer of the peer is due from now on. Probes do not extend the deadline.
        if self.outgoing.outstanding() == 0 {
            self.heard = Some(self.heard.map_or(now, |heard| heard.max(now)));
        }
        let number = self.recovery.sent(now, (sn, stamp), bytes, self.is_limited);
        self.controller.sent(now, u64::from(bytes), number);
        self.pacer.sent(u64::from(bytes));
        number
    }

    /// Whether controller and pacer let a segment with `length` bytes leave.
    fn may_send(&mut self, now: Instant, length: usize) -> bool {
        let bytes = (HEAD + length) as u64;
        let round_trip = self.recovery.flight.rtt.smoothed();
        self.is_limited = false;
        if self.recovery.flight.in_flight() + bytes > self.controller.window(round_trip)
            && self.recovery.flight.in_flight() > 0
        {
            return false;
        }
        self.paced = self.pacer.wait(now, bytes, &self.controller, round_trip);
        self.paced.is_none()
    }
}
