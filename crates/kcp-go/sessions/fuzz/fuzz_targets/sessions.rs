//! Two sessions with arbitrary operations over an arbitrary path: memory stays bounded, and bytes
//! arrive.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp_go::session::fuzz::session(data));
