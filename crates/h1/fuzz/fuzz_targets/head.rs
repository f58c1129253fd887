//! Fuzzes the head of a request, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| h1::fuzz::head(data));
