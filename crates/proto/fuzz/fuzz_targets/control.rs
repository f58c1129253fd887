//! The decoder of control messages against any bytes, in any pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proto::control::fuzz(data));
