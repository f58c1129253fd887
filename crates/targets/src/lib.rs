//! Where the visitors of a service or of an entry of a proxy go: the targets that this process
//! dials.
//!
//! | file | content |
//! |---|---|
//! | `local` | a service on one worker: what its streams and flows are connected with |
//! | `address` | which address is dialled for a target |
//! | `pool`, `choice` | the targets of a service with their states, and the choice for a visitor |
//! | `checks`, `trial` | questions to targets without a visitor: regular checks, and a test by hand |
//! | `site` | TLS and the host of a target that is a site |
//! | `state` | the counters of services on one worker |

mod address;
mod checks;
mod choice;
mod local;
mod pool;
mod site;
mod state;
pub mod trial;

pub use checks::{Checked, check_targets};
pub use local::{Introduction, Local, Records, lead_flows};
pub use pool::{Pool, Pools};
pub use state::TargetsState;
