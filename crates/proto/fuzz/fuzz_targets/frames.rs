//! Arbitrary bytes into a link, in arbitrary pieces: no panic, and bounded memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::pair::ops::frames(data));
