//! The visible state of a session. The descriptions have the names of kcp-go.

use super::Classic;
use crate::wire::{Millis, Sn};

/// The state of a session. Queues are counted in segments, times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Segments without a number (`snd_queue`).
    pub waiting: usize,
    /// Segments in flight, including acknowledged segments behind a hole (`snd_buf`).
    pub flying: usize,
    /// Segments for the reader (`rcv_queue`).
    pub ready: usize,
    /// Segments behind a hole or a full queue (`rcv_buf`).
    pub ahead: usize,
    /// Acknowledgements that are owed (`acklist`).
    pub owed: usize,
    /// The first number that is not acknowledged (`snd_una`).
    pub send_una: Sn,
    /// The number of the next new segment (`snd_nxt`).
    pub send_next: Sn,
    /// The number of the next segment in order (`rcv_nxt`).
    pub receive_next: Sn,
    /// The window of the peer (`rmt_wnd`).
    pub remote_window: u16,
    /// The congestion window in segments (`cwnd`).
    pub congestion_window: u32,
    /// The congestion window in bytes (`incr`).
    pub congestion_bytes: u32,
    /// The window at which slow start ends, in segments (`ssthresh`).
    pub threshold: u32,
    /// The smoothed round trip (`srtt`).
    pub round_trip: u32,
    /// The variation of the round trip (`rttvar`).
    pub variation: u32,
    /// The time-out of a segment (`rto`).
    pub timeout: u32,
    /// The wait before the peer is asked for its window. 0 while the window is open (`probe_wait`).
    pub probe_wait: u32,
    /// When the peer is asked (`ts_probe`).
    pub probe_at: Millis,
    /// Whether the next flush asks for the window of the peer (bit 0 of `probe`).
    pub asks: bool,
    /// Whether the next flush reports this end's window (bit 1 of `probe`).
    pub tells: bool,
    /// Whether a segment was sent 20 times (`link_state`). It has no effect.
    pub is_dead: bool,
}

impl Classic {
    /// The state of the session.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            waiting: self.outgoing.waiting(),
            flying: self.outgoing.flying(),
            ready: self.incoming.ready(),
            ahead: self.incoming.ahead(),
            owed: self.incoming.owed(),
            send_una: self.outgoing.una(),
            send_next: self.outgoing.next(),
            receive_next: self.incoming.next(),
            remote_window: self.remote_window,
            congestion_window: self.congestion.segments,
            congestion_bytes: self.congestion.bytes,
            threshold: self.congestion.threshold,
            round_trip: self.round_trip.smoothed(),
            variation: self.round_trip.variation(),
            timeout: self.round_trip.timeout(),
            probe_wait: self.probe.wait,
            probe_at: self.probe.at,
            asks: self.probe.asks,
            tells: self.probe.tells,
            is_dead: self.outgoing.is_dead(),
        }
    }
}
