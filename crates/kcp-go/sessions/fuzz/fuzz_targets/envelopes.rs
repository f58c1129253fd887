//! Arbitrary bytes as a datagram in each envelope, and as a plaintext that must survive sealing and
//! opening.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp_go::envelope::fuzz::datagrams(data));
