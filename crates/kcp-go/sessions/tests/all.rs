//! The tests of the crate from outside, as a single program: a program for each file would be
//! linked for each file.

mod classic;
mod corpus;
mod fec_allocations;
mod fec_properties;
mod fec_vectors;
mod session_allocations;
mod vectors;
