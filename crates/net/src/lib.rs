//! Buffers, address racing, listeners and sockets: the network primitives that `relay`, `link` and
//! all transports share. The crate does not depend on transports or streams.
//!
//! | module | content |
//! |---|---|
//! | [`brake`] | limits on password guessing, by service and source |
//! | [`cache`] | the size of the second-level cache |
//! | `changes` | [`NetworkChanges`]: the kernel's announcements of other addresses and routes |
//! | [`dscp`] | the packet mark by which routers choose a queue |
//! | [`forwarded`] | the client address that a reverse proxy reports |
//! | [`gateway`] | the default route of this machine, by which its network is recognised |
//! | [`pool`] | read buffers of a worker |
//! | [`gather`] | gathered writes |
//! | [`guarded`] | the control interfaces of the daemon, which no target may reach |
//! | [`pages`] | zero-copy transfer between sockets |
//! | [`inherited`] | listening sockets that another process hands over |
//! | [`handover`] | listening sockets that this process hands over, and when they accept |
//! | `family` | [`bindable`]: the meaning of `[::]` on a machine without IPv6 |
//! | [`race`] | racing several addresses |
//! | [`resolve`] | name lookups that cannot starve each other |
//! | [`socket`] | TCP sockets: creation, reads and writes |
//! | [`options`] | the options of sockets, declared once |
//! | [`own`] | the addresses of this machine |
//! | [`interfaces`] | the addresses of this machine, the most reachable first |
//! | [`source`] | limits by the source address |
//! | [`tcp_info`] | the kernel's statistics of a TCP connection |
//! | `listen` | [`listen_group`]: one TCP listener per worker on one address |
//! | [`zone`] | the interfaces of link-local addresses |
//! | [`udp`] | UDP sockets: groups on one address with buffers and steering, batches for flows |
//! | `current` | [`Current`]: a setting of a listener that can be replaced while it listens |

pub mod brake;
pub mod cache;
mod changes;
mod current;
pub mod dscp;
mod family;
pub mod forwarded;
pub mod gateway;
pub mod gather;
pub mod guarded;
pub mod handover;
pub mod inherited;
pub mod interfaces;
mod listen;
#[cfg(test)]
mod no_check;
pub mod options;
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

pub use changes::{NetworkChange, NetworkChanges};
pub use current::Current;
pub use family::bindable;
pub use listen::{died_in_queue, listen_group, listen_group_with};
pub use options::SocketOptions;
