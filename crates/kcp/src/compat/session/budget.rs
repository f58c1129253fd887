//! The budget of repairs: retransmissions and parity may have a share of what is sent for the first
//! time.
//!
//! Parity is dropped where it does not fit. Retransmissions wait: for fresh bytes, which earn
//! credit, or for a moment, after which one more leaves in any case, so that nothing stands still.

use std::time::{Duration, Instant};

/// The least credit in bytes that is there at first, and saved up at most.
const LEAST: f64 = 65_536.0;

/// The time between two retransmissions that there is no credit for.
const MOMENT: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Budget {
    share: f64,
    /// The most credit: what it takes to repair a whole window. While a window waits for its repair,
    /// nothing fresh is sent that would earn any.
    most: f64,
    credit: f64,
    /// The last retransmission that there was no credit for.
    granted: Option<Instant>,
}

impl Budget {
    /// `window` is in bytes.
    pub(super) fn new(share: f64, window: usize) -> Self {
        let most = LEAST.max(window as f64);
        Self { share: share.max(0.0), most, credit: most, granted: None }
    }

    /// Bytes were sent for the first time.
    pub(super) fn earn(&mut self, bytes: u64) {
        self.credit = (bytes as f64).mul_add(self.share, self.credit).min(self.most);
    }

    /// Bytes of repairs were sent.
    pub(super) fn spend(&mut self, bytes: u64, now: Instant) {
        if self.credit <= 0.0 {
            self.granted = Some(now);
        }
        // Debt is not remembered beyond what may be saved up.
        self.credit = (self.credit - bytes as f64).max(-self.most);
    }

    /// Whether parity of so many bytes fits.
    pub(super) fn allows_parity(&self, bytes: usize) -> bool {
        self.credit >= bytes as f64
    }

    /// When a retransmission may leave: `None` at once.
    pub(super) fn repeats_from(&self) -> Option<Instant> {
        let granted = self.granted.filter(|_| self.credit <= 0.0)?;
        Some(granted + MOMENT)
    }
}
