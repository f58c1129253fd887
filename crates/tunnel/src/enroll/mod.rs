//! `tunnel enroll`: a new client logs in with a one-time code, so no configuration must be copied.
//!
//! ```text
//!   server                                        the other machine
//!   tunnel enroll home -> a code, 10 minutes      tunnel client --enroll CODE
//!        |                                             |
//!        |  <---- greeting with the code ------------  |
//!   keeps what verifies the token    (both compute     writes client.yaml with the token,
//!   in state_dir/clients/home.yaml    the same one)    and starts
//! ```
//!
//! `kept` stores the clients of the server (`fleeting`: those of the demo, in memory), and `redeem`
//! is the client's side; `renew` is its part for a client that gets a new token, and `missing` its
//! part for a file that lacks servers of the code. All send the code by `exchange`. The code itself
//! is in `ops::enrol`.

mod exchange;
mod extend;
mod fleeting;
mod kept;
mod missing;
mod redeem;
mod renew;

pub(crate) use fleeting::Fleeting;
pub(crate) use kept::{Kept, NOBODY};
pub(crate) use redeem::{LINE_MAX, drafted, enroll_new, enroll_with, redeem};
