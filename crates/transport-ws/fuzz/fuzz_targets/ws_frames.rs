//! Frames of a peer, whole and in pieces, and back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| transport_ws::fuzz::frames(data));
