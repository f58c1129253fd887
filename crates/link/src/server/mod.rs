//! The server's half of a greeting. A [`Verifier`] decides which client may log in. The caller
//! decides which worker gets the link, and may send the [`Greeted`] carrier to that worker.

mod exchange;
mod greeted;
mod verifier;

pub use greeted::{Greeted, greet, greet_early};
pub use verifier::{PreviewFuture, Verifier, VerifierFuture};
