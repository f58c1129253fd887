//! The congestion window of kcp-go: Reno in segments, with one step for each datagram.

/// The least threshold between slow start and avoidance, in segments.
const LEAST_THRESHOLD: u32 = 2;

/// The window in segments, and its growth in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CongestionWindow {
    /// `cwnd`. It begins with 0, so that the first flush sends nothing.
    pub(super) segments: u32,
    /// `ssthresh`.
    pub(super) threshold: u32,
    /// `incr`: the window in bytes, which grows by less than a segment.
    pub(super) bytes: u32,
    payload: u32,
}

/// The retransmissions of a flush.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// A segment was retransmitted before its time-out.
    pub(super) is_early: bool,
    /// A segment was retransmitted at its time-out.
    pub(super) is_timeout: bool,
}

impl CongestionWindow {
    /// An empty window. `payload` is the largest payload of a segment in bytes.
    pub(super) const fn new(payload: u32) -> Self {
        Self { segments: 0, threshold: LEAST_THRESHOLD, bytes: 0, payload }
    }

    /// A datagram acknowledged segments.
    pub(super) fn acknowledged(&mut self, remote_window: u16) {
        let (remote, payload) = (u32::from(remote_window), self.payload);
        if self.segments >= remote {
            return;
        }
        if self.segments < self.threshold {
            self.segments += 1;
            self.bytes = self.bytes.wrapping_add(payload);
        } else {
            let bytes = self.bytes.max(payload);
            let step = payload.wrapping_mul(payload) / bytes.max(1) + payload / 16;
            self.bytes = bytes.wrapping_add(step);
            if self.segments.wrapping_add(1).wrapping_mul(payload) <= self.bytes {
                self.segments = self.bytes.div_ceil(payload.max(1));
            }
        }
        if self.segments > remote {
            self.segments = remote;
            self.bytes = remote.wrapping_mul(payload);
        }
    }

    /// A flush has ended. `in_flight` is the number of segments in flight, `used` the window of the
    /// flush, and `resend` the threshold of the fast retransmission. The sum with the threshold
    /// wraps if the threshold is off.
    pub(super) fn flushed(&mut self, losses: Losses, in_flight: u32, used: u32, resend: u32) {
        if losses.is_early {
            self.threshold = (in_flight / 2).max(LEAST_THRESHOLD);
            self.segments = self.threshold.wrapping_add(resend);
            self.bytes = self.segments.wrapping_mul(self.payload);
        }
        if losses.is_timeout {
            self.threshold = (used / 2).max(LEAST_THRESHOLD);
            self.segments = 0;
        }
        if self.segments < 1 {
            self.segments = 1;
            self.bytes = self.payload;
        }
    }
}
