//! Fuzzes the decoders of router responses: PCP, NAT-PMP, UPnP.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| punch::fuzz::router(data));
