//! Arbitrary packet contents from a peer that has the keys: a session keeps its invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::own::fuzz::session(data));
