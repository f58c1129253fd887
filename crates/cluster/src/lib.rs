//! One logical server of several nodes: the rules by which nodes agree, without any socket, clock
//! or task. Times, random numbers, requests of the node and answers of the engine come in as
//! arguments; requests to the engine and to other nodes come out.
//!
//! | question | module |
//! |---|---|
//! | what can the engine be asked, and what does it answer | [`engine`] |
//! | how are nodes, clients, resources and their numbers called | [`names`] |
//! | where does a record lie in the engine | [`keys`] |
//! | what does a record say, and which values are none | [`record`] |
//! | what can the server keep for all nodes | [`blob`] |
//! | what does a node do, and when | [`node`] |
//! | when do clients go to emptier nodes | [`balance`] |
//! | what does a process of a node leave to the next process | [`heirloom`] |
//! | how does a message between two nodes look | [`wire`] |
//! | how does the engine behave, for tests (feature `testing`) | `testing` |

pub mod balance;
pub mod blob;
pub mod engine;
pub mod heirloom;
pub mod keys;
#[cfg(test)]
mod model;
mod moment;
pub mod names;
pub mod node;
pub mod record;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;

pub use moment::Moment;
