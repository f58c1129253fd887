//! Arbitrary datagrams into an FEC decoder: memory stays bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::compat::fec::fuzz::shards(data));
