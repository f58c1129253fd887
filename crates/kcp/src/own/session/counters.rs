//! Counters of a session: sent and received packets and bytes.

/// Sums since the beginning of the session. Counters of several sessions can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of payload of streams that were sent, each counted once.
    pub bytes_out: u64,
    /// Bytes of payload of streams that arrived, each counted once.
    pub bytes_in: u64,
    /// Packets that were sent.
    pub packets_out: u64,
    /// Bytes of these packets, without UDP headers.
    pub packet_bytes_out: u64,
    /// Packets that were opened.
    pub packets_in: u64,
    /// Packets that the peer did not seal, or that belong to another connection.
    pub refused: u64,
    /// Packets whose number had been accepted before, or is too old.
    pub replayed: u64,
    /// Packets that the peer sealed and that are malformed.
    pub malformed: u64,
    /// Acknowledgements that were sent, alone or together with data.
    pub acks_out: u64,
    /// Packets with retransmitted segments.
    pub repeated_out: u64,
    /// Packets that arrived with a congestion mark.
    pub congested_in: u64,
    /// Packets that arrived at the peer with a congestion mark, as reported by the peer.
    pub congested_out: u64,
    /// Packets that were lost, whether their content was retransmitted or not.
    pub lost: u64,
    /// Bytes of these packets.
    pub lost_bytes: u64,
    /// Bytes of packets that have arrived.
    pub acked_bytes: u64,
    /// Bytes of packets that were sent while the congestion window or the pacer delayed other
    /// packets.
    pub limited_bytes: u64,
    /// Lost packets that parity should rebuild at the peer.
    pub left_to_parity: u64,
    /// Lost packets that parity should have rebuilt and whose content was retransmitted
    /// nevertheless.
    pub overdue: u64,
    /// Packets that counted as lost and arrived.
    pub spurious: u64,
    /// Timeouts after which a probe was sent.
    pub probes: u64,
    /// Packets with parity, and their bytes.
    pub parity_out: u64,
    /// Bytes of packets with parity.
    pub parity_bytes_out: u64,
    /// Packets that were rebuilt.
    pub rebuilt: u64,
    /// Received duplicates of segments.
    pub repeated_in: u64,
    /// Segments for which the window had no room.
    pub beyond_in: u64,
    /// Packets with a part of a segment that is larger than a packet.
    pub parts_out: u64,
    /// Number of times that the path stopped carrying large packets.
    pub black_holes: u64,
    /// Datagrams that were sent.
    pub datagrams_out: u64,
    /// Datagrams that arrived or were rebuilt. Each datagram counts once.
    pub datagrams_in: u64,
    /// Datagrams that arrived after they were rebuilt, or whose group is too old.
    pub datagrams_late: u64,
    /// Datagrams that were dropped: at the receiver because the user did not read them in time, or
    /// at the sender because packets had become smaller.
    pub datagrams_dropped: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let pairs = [
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.packets_out, other.packets_out),
            (&mut self.packet_bytes_out, other.packet_bytes_out),
            (&mut self.packets_in, other.packets_in),
            (&mut self.refused, other.refused),
            (&mut self.replayed, other.replayed),
            (&mut self.malformed, other.malformed),
            (&mut self.acks_out, other.acks_out),
            (&mut self.repeated_out, other.repeated_out),
            (&mut self.congested_in, other.congested_in),
            (&mut self.congested_out, other.congested_out),
            (&mut self.lost, other.lost),
            (&mut self.lost_bytes, other.lost_bytes),
            (&mut self.acked_bytes, other.acked_bytes),
            (&mut self.limited_bytes, other.limited_bytes),
            (&mut self.left_to_parity, other.left_to_parity),
            (&mut self.overdue, other.overdue),
            (&mut self.spurious, other.spurious),
            (&mut self.probes, other.probes),
            (&mut self.parity_out, other.parity_out),
            (&mut self.parity_bytes_out, other.parity_bytes_out),
            (&mut self.rebuilt, other.rebuilt),
            (&mut self.repeated_in, other.repeated_in),
            (&mut self.beyond_in, other.beyond_in),
            (&mut self.parts_out, other.parts_out),
            (&mut self.black_holes, other.black_holes),
            (&mut self.datagrams_out, other.datagrams_out),
            (&mut self.datagrams_in, other.datagrams_in),
            (&mut self.datagrams_late, other.datagrams_late),
            (&mut self.datagrams_dropped, other.datagrams_dropped),
        ];
        for (sum, part) in pairs {
            *sum += part;
        }
    }
}
