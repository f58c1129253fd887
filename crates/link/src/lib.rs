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

mod attach;
mod backoff;
mod budget;
mod carrier;
mod charge;
pub mod client;
mod dial;
mod drive;
mod greet;
mod handle;
mod inlet;
mod lanes;
mod owner;
mod reader;
mod retire;
pub mod server;
mod strain;
mod timer;
mod writer;

pub use backoff::Retry;
pub use budget::{Lease, ProcessBudget};
pub use dial::{Path, dial};
pub use greet::GreetError;
pub use handle::Link;
pub use owner::{End, Owner, Settings, State};

/// The time of the runtime, which tests can hold.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// Fresh random bytes from the operating system.
///
/// # Panics
/// Where the system has none nothing here is safe: the task ends, and its link with it.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(clippy::expect_used, reason = "no secret may be made from anything else")]
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}
