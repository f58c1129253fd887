//! Counters of an engine: sent and received segments and bytes.

/// Sums since the beginning of the conversation. Counters of several conversations can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of payload that were sent, each counted once.
    pub bytes_out: u64,
    /// Bytes of payload that arrived, each counted once.
    pub bytes_in: u64,
    /// Datagrams that were built.
    pub datagrams_out: u64,
    /// Acknowledgements that were sent.
    pub acks_out: u64,
    /// Segments that were sent again.
    pub repeated_out: u64,
    /// Bytes of segments that were sent again, heads included.
    pub repeated_bytes_out: u64,
    /// Segments that were declared lost.
    pub lost: u64,
    /// Segments that were declared lost and arrived.
    pub spurious: u64,
    /// Timeouts after which a segment was sent again as a probe.
    pub probes: u64,
    /// Segments of all kinds that arrived.
    pub segments_in: u64,
    /// Received segments with payload that had arrived before.
    pub repeated_in: u64,
    /// Segments with payload for which the window had no room.
    pub beyond_in: u64,
    /// Datagrams with a malformed segment, or of another conversation.
    pub malformed: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self {
            bytes_out,
            bytes_in,
            datagrams_out,
            acks_out,
            repeated_out,
            repeated_bytes_out,
            lost,
            spurious,
            probes,
            segments_in,
            repeated_in,
            beyond_in,
            malformed,
        } = other;
        self.bytes_out += bytes_out;
        self.bytes_in += bytes_in;
        self.datagrams_out += datagrams_out;
        self.acks_out += acks_out;
        self.repeated_out += repeated_out;
        self.repeated_bytes_out += repeated_bytes_out;
        self.lost += lost;
        self.spurious += spurious;
        self.probes += probes;
        self.segments_in += segments_in;
        self.repeated_in += repeated_in;
        self.beyond_in += beyond_in;
        self.malformed += malformed;
    }
}
