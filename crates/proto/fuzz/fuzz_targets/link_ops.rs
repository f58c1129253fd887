//! Lists of operations drive two links through kills, against an oracle.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    testkit::pair::ops::run(&data[..data.len().min(600)], 1);
});
