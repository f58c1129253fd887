//! Fuzzes what two clients tell each other about a direct path.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| punch::fuzz::signal(data));
