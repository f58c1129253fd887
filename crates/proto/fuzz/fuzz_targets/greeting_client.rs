//! The client of the greeting against an arbitrary server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proto::greeting::fuzz_client(data));
