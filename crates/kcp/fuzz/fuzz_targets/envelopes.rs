//! Any bytes as a datagram in each envelope, and as a plaintext that comes back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp::compat::envelope::fuzz::datagrams(data));
