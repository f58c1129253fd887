//! Fuzzes the boundaries of requests and responses, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| h1::fuzz::tracker(data));
