//! Fuzzes the readers of what a router answers: PCP, NAT-PMP, UPnP.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| punch::fuzz::router(data));
