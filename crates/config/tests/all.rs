//! The tests of the crate from outside, as a single program: a program for each file would be
//! linked for each file.

mod client_ca;
mod corpus;
mod examples;
mod names;
mod networks;
mod reference;
mod requests;
mod servers;
mod udp_and_proxies;
mod values;
mod wrong;
