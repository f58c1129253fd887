//! Fuzzes the session description of a peer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| transport_webrtc::fuzz::description(data));
