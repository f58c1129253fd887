//! Runs an edit operation on any text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::fuzz_edit(data));
