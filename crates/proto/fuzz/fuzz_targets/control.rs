//! The decoder of control messages with arbitrary bytes, in arbitrary pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proto::control::fuzz(data));
