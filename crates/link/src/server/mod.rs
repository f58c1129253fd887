//! The accepting half of a link, for a server and for any other process. A [`Verifier`] decides
//! which client may log in. A [`Placement`] passes the [`Greeted`] carrier to its link, which may
//! be on another worker.

mod accept;
mod exchange;
mod greeted;
mod verifier;

pub use accept::{Backlog, LogInError, Placement, accept, log_in, log_in_passed};
pub use greeted::{Greeted, greet, greet_early};
pub use verifier::{OtherEnd, PreviewFuture, Stray, Verifier, VerifierFuture};
