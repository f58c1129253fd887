//! The sockets of flows: UDP of visitors and targets, read and written in batches.
//!
//! | file | content |
//! |---|---|
//! | `socket` | [`FlowSocket`]: what a task of a worker does with one socket |
//! | `read` | datagrams that arrive, in a buffer that the sockets of a thread share |
//! | `batch` | datagrams to send, by destination |
//! | `send` | one call for a batch, and what errors mean |
//! | `options` | how the sockets are made |
//!
//! A UDP socket has no error that ends it: an error belongs to one datagram, or tells of an earlier
//! one (ICMP). The datagrams that were lost are counted by reason in a [`Tally`].

mod batch;
mod options;
mod read;
mod send;
mod socket;

use std::net::{IpAddr, SocketAddr};

pub use options::dialling;
pub use read::Arrival;
pub use socket::{FlowSocket, connect};

/// Where a datagram goes, in the form in which the socket gave the addresses: a socket of both
/// families has IPv4-mapped ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The peer.
    pub peer: SocketAddr,
    /// The address of this machine that the datagram leaves from. `None`: the system chooses.
    pub local: Option<IpAddr>,
    /// The code point of the datagram ([`crate::dscp`]).
    pub dscp: u8,
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// It is larger than a packet may be.
    TooBig,
    /// The peer does not listen, or no route leads to it.
    Unreachable,
    /// A rule of the system forbids it.
    Denied,
    /// The socket or the queue of the interface is full.
    Full,
    /// Another error of the system.
    Failed,
}

/// Counts the datagrams of a socket. Its calls must not use the socket.
pub trait Tally {
    /// The system took `datagrams` datagrams of `bytes` bytes together.
    fn sent(&self, datagrams: usize, bytes: usize);

    /// `datagrams` datagrams were lost.
    fn lost(&self, loss: Loss, datagrams: usize);
}
