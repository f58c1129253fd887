//! Any bytes into a link, in any pieces: never a panic, and memory stays bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::pair::ops::frames(data));
