//! Any bytes as packets of this project: readers, and a decoder of FEC that stays bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::own::fuzz::packets(data));
