//! A path that loses and duplicates shards: rebuilt shards must equal the sent shards.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp_go::fec::fuzz::groups(data));
