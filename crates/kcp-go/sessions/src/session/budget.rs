//! The budget of repairs: retransmissions and parity may have a share of the bytes that are sent
//! for the first time.
//!
//! Parity that exceeds the budget is dropped. Retransmissions wait for fresh bytes, which add to
//! the budget. After a short wait one retransmission is sent in any case, so that the session makes
//! progress.

use std::time::{Duration, Instant};

/// The smallest limit of the budget in bytes, which is also the budget at first.
const LEAST: f64 = 65_536.0;

/// The interval of retransmissions without budget.
const MOMENT: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Budget {
    share: f64,
    /// The limit of the budget: the repair of a whole window. While a window waits for its repair,
    /// no fresh bytes add to the budget.
    most: f64,
    credit: f64,
    /// The time of the last retransmission without budget.
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
        // Debt is limited to the limit of the budget.
        self.credit = (self.credit - bytes as f64).max(-self.most);
    }

    /// Whether parity of `bytes` bytes fits.
    pub(super) fn allows_parity(&self, bytes: usize) -> bool {
        self.credit >= bytes as f64
    }

    /// When a retransmission may be sent. `None`: at once.
    pub(super) fn repeats_from(&self) -> Option<Instant> {
        let granted = self.granted.filter(|_| self.credit <= 0.0)?;
        Some(granted + MOMENT)
    }
}
