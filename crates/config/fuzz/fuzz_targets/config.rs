//! Runs both loaders on any text.
#![no_main]

#[path = "../harness.rs"]
#[allow(dead_code, reason = "each target runs one of the functions")]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::fuzz(data));
