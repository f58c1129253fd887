//! Arbitrary bytes as packets of this project: the decoders, and an FEC decoder with bounded
//! memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::own::fuzz::packets(data));
