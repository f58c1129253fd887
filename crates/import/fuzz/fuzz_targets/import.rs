//! Fuzzes the import of a file as each of the programs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| import::fuzz(data));
