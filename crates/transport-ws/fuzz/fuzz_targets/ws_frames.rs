//! Fuzzes the frames of a peer, whole and in pieces, and the frames that this end sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| transport_ws::fuzz::frames(data));
