//! Fuzzes the parser of HTTP CONNECT requests, with whole and with split input.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::connect(data));
