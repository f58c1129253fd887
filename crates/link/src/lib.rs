//! Drives a `proto::Link` over carriers: the one place where the protocol meets sockets and timers.
//!
//! ```text
//!   carrier --> reader --+--> Outlet::deliver (inline, no task in between)
//!                        |
//!                  proto::Link (RefCell, one thread)
//!                        |
//!   carrier <-- writer <-+--- Inlet::send (woken once per turn of the runtime)
//! ```
//! [`Link`] is the handle of a link; [`client`] dials, greets and resumes for ever; [`server`]
//! greets who comes in. Everything of a link lives on one worker.

mod accept;
mod alarm;
mod attach;
mod backoff;
mod budget;
mod charge;
pub mod client;
mod dial;
mod dispatch;
mod drive;
mod end;
mod gathered;
mod greet;
mod guard;
mod handle;
mod inlet;
mod inner;
mod io;
mod lanes;
mod notices;
mod reader;
mod retire;
mod retirement;
pub mod server;
mod state;
mod strain;
mod system;
mod tasks;
mod timer;
mod wakers;
mod writer;

pub use backoff::Retry;
pub use budget::{Lease, ProcessBudget};
pub use dial::{Path, dial};
pub use greet::GreetError;
pub use inner::{Link, Owner};
pub use state::{End, Settings, State};
pub(crate) use system::now;
pub use system::random;
