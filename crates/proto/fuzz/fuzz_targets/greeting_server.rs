//! A greeting's server against any client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proto::greeting::fuzz_server(data));
