//! Fuzzes the first bytes of a connection: the sniffer for several protocols against that for HTTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::first(data));
