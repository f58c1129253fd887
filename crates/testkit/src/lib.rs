//! What tests of every crate share.
//!
//! [`certs`] makes certificates, good and bad; [`conformance`] is the suite every transport passes
//! unchanged. [`pair`] is two links in virtual time over the emulated carriers of [`netem`].

pub mod certs;
pub mod conformance;
pub mod netem;
pub mod origins;
pub mod pair;
