//! Buffers, address racing, listeners and sockets: the parts of the network that `relay`, `link`
//! and all transports share. The crate knows no transport and no stream.
//!
//! | module | content |
//! |---|---|
//! | [`brake`] | guesses of passwords, bounded by service and source |
//! | [`cache`] | the size of the second-level cache |
//! | [`dscp`] | the mark of packets by which routers choose a queue |
//! | [`forwarded`] | the visitor that a reverse proxy names |
//! | [`pool`] | read buffers of a worker |
//! | [`gather`] | gathered writes |
//! | [`guarded`] | access to the power over the daemon, to which no target leads |
//! | [`pages`] | bytes that pass between sockets without a copy |
//! | [`inherited`] | listening sockets that another process hands over |
//! | [`handover`] | listening sockets that this process hands over, and when they accept |
//! | `family` | [`bindable`]: what `[::]` is on a machine without IPv6 |
//! | [`race`] | racing several addresses |
//! | [`resolve`] | name lookups that cannot starve each other |
//! | [`socket`] | TCP sockets: how they are made, read and written |
//! | [`own`] | the addresses of this machine |
//! | [`interfaces`] | the same, those first that another machine most probably reaches |
//! | [`source`] | limits by the source address |
//! | [`tcp_info`] | the figures that the kernel has of a TCP connection |
//! | `listen` | [`listen_group`]: one TCP listener per worker on one address |
//! | [`zone`] | the interfaces of link-local addresses |
//! | [`udp`] | UDP sockets: groups on one address with buffers and steering, batches for flows |
//! | `current` | [`Current`]: a setting of a listener that can be replaced while it listens |

pub mod brake;
pub mod cache;
mod current;
pub mod dscp;
mod family;
pub mod forwarded;
pub mod gather;
pub mod guarded;
pub mod handover;
pub mod inherited;
pub mod interfaces;
mod listen;
#[cfg(test)]
mod no_check;
pub mod own;
pub mod pages;
pub mod pool;
pub mod race;
pub mod resolve;
pub mod socket;
pub mod source;
pub mod tcp_info;
pub mod udp;
pub mod zone;

pub use current::Current;
pub use family::bindable;
pub use listen::{died_in_queue, listen_group};
