//! Fuzzes the decoder of the signals between two clients.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| punch::fuzz::signal(data));
