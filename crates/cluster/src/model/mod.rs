//! The rules of a cluster under faults: nodes ([`Node`](crate::node::Node)) before an engine in
//! memory ([`testing`](crate::testing)), with servers, processes of clients and visitors, in
//! virtual time.
//!
//! | file | content |
//! |---|---|
//! | `world.rs` | nodes, their network, faults |
//! | `people.rs` | servers, processes of clients, visitors |
//! | `check.rs` | the invariants |
//! | `random.rs` | random schedules |
//! | `scenes/` | stories with one outcome each |
//! | `small.rs` | all schedules of a small case |

mod check;
mod people;
mod random;
mod scenes;
mod small;
mod world;

use crate::record::{Described, VERSIONS};

/// The record of a node with nothing special in it. `process`: the number of its process.
fn plain_node(process: u64) -> Described {
    Described {
        process,
        versions: VERSIONS,
        peers: Vec::new(),
        clients: Vec::new(),
        zone: "z".into(),
        program: "0".into(),
        draining: false,
        links: 0,
        secrets: Vec::new(),
    }
}
