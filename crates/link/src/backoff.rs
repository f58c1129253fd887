//! The backoff between connection attempts. It is jittered, so that thousands of clients do not
//! reconnect in step after an outage of their server. It has an upper bound, and attempts never
//! end.

use std::time::Duration;

/// The bounds of the backoff after a network failure.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// The first pause.
    pub min: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { min: Duration::from_millis(200), max: Duration::from_millis(1500) }
    }
}

/// The longest pause after a refused log-in or a failed certificate check, which need action by the
/// user.
const REFUSED_MAX: Duration = Duration::from_secs(30);
/// The pause after a newer process took over: long, so that two processes do not take over from
/// each other in a loop.
const SUPERSEDED: Duration = Duration::from_secs(60);

/// A link or carrier with a shorter lifetime counts as a failure. Otherwise a fault that closes
/// each connection at once would make the client reconnect without a pause.
const YOUNG: Duration = Duration::from_secs(1);

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The network: no connection, or a lost connection.
    Network,
    /// The server refused the log-in, or its certificate failed the check.
    Refused,
    /// A newer process of this client has taken over.
    Superseded,
}

#[derive(Debug)]
pub(crate) struct Backoff {
    retry: Retry,
    next: Duration,
    state: u64,
}

impl Backoff {
    pub(crate) fn new(retry: Retry) -> Self {
        Self { retry, next: retry.min, state: u64::from_le_bytes(crate::random()) | 1 }
    }

    /// Returns the pause before the next attempt: half of it is fixed, the other half is random.
    pub(crate) fn failed(&mut self, failure: Failure) -> Duration {
        let (pause, cap) = match failure {
            Failure::Network => (self.next, self.retry.max),
            Failure::Refused => (self.next, REFUSED_MAX),
            Failure::Superseded => (SUPERSEDED, SUPERSEDED),
        };
        let pause = pause.min(cap);
        self.next = (pause * 2).min(cap);
        pause / 2 + pause.mul_f64(self.draw()) / 2
    }

    /// Returns the pause after a link or carrier with this lifetime: zero, unless it was shorter
    /// than [`YOUNG`].
    pub(crate) fn after(&mut self, lived: Duration) -> Duration {
        if lived < YOUNG {
            return self.failed(Failure::Network);
        }
        self.next = self.retry.min;
        Duration::ZERO
    }

    /// A random number between 0 and 1 (xorshift64, Marsaglia 2003, which suffices for jitter).
    fn draw(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        f64::from(u32::try_from(self.state >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_cap_and_never_beyond() {
        let mut backoff = Backoff::new(Retry::default());
        assert!(backoff.failed(Failure::Network) <= Duration::from_millis(200));
        for _ in 0..20 {
            let pause = backoff.failed(Failure::Network);
            assert!(pause <= Duration::from_millis(1500) && pause >= Duration::from_millis(100));
        }
        for _ in 0..20 {
            assert!(backoff.failed(Failure::Refused) <= REFUSED_MAX);
        }
        assert!(backoff.failed(Failure::Superseded) >= SUPERSEDED / 2);
    }

    #[test]
    fn two_clients_do_not_pause_alike() {
        let pauses =
            |mut b: Backoff| (0..8).map(|_| b.failed(Failure::Network)).collect::<Vec<_>>();
        assert_ne!(pauses(Backoff::new(Retry::default())), pauses(Backoff::new(Retry::default())));
    }
}
