//! Two sessions that do anything, with a path that does anything: they stay within their bounds,
//! and bytes arrive.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::compat::session::fuzz::session(data));
