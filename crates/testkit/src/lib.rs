//! Test tools that all crates share.
//!
//! A build without default features has six modules, and all are pure. [`pair`] is two links in
//! virtual time over the emulated carriers of [`netem`]. [`mod@transfer`] checks a stream between
//! two ends byte by byte. [`judge`] judges histories of several nodes. [`corpus`] replays the
//! inputs of fuzz targets. [`secrets`] has a configuration for each key that may hold a secret.
//!
//! The default features add the rest. `certs` makes valid and flawed certificates. `conformance` is
//! the suite that every transport passes unchanged. `path` is a NAT box with weather between a
//! client and a server over UDP. `origins` are real, small TCP servers. `peer` is a hostile client.
//! `stage` starts real daemons and the software around them. `cage` runs a test among network
//! namespaces of its own: NATs, a host with several uplinks, hosts at one bridge. `wire` is a path
//! between two daemons that breaks on demand.

#[cfg(feature = "stage")]
pub mod cage;
#[cfg(feature = "full")]
pub mod certs;
#[cfg(feature = "full")]
pub mod conformance;
pub mod corpus;
pub mod judge;
pub mod netem;
#[cfg(feature = "full")]
pub mod origins;
pub mod pair;
#[cfg(feature = "full")]
pub mod path;
#[cfg(feature = "full")]
pub mod peer;
pub mod secrets;
#[cfg(feature = "stage")]
pub mod stage;
pub mod transfer;
#[cfg(feature = "stage")]
pub mod wire;
