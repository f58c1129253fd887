//! Fuzzes the answers of the STUN server, and the reader of such answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| punch::fuzz::stun(data));
