//! The rigs of the micro-benchmarks and of the test of allocations: real parts of the tunnel, put
//! together so that one call is one operation.
//!
//! [`Receiver`] is one state machine that receives bytes. [`Links`] is two state machines in
//! virtual time, without I/O. [`Path`] is the whole data path between two sockets: relay, link,
//! carrier, link, relay, on one thread.

mod greeting;
mod links;
mod path;
mod receiver;

pub use greeting::Greeting;
pub use links::{End, Links};
pub use path::{Over, Path};
pub use receiver::Receiver;
