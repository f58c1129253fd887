//! The server of the greeting against an arbitrary client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proto::greeting::fuzz_server(data));
