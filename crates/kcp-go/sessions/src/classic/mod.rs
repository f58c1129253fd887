//! The state machine of kcp-go, bug for bug: the behaviour of a stock peer with each datagram and
//! at each flush. Tests compare the engine with it and use it as the peer. A program uses it if it
//! has to behave like kcp-go on the wire. As in kcp-go, the cost of an acknowledgement is
//! proportional to the window.
//!
//! [`Classic`] is a plain value. Inputs are [`send`](Classic::send), [`write`](Classic::write),
//! [`recv`](Classic::recv), [`input`](Classic::input) and the passage of time; datagrams are passed
//! to the sink that [`input`](Classic::input), [`write`](Classic::write) and
//! [`flush`](Classic::flush) take. The one rule for a driver: call `flush` with [`Flush::Full`] at
//! the begin of a session, and again after the milliseconds that the last such call returned.
//!
//! | module | content |
//! |---|---|
//! | `config` | the settings |
//! | `outgoing` | segments that wait or are in flight, and when each is retransmitted |
//! | `incoming` | segments in and out of order, messages, acknowledgements that are owed |
//! | `round_trip` | the estimator of the round trip |
//! | `window` | the congestion window |
//! | `probe` | questions for a closed window |
//! | `datagram` | segments into datagrams |
//! | `counters` | what can be seen of a session |
//!
//! Two things differ from kcp-go, and no honest peer sees them. A `una` beyond what was sent is
//! ignored. A segment with an empty payload is an empty message for the reader. In kcp-go it blocks
//! the reader for ever.

mod config;
mod counters;
mod datagram;
mod incoming;
mod outgoing;
mod probe;
mod round_trip;
mod window;

pub use config::{Config, Flush, Packet};
pub use counters::Counters;
pub use incoming::ReceiveError;
pub use outgoing::SendError;
pub use round_trip::RoundTrip;

use crate::wire::{Command, HEAD, Head, Malformed, Millis, Segment, Segments, Sn};
use config::DEFAULT_WINDOW;
use datagram::Packer;
use incoming::Incoming;
use outgoing::{Outgoing, Rules, Transmitted};
use probe::Probe;
use window::CongestionWindow;

/// One end of a session of kcp-go, without FEC and encryption.
#[derive(Debug)]
pub struct Classic {
    config: Config,
    outgoing: Outgoing,
    incoming: Incoming,
    remote_window: u16,
    round_trip: RoundTrip,
    congestion: CongestionWindow,
    probe: Probe,
}

/// The requests of the segments of one datagram.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The timestamp of the last acknowledgement.
    echo: Option<Millis>,
    flushes: bool,
}

impl Classic {
    /// A new session. Settings out of range are clamped.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let config = config.checked();
        let payload = u32::try_from(config.payload()).unwrap_or(u32::MAX);
        Self {
            config,
            outgoing: Outgoing::default(),
            incoming: Incoming::new(config.receive_window),
            remote_window: DEFAULT_WINDOW,
            round_trip: RoundTrip::new(config.least_timeout(), config.interval),
            congestion: CongestionWindow::new(payload),
            probe: Probe::default(),
        }
    }

    /// Continues a session at other numbers: the number of the next segment to send, and the number
    /// of the next segment to receive. The call has no effect on a direction with segments in
    /// flight.
    pub fn start_at(&mut self, send: Sn, receive: Sn) {
        self.outgoing.start_at(send);
        self.incoming.start_at(receive);
    }

    /// Assumes a window of the peer, in segments, until the next segment of the peer.
    pub const fn assume_window(&mut self, segments: u16) {
        self.remote_window = segments;
    }

    /// Queues a message of any length up to 255 segments. The queue has no limit of its own; a
    /// caller looks at [`backlog`](Self::backlog).
    ///
    /// # Errors
    ///
    /// The message is empty or too long.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.outgoing.push(message, self.config.payload(), self.config.is_stream)
    }

    /// Queues bytes as the `Write` of a session of kcp-go does, each segment a message of its own,
    /// and flushes. Returns whether the bytes were taken: none or all of them.
    pub fn write(&mut self, now: Millis, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> bool {
        if self.backlog() >= usize::from(self.config.send_window) {
            return false;
        }
        for piece in bytes.chunks(self.config.payload()) {
            // A piece is neither empty nor long.
            let _ = self.send(piece);
        }
        self.flush(now, Flush::Full, sink);
        true
    }

    /// Segments that wait or are in flight.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.outgoing.waiting() + self.outgoing.flying()
    }

    /// The length of the next message in bytes if the message is complete.
    #[must_use]
    pub fn peek(&self) -> Option<usize> {
        self.incoming.peek()
    }

    /// Moves the next message into `to` and returns its length. If the read opens a closed window,
    /// the next flush reports the window.
    ///
    /// # Errors
    ///
    /// No message is complete, or it is longer than `to`.
    pub fn recv(&mut self, to: &mut [u8]) -> Result<usize, ReceiveError> {
        let (length, opens) = self.incoming.pop(to)?;
        self.probe.tells |= opens;
        Ok(length)
    }

    /// Takes a datagram of the peer, decrypted and without the head of FEC, and flushes where
    /// kcp-go does: when the window moved or a segment counts as lost, when a full datagram of
    /// acknowledgements is due, and, with `ack_no_delay`, when any acknowledgement is due.
    ///
    /// # Errors
    ///
    /// A segment is malformed. Earlier segments count, but nothing is flushed.
    pub fn input(
        &mut self,
        now: Millis,
        packet: Packet,
        ack_no_delay: bool,
        datagram: &[u8],
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Malformed> {
        let una = self.outgoing.una();
        let mut heard = Heard::default();
        for segment in Segments::new(self.config.conversation, datagram) {
            self.hear(&segment?, packet, &mut heard);
        }
        if let Some(echo) = heard.echo
            && packet == Packet::Regular
        {
            // The datagram gives one sample. A negative sample is ignored.
            self.round_trip.sample(now.since(echo));
        }
        if self.config.is_controlled && una.is_before(self.outgoing.una()) {
            self.congestion.acknowledged(self.remote_window);
        }
        let owed = self.incoming.owed();
        if heard.flushes {
            self.flush(now, Flush::Full, sink);
        } else if owed >= usize::from(self.config.mtu) / HEAD || (ack_no_delay && owed > 0) {
            self.flush(now, Flush::AcksOnly, sink);
        }
        Ok(())
    }

    fn hear(&mut self, segment: &Segment<'_>, packet: Packet, heard: &mut Heard) {
        let head = &segment.head;
        if packet == Packet::Regular {
            self.remote_window = head.window;
        }
        heard.flushes |= self.outgoing.acknowledge_before(head.una);
        match head.command {
            Command::Push => self.incoming.push(segment),
            Command::Ack => {
                let resend = self.config.resend;
                heard.flushes |= self.outgoing.acknowledge(head.sn, head.timestamp, resend);
                heard.echo = Some(head.timestamp);
            }
            Command::AskWindow => self.probe.tells = true,
            Command::TellWindow => {}
        }
    }

    /// Sends what is due. Returns the milliseconds until the next flush.
    pub fn flush(&mut self, now: Millis, flush: Flush, sink: &mut dyn FnMut(&[u8])) -> u32 {
        let mut packer = Packer::new(self.config.mtu, sink);
        let mut head = Head {
            conversation: self.config.conversation,
            command: Command::Ack,
            fragments: 0,
            window: self.incoming.room(),
            timestamp: Millis(0),
            sn: Sn(0),
            una: self.incoming.next(),
        };
        for owed in self.incoming.take_owed() {
            (head.sn, head.timestamp) = (owed.sn, owed.timestamp);
            packer.push(&head, &[]);
        }
        // Questions and answers repeat the numbers of the last acknowledgement.
        self.probe.see(now, self.remote_window);
        if std::mem::take(&mut self.probe.asks) {
            packer.push(&Head { command: Command::AskWindow, ..head }, &[]);
        }
        if std::mem::take(&mut self.probe.tells) {
            packer.push(&Head { command: Command::TellWindow, ..head }, &[]);
        }
        let window = self.window();
        let is_idle = !self.outgoing.admit(window);
        let resend = if self.config.resend == 0 { u32::MAX } else { self.config.resend };
        let mut done = Transmitted::default();
        if flush == Flush::Full {
            let timeout = self.round_trip.timeout();
            let back_off = if self.config.is_quick { timeout / 2 } else { timeout };
            let rules = Rules { timeout, back_off, resend, is_idle };
            done = self.outgoing.transmit(now, &rules, |segment| {
                let head = Head {
                    command: Command::Push,
                    fragments: segment.fragments,
                    timestamp: segment.sent,
                    sn: segment.sn,
                    ..head
                };
                packer.push(&head, &segment.payload);
            });
        }
        packer.finish();
        if self.config.is_controlled {
            let in_flight = self.outgoing.next().0.wrapping_sub(self.outgoing.una().0);
            self.congestion.flushed(done.losses, in_flight, window, resend);
        }
        done.next.map_or(self.config.interval, |next| next.min(self.config.interval))
    }

    /// The most segments in flight.
    fn window(&self) -> u32 {
        let window = u32::from(self.config.send_window.min(self.remote_window));
        if self.config.is_controlled { window.min(self.congestion.segments) } else { window }
    }
}

#[cfg(test)]
mod tests;
