//! Fuzzes the messages of SOCKS5, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::socks5(data));
