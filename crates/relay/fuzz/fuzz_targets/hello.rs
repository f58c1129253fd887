//! Fuzzes the ClientHello of a visitor, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::hello(data));
