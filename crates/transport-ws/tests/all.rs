//! The tests of the crate from outside, as a single program: a program for each file would be
//! linked for each file.

mod autobahn;
mod client;
mod conformance;
mod corpus;
mod opening;
mod paged;
mod pings;
mod raw;
mod tungstenite;
