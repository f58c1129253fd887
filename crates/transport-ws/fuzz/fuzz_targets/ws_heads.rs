//! Fuzzes the heads of HTTP requests and answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| transport_ws::fuzz::heads(data));
