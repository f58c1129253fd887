//! The sockets of flows: UDP to visitors and targets, read and written in batches.
//!
//! | file | content |
//! |---|---|
//! | `socket` | [`FlowSocket`]: the operations of a task on one socket |
//! | `read` | received datagrams, in a buffer that the sockets of a thread share |
//! | `batch` | datagrams to send, by destination |
//! | `send` | one call for a batch, and the meaning of errors |
//! | `options` | the creation of the sockets |
//!
//! No error ends a UDP socket: an error concerns one datagram, or reports an earlier datagram
//! (ICMP). Lost datagrams are counted by reason in a [`Tally`].

mod batch;
mod options;
mod read;
mod send;
mod socket;

use std::net::{IpAddr, SocketAddr};

pub use options::dialling;
pub use read::Arrival;
pub use socket::{DetachedSocket, FlowSocket, connect};

/// The route of a datagram, with addresses in the form of the socket: a dual-stack socket has
/// IPv4-mapped addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The peer.
    pub peer: SocketAddr,
    /// The source address of the datagram. `None`: the system chooses.
    pub local: Option<IpAddr>,
    /// The code point of the datagram ([`crate::dscp`]).
    pub dscp: u8,
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// It exceeds the maximum packet size.
    TooBig,
    /// The peer does not listen, or no route leads to it.
    Unreachable,
    /// A rule of the system forbids it.
    Denied,
    /// The socket or the queue of the interface is full.
    Full,
    /// Another system error.
    Failed,
}

/// Counts the datagrams of a socket. Its methods must not use the socket.
pub trait Tally {
    /// The system accepted `datagrams` datagrams with `bytes` bytes in total.
    fn sent(&self, datagrams: usize, bytes: usize);

    /// `datagrams` datagrams were lost.
    fn lost(&self, loss: Loss, datagrams: usize);
}
