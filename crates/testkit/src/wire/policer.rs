//! A rate above which datagrams are lost: a token bucket without a queue, as networks limit UDP.

use std::sync::Mutex;
use std::time::Instant;

use super::lock;

/// The burst size, in bytes.
const BURST: f64 = 32_000.0;

#[derive(Debug, Default)]
pub(super) struct Policer(Mutex<Option<Bucket>>);

#[derive(Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at: Instant,
}

impl Policer {
    /// Sets the limit in bytes per second; 0 means no limit.
    #[expect(clippy::cast_precision_loss, reason = "rates of tests are far below 2^52")]
    pub(super) fn set(&self, rate: u64) {
        let bucket = || Bucket { rate: rate as f64, tokens: BURST, at: Instant::now() };
        *lock(&self.0) = (rate > 0).then(bucket);
    }

    #[expect(clippy::cast_precision_loss, reason = "datagrams are short")]
    pub(super) fn passes(&self, bytes: usize) -> bool {
        let mut bucket = lock(&self.0);
        let Some(bucket) = &mut *bucket else { return true };
        let now = Instant::now();
        let more = bucket.rate * now.duration_since(bucket.at).as_secs_f64();
        bucket.at = now;
        bucket.tokens = (bucket.tokens + more).min(BURST);
        let passes = bucket.tokens >= bytes as f64;
        if passes {
            bucket.tokens -= bytes as f64;
        }
        passes
    }
}
