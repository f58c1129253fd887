//! Runs both loaders on any text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::fuzz(data));
