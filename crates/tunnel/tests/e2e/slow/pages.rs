//! Bulk as pages over carriers that die again and again.

use crate::harness::Scheme;
use crate::pages::survive;

#[test]
fn ten_thousand_kills_lose_no_byte_of_pages() {
    for scheme in [Scheme::TCP, Scheme::WS] {
        survive(scheme, 32_000_000, 128 << 10, 5_000);
    }
}
