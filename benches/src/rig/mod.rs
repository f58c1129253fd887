//! What the micro-benchmarks and the test of allocations run: parts of the real thing, put together
//! so that one call is one operation.
//!
//! [`Receiver`] is a state machine that gets bytes. [`Links`] is two state machines and nothing else,
//! in virtual time. [`Path`] is the whole data path between two sockets: relay, link, carrier, link,
//! relay, on one thread.

mod greeting;
mod links;
mod path;
mod receiver;

pub use greeting::Greeting;
pub use links::{End, Links};
pub use path::{Over, Path};
pub use receiver::Receiver;
