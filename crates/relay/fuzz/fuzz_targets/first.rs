//! Fuzzes the sniffer of a connection's first bytes: several protocols against HTTP alone.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::fuzz::first(data));
