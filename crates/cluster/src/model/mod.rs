//! The rules of a cluster under faults: nodes ([`Node`](crate::node::Node)) before an engine in
//! memory, with servers, processes of clients and visitors, in virtual time.
//!
//! | file | content |
//! |---|---|
//! | `store.rs` | the engine |
//! | `world.rs` | nodes, their network, faults |
//! | `people.rs` | servers, processes of clients, visitors |
//! | `check.rs` | the invariants |
//! | `random.rs` | random schedules |
//! | `small.rs` | all schedules of a small case |

mod check;
mod people;
mod random;
mod small;
mod store;
mod world;
