//! Fuzzes the parsers of SOCKS5 messages, with whole and with split input.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::socks5(data));
