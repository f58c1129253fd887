//! The server's half of a greeting. Who may log in is decided by a [`Verifier`]; which worker gets
//! the link, by the caller: a [`Greeted`] can be sent to it.

mod exchange;
mod greeted;
mod verifier;

pub use greeted::{Greeted, greet, greet_early};
pub use verifier::{PreviewFuture, Verifier, VerifierFuture};
