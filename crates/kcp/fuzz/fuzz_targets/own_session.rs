//! Any contents of packets from a peer that has the keys: a session of own packets stays whole.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::own::fuzz::session(data));
