//! What tests of every crate share.
//!
//! [`pair`] is two links in virtual time over the emulated carriers of [`netem`]; [`corpus`] replays the
//! inputs of fuzz targets: these are pure, and all that a build without default features has. `certs`
//! makes certificates, good and bad; `conformance` is the suite every transport passes unchanged;
//! `origins` are real little servers. `stage` starts real daemons and software around them, and `wire`
//! is a TCP path between two of them that breaks on demand.

#[cfg(feature = "full")]
pub mod certs;
#[cfg(feature = "full")]
pub mod conformance;
pub mod corpus;
pub mod netem;
#[cfg(feature = "full")]
pub mod origins;
pub mod pair;
#[cfg(feature = "stage")]
pub mod stage;
#[cfg(feature = "stage")]
pub mod wire;
