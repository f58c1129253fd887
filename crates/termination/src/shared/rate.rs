//! A bound of events in a second.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

/// A lock of what workers share about other nodes.
#[expect(
    clippy::disallowed_types,
    reason = "taken once per look-up or handshake of a node of a cluster, for some accesses of a \
              table"
)]
pub(super) type Lock<T> = std::sync::Mutex<T>;

/// At most a number of events in each second, counted from the first of them.
#[derive(Debug)]
pub(crate) struct PerSecond {
    most: u32,
    /// The begin of the second, and the events in it.
    second: Lock<Option<(Instant, u32)>>,
}

impl PerSecond {
    pub(super) const fn new(most: u32) -> Self {
        Self { most, second: Lock::new(None) }
    }

    /// Counts an event. False: it is one too many.
    pub(crate) fn allows(&self) -> bool {
        let now = Instant::now();
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over =
            |(begin, _): &(Instant, u32)| now.duration_since(*begin) >= Duration::from_secs(1);
        let (begin, events) = second.filter(|it| !is_over(it)).unwrap_or((now, 0));
        *second = Some((begin, events.saturating_add(1)));
        events < self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_a_bounded_number_of_events() {
        let rate = PerSecond::new(3);
        let allowed = || (0..9).filter(|_| rate.allows()).count();
        assert_eq!(allowed(), 3);
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(allowed(), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(allowed(), 3);
    }
}
