//! Rate limit of checks to addresses that have not responded. The peer announces these addresses,
//! and they may belong to others (RFC 8445 section 19.5.1). A [`Pace`] covers all attempts with one
//! peer: a peer that begins many attempts causes no more checks than a peer with one.
//!
//! ```text
//!   of all addresses    20 per second, the checks of 200 ms at once
//!   of one address      200, and then one in 3 s
//! ```
//!
//! All ports of an IP address count as one address, and so does an IPv6 /64: a flood of a part is a
//! flood of the whole. An address that has responded to a check is exempt from both limits: no
//! other machine can respond for it, because the transaction id of a check is random.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use crate::attempt::{LIMIT, PACE};

/// The burst of checks to all addresses, after a pause.
const AT_ONCE: u32 = 4;

/// Maximum number of checks to an address before it has responded: those of a whole attempt.
const OF_ADDRESS: u32 = (LIMIT.as_millis() / PACE.as_millis()) as u32;

/// The interval of single checks to an address that has exhausted its checks. A legitimate peer
/// that is now behind another NAT is found again by one of them.
const ONE_MORE: Duration = Duration::from_secs(3);

/// The time for which an address that has responded is exempt. Each response restarts it, and
/// checks on a pair in use are sent every 5 s.
const FREE: Duration = Duration::from_secs(60);

/// Maximum number of remembered addresses. The rate limit of all addresses adds entries more slowly
/// than they expire.
const ADDRESSES: usize = 256;

/// The decision about a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The check is sent now, and is counted.
    Now,
    /// Other checks are sent first: the caller may retry at this time.
    Later(Instant),
    /// The address has exhausted its checks.
    Never,
}

/// The checks of all attempts with one peer.
#[derive(Debug, Default)]
pub struct Pace {
    /// The time at which the next check would be sent at an even rate.
    due: Option<Instant>,
    addresses: HashMap<IpAddr, Spent>,
}

#[derive(Clone, Copy, Debug)]
enum Spent {
    /// Checks without a response: they expire one by one until this time.
    Until(Instant),
    /// The address has responded, and is exempt until this time.
    Free(Instant),
}

impl Spent {
    const fn end(self) -> Instant {
        match self {
            Self::Until(end) | Self::Free(end) => end,
        }
    }
}

impl Pace {
    /// Requests a check to an address that has not responded in this attempt.
    pub fn ask(&mut self, now: Instant, to: IpAddr) -> Turn {
        let to = address(to);
        if self.addresses.len() >= ADDRESSES {
            self.addresses.retain(|_, spent| spent.end() > now);
        }
        let until = match self.addresses.get(&to) {
            Some(Spent::Free(end)) if *end > now => return Turn::Now,
            Some(Spent::Until(end)) => (*end).max(now),
            Some(Spent::Free(_)) => now,
            None if self.addresses.len() >= ADDRESSES => return Turn::Never,
            None => now,
        };
        let until = until + ONE_MORE;
        if until > now + ONE_MORE * OF_ADDRESS {
            return Turn::Never;
        }
        let due = self.due.map_or(now, |due| due.max(now));
        if due > now + PACE * (AT_ONCE - 1) {
            return Turn::Later(due - PACE * (AT_ONCE - 1));
        }
        self.due = Some(due + PACE);
        self.addresses.insert(to, Spent::Until(until));
        Turn::Now
    }

    /// Records that the address has responded to a check.
    pub fn answered(&mut self, now: Instant, from: IpAddr) {
        let from = address(from);
        if self.addresses.len() < ADDRESSES || self.addresses.contains_key(&from) {
            self.addresses.insert(from, Spent::Free(now + FREE));
        }
    }

    /// Whether the state equals that of a new [`Pace`].
    #[must_use]
    pub fn is_at_rest(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
            && self.addresses.values().all(|spent| spent.end() <= now)
    }
}

/// The address under which an IP address is counted.
fn address(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(u128::from(ip) >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The number of checks that are sent in this time, if `to` requests 800 per second.
    fn left(pace: &mut Pace, start: Instant, time: Duration, to: impl Fn(u32) -> IpAddr) -> u32 {
        let all = u32::try_from(time.as_millis()).unwrap() * 800 / 1000;
        let at = |n: u32| start + time * n / all;
        (0..all).filter(|n| pace.ask(at(*n), to(*n)) == Turn::Now).count().try_into().unwrap()
    }

    #[test]
    fn one_machine_gets_the_checks_of_one_attempt_whatever_its_ports() {
        let (mut pace, start) = (Pace::default(), epoch());
        let victim = |_| ip("198.51.100.7");
        let first = left(&mut pace, start, LIMIT, victim);
        assert!((200..=207).contains(&first), "{first}");
        // Without an end: 3 attempts of 10 s and more follow each other for 10 minutes.
        let more = left(&mut pace, start + LIMIT, Duration::from_secs(600), victim);
        assert!((190..=210).contains(&more), "{more}");
        let network = |n: u32| IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(n)).to_be_bytes());
        let mut pace = Pace::default();
        let first = left(&mut pace, start, Duration::from_secs(60), network);
        assert!(first <= 225, "64 bits of IPv6 are one address: {first}");
    }

    #[test]
    fn all_addresses_together_get_twenty_in_a_second() {
        let (mut pace, start) = (Pace::default(), epoch());
        let many = |n: u32| IpAddr::from((0xc633_6400 + n).to_be_bytes());
        let sent = left(&mut pace, start, Duration::from_secs(60), many);
        assert!((1_190..=1_204).contains(&sent), "{sent}");
        assert!(pace.addresses.len() <= ADDRESSES);
        assert!(!pace.is_at_rest(start + Duration::from_secs(60)));
        assert!(pace.is_at_rest(start + Duration::from_secs(120)));
    }

    #[test]
    fn a_check_that_comes_too_early_is_told_its_time() {
        let (mut pace, now) = (Pace::default(), epoch());
        let turns: Vec<_> = (0..5).map(|_| pace.ask(now, ip("192.0.2.1"))).collect();
        assert_eq!(turns, [Turn::Now, Turn::Now, Turn::Now, Turn::Now, Turn::Later(now + PACE)]);
        assert_eq!(pace.ask(now + PACE, ip("192.0.2.2")), Turn::Now);
    }

    #[test]
    fn an_address_that_answers_is_free_and_frees_no_other() {
        let (mut pace, now) = (Pace::default(), epoch());
        let peer = ip("192.0.2.1");
        assert_eq!(pace.ask(now, peer), Turn::Now);
        pace.answered(now, ip("::ffff:192.0.2.1"));
        assert!((0..1_000).all(|_| pace.ask(now, peer) == Turn::Now));
        let other = (0..1_000).filter(|_| pace.ask(now, ip("192.0.2.9")) == Turn::Now).count();
        assert_eq!(other, 3, "the first check of the peer was counted");
        let later = now + FREE;
        let again = (0..1_000).filter(|_| pace.ask(later, peer) == Turn::Now).count();
        assert_eq!(again, 4);
    }
}
