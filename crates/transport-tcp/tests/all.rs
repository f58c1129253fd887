//! The tests of the crate from outside, as a single program: a program for each file would be
//! linked for each file.

mod conformance;
mod inside;
mod proxies;
mod setup;
mod tls_errors;
mod tls_trust;
