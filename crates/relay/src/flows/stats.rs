//! The counters of the flows of one service on one worker, like [`crate::Stats`] for its streams.

use std::cell::Cell;

use net::udp::{Loss, Tally};
use proto::ResetCode;

use crate::throttle::Throttle;

/// Why a datagram was dropped, or a flow was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The link could not take it in time.
    QueueFull,
    /// There is no link to the far side, or another worker reads the datagrams of the peer now.
    NoLink,
    /// The limit of flows is reached.
    Limit,
    /// The limit of flows of the peer's address is reached, and all of its flows are in use.
    SourceLimit,
    /// Its flow was evicted for another flow before an answer arrived.
    Evicted,
    /// It arrived before its flow was ready, and too many datagrams were queued already.
    Early,
    /// It arrived after its flow had ended.
    Late,
    /// Other fragments of the datagram did not arrive.
    Unjoined,
    /// It exceeds the maximum size of a datagram.
    TooBig,
    /// The target refused it, or cannot be reached.
    Unreachable,
    /// The socket, or the queue of its interface, was full.
    SocketFull,
    /// A rule forbids the peer or the target.
    Denied,
    /// A byte rate was exceeded.
    Rate,
    /// It came from a load balancer that announces visitors, but has no header with the visitor's
    /// address.
    NoHeader,
    /// Another error of the system.
    Failed,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 15] = [
        Self::QueueFull,
        Self::NoLink,
        Self::Limit,
        Self::SourceLimit,
        Self::Evicted,
        Self::Early,
        Self::Late,
        Self::Unjoined,
        Self::TooBig,
        Self::Unreachable,
        Self::SocketFull,
        Self::Denied,
        Self::Rate,
        Self::NoHeader,
        Self::Failed,
    ];

    /// The machine-readable name, for labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::NoLink => "no_link",
            Self::Limit => "limit",
            Self::SourceLimit => "source_limit",
            Self::Evicted => "evicted",
            Self::Early => "early",
            Self::Late => "late",
            Self::Unjoined => "unjoined",
            Self::TooBig => "too_big",
            Self::Unreachable => "unreachable",
            Self::SocketFull => "socket_full",
            Self::Denied => "denied",
            Self::Rate => "rate",
            Self::NoHeader => "no_header",
            Self::Failed => "failed",
        }
    }

    /// The reason under which the datagrams of a refused flow are counted.
    pub(crate) const fn of_refusal(code: ResetCode) -> Self {
        match code {
            ResetCode::Denied => Self::Denied,
            ResetCode::Limit => Self::Limit,
            ResetCode::Refused | ResetCode::Unreachable | ResetCode::Timeout => Self::Unreachable,
            ResetCode::Aborted
            | ResetCode::Unknown
            | ResetCode::Shutdown
            | ResetCode::Internal
            | ResetCode::Moved
            | ResetCode::Other(_) => Self::NoLink,
        }
    }
}

impl From<Loss> for DropReason {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::TooBig => Self::TooBig,
            Loss::Unreachable => Self::Unreachable,
            Loss::Denied => Self::Denied,
            Loss::Full => Self::SocketFull,
            Loss::Failed => Self::Failed,
        }
    }
}

/// The counters since the service began, and the gauge [`FlowStats::live`]. Only the worker's own
/// thread uses them.
#[derive(Debug, Default)]
pub struct FlowStats {
    opened: Cell<u64>,
    live: Cell<u64>,
    datagrams_in: Cell<u64>,
    datagrams_out: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    dropped: [Cell<u64>; DropReason::ALL.len()],
    evicted: Cell<u64>,
    idle: Cell<u64>,
    roamed: Cell<u64>,
    /// Limits the log lines about limits and refusals.
    pub(super) complaints: Throttle,
}

impl FlowStats {
    /// The number of flows that began.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.get()
    }

    /// The number of flows that exist.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.get()
    }

    /// The number of datagrams read from sockets, including dropped ones.
    #[must_use]
    pub fn datagrams_in(&self) -> u64 {
        self.datagrams_in.get()
    }

    /// The number of datagrams that the system accepted for sending.
    #[must_use]
    pub fn datagrams_out(&self) -> u64 {
        self.datagrams_out.get()
    }

    /// The bytes of [`Self::datagrams_in`].
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.get()
    }

    /// The bytes of [`Self::datagrams_out`].
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.get()
    }

    /// The number of datagrams that were dropped for this reason, in either direction.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].get()
    }

    /// The reasons with their numbers of datagrams, without reasons that did not occur.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let all = DropReason::ALL.iter().map(|&reason| (reason, self.dropped(reason)));
        all.filter(|&(_, count)| count > 0)
    }

    /// The number of flows that were evicted for another flow.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.get()
    }

    /// The number of flows that ended because they were idle.
    #[must_use]
    pub fn idle(&self) -> u64 {
        self.idle.get()
    }

    /// The number of flows that went on with the socket of a former flow of their visitor.
    #[must_use]
    pub fn roamed(&self) -> u64 {
        self.roamed.get()
    }

    /// An identity of these counters, which differs from that of all other counters
    /// ([`transport::FlowOutlet::counted_in`]).
    #[must_use]
    pub const fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Counts datagrams that the caller dropped.
    pub fn count_dropped(&self, reason: DropReason, datagrams: usize) {
        add(&self.dropped[reason as usize], datagrams as u64);
    }

    pub(crate) fn count_in(&self, datagrams: usize, bytes: usize) {
        add(&self.datagrams_in, datagrams as u64);
        add(&self.bytes_in, bytes as u64);
    }

    pub(crate) fn count_evicted(&self) {
        add(&self.evicted, 1);
    }

    pub(crate) fn count_idle(&self) {
        add(&self.idle, 1);
    }

    pub(crate) fn count_roamed(&self) {
        add(&self.roamed, 1);
    }

    pub(crate) fn enter(&self) {
        add(&self.opened, 1);
        add(&self.live, 1);
    }

    pub(crate) fn leave(&self) {
        self.live.set(self.live.get().saturating_sub(1));
    }
}

impl Tally for FlowStats {
    fn sent(&self, datagrams: usize, bytes: usize) {
        add(&self.datagrams_out, datagrams as u64);
        add(&self.bytes_out, bytes as u64);
    }

    fn lost(&self, loss: Loss, datagrams: usize) {
        self.count_dropped(loss.into(), datagrams);
    }
}

/// Whether this code means that the far side refused the flow at its first datagram.
pub(crate) const fn is_refusal(code: ResetCode) -> bool {
    match code {
        ResetCode::Aborted | ResetCode::Shutdown | ResetCode::Timeout | ResetCode::Moved => false,
        ResetCode::Refused
        | ResetCode::Unreachable
        | ResetCode::Denied
        | ResetCode::Limit
        | ResetCode::Unknown
        | ResetCode::Internal
        | ResetCode::Other(_) => true,
    }
}

fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get().wrapping_add(n));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_name() {
        let stats = FlowStats::default();
        for (turn, reason) in DropReason::ALL.into_iter().enumerate() {
            stats.count_dropped(reason, turn + 1);
        }
        let counts: Vec<_> = stats.drops().map(|(_, count)| count).collect();
        assert_eq!(counts, (1..=DropReason::ALL.len() as u64).collect::<Vec<_>>());
        let names: std::collections::BTreeSet<_> =
            DropReason::ALL.into_iter().map(DropReason::name).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
    }
}
