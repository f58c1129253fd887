//! A path that loses and repeats shards: what is rebuilt was sent.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::compat::fec::fuzz::groups(data));
