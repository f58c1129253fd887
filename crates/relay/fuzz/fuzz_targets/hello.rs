//! Fuzzes the parser of a visitor's ClientHello, with whole and with split input.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::hello(data));
