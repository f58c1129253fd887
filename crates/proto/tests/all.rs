//! The tests of the crate from outside, as a single program: a program for each file would be
//! linked for each file.

mod corpus;
mod flows;
mod kill_model;
mod lanes;
mod memory;
mod pair;
mod random_kills;
mod retire;
mod spec;
mod spec_greeting;
mod stalled;
mod violations;
