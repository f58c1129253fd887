//! Fuzzes the request of HTTP CONNECT, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::connect(data));
