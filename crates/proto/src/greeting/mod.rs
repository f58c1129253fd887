//! The greeting: before any frame, both sides prove their identities and agree on the link.
//!
//! ```text
//!   client                                  server
//!     |  <------------ TNL1 Nonce -----------  |    at once on accept
//!     |  ---- TNL1 Hello Proof ------------->  |    with an exporter: without waiting for Nonce
//!     |  <----------- Accept Signature ------  |    or: Refused
//! ```
//!
//! The construction is SCRAM-SHA-256 (RFC 5802, RFC 7677) without salt and iterations, which only
//! slow down guessing: a [`Token`] has 128 bits of entropy or is refused. The server stores values
//! that verify a proof but do not suffice to make a proof. Both proofs cover all messages before
//! them, and the exporter of the TLS connection if there is TLS ([`Binding`]). So a captured
//! greeting is useless on another connection. Without an exporter the client first waits for the
//! server's nonce.
//!
//! A client that resumes its link may greet in early data: see `early.rs`.
//!
//! The state machines are [`ClientGreeting`] and [`ServerGreeting`]: bytes go into `handle_input`,
//! bytes come out of `poll_output`. They hold no buffer: an incomplete message stays in the buffer
//! of the driver, which never needs more than [`GREETING_MAX`] bytes. The driver enforces
//! [`GREETING_TIMEOUT`], supplies randomness, and delays refusals by name and source.

mod client;
mod early;
mod error;
mod fuzz;
mod keys;
mod message;
mod name;
mod node_key;
mod offer;
mod passed;
mod refusal;
mod server;
#[cfg(test)]
mod tests;
mod token;
mod transcript;

use std::time::Duration;

pub use client::{ClientAccepted, ClientGreeting, ClientSetup, Identity};
pub use early::EarlyBinding;
pub use error::GreetingError;
#[doc(hidden)]
pub use fuzz::{fuzz_client, fuzz_server};
pub use keys::{EnrolledToken, LinkSecret, StoredCredential};
pub use message::{Attach, AttachMode, Features, Versions};
pub use name::{NAME_MAX, Name, NameError};
pub use node_key::NodeKey;
pub use offer::{ProvenOffer, is_signed, prove_offer, verify_offer};
pub use passed::PassedGreeting;
pub use refusal::Refusal;
pub use server::{Grant, ServerAccepted, ServerEvent, ServerGreeting, ServerSetup, Terms};
pub use token::{Token, TokenError};
pub use transcript::Binding;

/// The first bytes of each direction.
pub const MAGIC: [u8; 4] = *b"TNL1";

/// Maximum length of a greeting in one direction, in bytes. Currently the longest is below 400; the
/// rest is for fields of later versions.
pub const GREETING_MAX: usize = 4096;

/// Timeout of a whole greeting, enforced by the driver.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// Random bytes that each side contributes.
pub const NONCE_LENGTH: usize = 32;

/// Maximum number of credentials of a name: the old and the new credential during a change of the
/// token.
pub const CREDENTIALS_MAX: usize = 2;
