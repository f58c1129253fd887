//! What tests of every crate share.
//!
//! [`certs`] makes certificates, good and bad; [`conformance`] is the suite every transport passes
//! unchanged.

pub mod certs;
pub mod conformance;
pub mod origins;
