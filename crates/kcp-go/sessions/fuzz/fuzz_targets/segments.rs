//! Fuzzes segments: the decoder, and the classic state machine with whole sequences of datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kcp_go::fuzz::segments(data));
