//! Any datagrams into a decoder of FEC: memory stays bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp_go::fec::fuzz::shards(data));
