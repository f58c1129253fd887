//! Delays the responses to wrong tokens, increasingly with their number from an address. A valid
//! token is never delayed. The delay belongs to the connection of the request and needs no task.
//!
//! An address with several wrong tokens whose delays are still running gets no token checked until
//! one of the delays is over. Otherwise it could guess in parallel, or close each connection as
//! soon as no response comes, without a delay. The API has few connection slots, so delayed
//! responses may take at most half of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use logging::{AUDIT, RepeatLimit};
use ops::term;
use tokio::time::Instant;

/// The delay after the first wrong token. The delay doubles with each further wrong token.
const FIRST: Duration = Duration::from_millis(100);

/// The number of doublings: up to 3.2 s, which is less than the timeouts of usual HTTP clients.
const DOUBLINGS: u32 = 5;

/// After this time without a wrong token, the delay of an address starts again at [`FIRST`].
const FORGET: Duration = Duration::from_secs(60);

/// The largest number of running delays of one address.
const OF_ONE: usize = 4;

/// The largest number of delayed responses at a time: half of the connection slots. A further wrong
/// token is answered at once.
const OF_ALL: usize = 16;

/// The largest number of remembered addresses. A full table evicts the addresses whose delays are
/// over, or all of them; an attacker needs that many addresses to shorten the delays in this way.
const ADDRESSES: usize = 1024;

/// Shortest time between two log lines about one address.
const LINES: Duration = Duration::from_secs(60);

/// Counts wrong tokens by address. Clones share one counter.
#[derive(Clone, Debug)]
pub(super) struct Brake(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    addresses: HashMap<IpAddr, Address>,
    waiting: usize,
    lines: RepeatLimit<IpAddr>,
}

#[derive(Debug)]
struct Address {
    wrong: u32,
    last: Instant,
    /// The ends of its delays; at most [`OF_ONE`].
    ends: Vec<Instant>,
}

impl Address {
    fn waits(&self, now: Instant) -> usize {
        self.ends.iter().filter(|end| **end > now).count()
    }
}

impl Brake {
    pub(super) fn new() -> Self {
        let lines = RepeatLimit::every(LINES).with_quota();
        let state = State { addresses: HashMap::new(), waiting: 0, lines };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Whether this address must wait before its next token is checked.
    pub(super) fn is_busy(&self, source: IpAddr) -> bool {
        let (state, now) = (self.state(), Instant::now());
        state.addresses.get(&source.to_canonical()).is_some_and(|one| one.waits(now) >= OF_ONE)
    }

    /// Counts a wrong token from this address. The response is delayed until [`Wait::end`]
    /// completes.
    pub(super) fn count(&self, source: IpAddr) -> Wait {
        let (source, now) = (source.to_canonical(), Instant::now());
        let mut state = self.state();
        if state.addresses.len() >= ADDRESSES && !state.addresses.contains_key(&source) {
            state.addresses.retain(|_, one| now - one.last < FORGET);
            if state.addresses.len() >= ADDRESSES {
                state.addresses.retain(|_, one| one.waits(now) > 0);
            }
            if state.addresses.len() >= ADDRESSES {
                state.addresses.clear();
            }
        }
        let may_wait = state.waiting < OF_ALL;
        let new = || Address { wrong: 0, last: now, ends: Vec::with_capacity(OF_ONE) };
        let one = state.addresses.entry(source).or_insert_with(new);
        if now - one.last >= FORGET {
            one.wrong = 0;
        }
        one.last = now;
        let until = now + FIRST * (1 << one.wrong.min(DOUBLINGS));
        one.wrong = one.wrong.saturating_add(1);
        one.ends.retain(|end| *end > now);
        if one.ends.len() < OF_ONE {
            one.ends.push(until);
        }
        if !may_wait {
            return Wait(None);
        }
        state.waiting += 1;
        Wait(Some(Delayed { brake: self.clone(), until }))
    }

    /// Logs a wrong token: one line for each address and minute.
    pub(super) fn tell(&self, source: IpAddr) {
        let source = source.to_canonical();
        let Some(suppressed) = self.state().lines.pass(source, Instant::now().into_std()) else {
            return;
        };
        if suppressed == 0 {
            tracing::warn!(target: AUDIT, %source, "admin API: {source} showed a wrong token");
        } else {
            let more = term::count(suppressed, "time");
            tracing::warn!(target: AUDIT, %source, "admin API: {source} showed a wrong token ({more} more)");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The delay of one response.
#[derive(Debug)]
#[must_use]
pub(super) struct Wait(Option<Delayed>);

impl Wait {
    pub(super) async fn end(self) {
        if let Some(waiting) = self.0 {
            tokio::time::sleep_until(waiting.until).await;
        }
    }
}

/// The slot of a delayed response. It is released on drop, also when the connection has ended.
#[derive(Debug)]
struct Delayed {
    brake: Brake,
    until: Instant,
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.brake.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(n))
    }

    /// The wait of the next wrong token, in milliseconds.
    async fn wait(brake: &Brake, source: IpAddr) -> u128 {
        let start = Instant::now();
        brake.count(source).end().await;
        start.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn each_wrong_token_waits_twice_as_long_and_another_address_does_not() {
        let brake = Brake::new();
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(wait(&brake, address(1)).await);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 3200, 3200]);
        assert_eq!(wait(&brake, address(2)).await, 100);
        let mapped = "::ffff:0.0.0.1".parse().unwrap();
        assert_eq!(wait(&brake, mapped).await, 3200, "the same address");
        tokio::time::sleep(FORGET).await;
        assert_eq!(wait(&brake, address(1)).await, 100, "after a quiet minute");
    }

    #[tokio::test(start_paused = true)]
    async fn few_answers_wait_for_one_address_and_not_many_for_all() {
        let brake = Brake::new();
        let mut waits = Vec::new();
        for n in 0..OF_ALL / OF_ONE {
            let source = address(n.try_into().unwrap());
            for _ in 0..OF_ONE {
                assert!(!brake.is_busy(source));
                waits.push(brake.count(source));
            }
            assert!(brake.is_busy(source));
        }
        assert_eq!(wait(&brake, address(99)).await, 0, "no place for another one");
        // A connection that ends frees its place, and its address has to wait all the same.
        drop(waits.pop());
        assert!(brake.is_busy(address(3)));
        assert_eq!(wait(&brake, address(98)).await, 100);
        assert!(!brake.is_busy(address(3)), "the first of its waits has passed");
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_cost_bounded_memory_and_those_that_wait_are_kept() {
        let brake = Brake::new();
        let many = |from: u32| (from..from + 700).for_each(|n| drop(brake.count(address(n))));
        many(1000);
        tokio::time::advance(FIRST).await;
        (0..OF_ONE).for_each(|_| drop(brake.count(address(0))));
        many(2000);
        assert!(brake.state().addresses.len() <= ADDRESSES);
        assert!(brake.is_busy(address(0)));
        (3..20).for_each(|n| many(n * 1000));
        assert!(brake.state().addresses.len() <= ADDRESSES);
    }
}
