//! A visitor.

use cluster::node::PeerOpen;

use super::events::Process;

/// A visitor on its way to a client.
#[derive(Clone, Debug)]
pub(super) struct SimVisit {
    pub(super) client: u32,
    /// The node that it has come to, and when, in microseconds.
    pub(super) ingress: Process,
    pub(super) came: u64,
    /// How often its node has found nobody.
    pub(super) tries: u8,
    /// How often a node has refused it since then.
    pub(super) refusals: u8,
    /// The stream that its node has opened last, and the owner.
    pub(super) open: Option<(Process, PeerOpen)>,
}
