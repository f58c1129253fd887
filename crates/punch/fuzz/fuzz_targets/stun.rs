//! Fuzzes the responses of the STUN server, and the decoder of such responses.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| punch::fuzz::stun(data));
