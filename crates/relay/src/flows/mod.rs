//! Flows: the datagrams of one peer of a UDP socket, carried by a link.
//!
//! ```text
//!   socket of a port ──listen_flows──> table ──FlowHandler::open──> FlowInlet ──> link ─┐
//!        ▲                               │                                              │
//!        └──── FlowOutlet::deliver ──────┘        socket of the flow <──connect_flow────┘
//! ```
//!
//! | file | content |
//! |---|---|
//! | `near` | the end at which peers send: many flows on one socket |
//! | `visitors` | [`listen_flows`]: the sockets of ports. Those of SOCKS5: `proxy/associate` |
//! | `passage` | [`join_flow`]: both ends in this process, without a link |
//! | `targets` | [`connect_flow`]: the end that sends to a target, a socket for each flow |
//! | `table` | which flow is evicted when there are too many, and which flows are idle |
//! | `bounds` | limits of the number of flows, on all workers |
//! | `settings`, `stats` | what the flows of a service share on one worker |
//! | `ports` | limits of the number of sockets to targets in this process |
//!
//! Peers can spoof their addresses, so an unanswered flow has little value: it is evicted first,
//! and a flood of such flows evicts no conversation. Nothing here waits: a datagram that cannot be
//! forwarded is dropped and counted by its reason ([`DropReason`]).

mod bounds;
mod idle;
mod near;
mod passage;
mod ports;
mod settings;
mod stats;
mod table;
mod targets;
mod visitors;
mod waking;

pub use bounds::FlowBounds;
pub(crate) use idle::IdleTimer;
pub(crate) use near::{Ends, NearFlows, NearSocket};
pub use passage::join_flow;
pub use settings::FlowSettings;
use stats::is_refusal;
pub use stats::{DropReason, FlowStats};
pub use targets::{FlowCaller, FlowEntry, FlowTargets, FormerFlow, MovedSocket, connect_flow};
pub use visitors::{FlowHandler, ListeningFlows, listen_flows};

use net::udp::Arrival;
use transport::{DATAGRAM_MAX, FlowInlet};

/// Passes the datagrams of an arrival to the link. Returns the number of datagrams that were
/// dropped.
fn pass_on(arrival: &Arrival<'_>, inlet: &dyn FlowInlet, stats: &FlowStats) -> usize {
    // No datagram is larger than the first.
    if arrival.bytes() > DATAGRAM_MAX && arrival.count() == 1 {
        stats.count_dropped(DropReason::TooBig, 1);
        return 1;
    }
    hand_over(&mut arrival.datagrams(), arrival.count(), inlet, stats)
}

/// Passes `count` datagrams to the link. Returns the number of datagrams that were dropped.
pub(crate) fn hand_over(
    datagrams: &mut dyn Iterator<Item = &[u8]>,
    count: usize,
    inlet: &dyn FlowInlet,
    stats: &FlowStats,
) -> usize {
    let dropped = inlet.send(datagrams);
    if dropped > 0 {
        stats.count_dropped(DropReason::QueueFull, dropped);
    }
    // Dropped datagrams may include older ones of the flow.
    dropped.min(count)
}
