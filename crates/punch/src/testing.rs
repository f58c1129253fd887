//! A start time for tests with virtual time.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "std has no other way to make an Instant")]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}
