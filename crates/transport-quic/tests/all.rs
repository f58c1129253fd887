//! The tests of the crate from outside, as a single program: a program for each file would be
//! linked for each file.

mod conformance;
mod handshake;
mod lanes;
mod paths;
mod punched;
mod restart;
mod setup;
mod stun;
mod tls;
