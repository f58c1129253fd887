//! The targets for the visitors of a service or of an entry of a proxy, which this process dials.
//!
//! | file | content |
//! |---|---|
//! | `local` | a service on one worker: the targets of its streams and flows |
//! | `roaming` | the flows of a visitor at several servers, over all workers |
//! | `address` | which address is dialled for a target |
//! | `pool`, `choice` | the targets of a service with their states, and the choice for a visitor |
//! | `checks`, `trial` | probes of targets without a visitor: periodic checks, and manual tests |
//! | `site` | TLS and the host of a target that is a site |
//! | `state` | the counters of services on one worker |

mod address;
mod checks;
mod choice;
mod local;
mod pool;
mod roaming;
mod site;
mod state;
pub mod trial;

pub use checks::{Checked, check_targets};
pub use local::{Introduction, Local, Records, lead_flows};
pub use pool::{Pool, Pools};
pub use state::TargetsState;
