//! The tests of the crate from outside, as a single program: a program for each file would be
//! linked for each file.

mod conformance;
mod corpus;
mod setup;
mod signalling;
