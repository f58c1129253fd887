//! Session tickets (RFC 8446 section 4.6.1) that hold a session sealed, so that a server needs no
//! memory of it and knows it again after a restart: what a client resumes with and sends 0-RTT by.
//!
//! rustls has two ways to resume: tickets that hold the session, which it then allows no 0-RTT with
//! (it leaves no way to tell it that replays do no harm), and a store of its own sessions by random
//! ids, which a restart empties and any stranger fills. So it is given a store here that keeps
//! nothing: the sealed session takes the place of the id in the message to the client (`exchange`),
//! and comes back to be opened when the client shows it.
//!
//! A replay is answered in three ways: a ticket works once (`used`), rustls refuses 0-RTT with one
//! whose age is not what the client says (within a minute), and what the carrier sends as 0-RTT is
//! safe to come twice (protocol 18), as right after a restart it may.

pub(crate) mod exchange;
mod limits;
mod session;
mod used;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use rustls::time_provider::TimeProvider;

use crate::Keys;
use used::Used;

pub(crate) use session::resuming;
pub use session::{client_crypto, server_crypto};

/// How long a key seals. Tickets are good for this time at least and twice as long at most: over a
/// night, and no client whose certificate has ended comes in by an old one for longer than a day.
pub const ROTATION: Duration = Duration::from_secs(12 * 3600);

/// Seals and opens the tickets of one server process; all workers share it.
///
/// A ticket: the low byte of the number of its period, a nonce, the session with AES-256-GCM. Its
/// key comes from the persisted secret, that number and whom the server trusts; only the present
/// one seals, the present and the one before open. (Rotation limits for how long a ticket is good.
/// Against a thief of `state_dir` there is only forward secrecy of what follows the handshake: a
/// new key exchange is part of each resumption.)
pub struct Tickets {
    keys: Keys,
    trusted: [u8; 32],
    rotation: Duration,
    time: Arc<dyn TimeProvider>,
    used: Mutex<Used>,
}

impl Tickets {
    /// `trusted` is what clients' certificates are judged by (the content of `client_ca`, empty
    /// where none is asked for): a ticket says that a certificate was good, and is worth nothing
    /// when another authority is to judge. To be made anew when that changes.
    #[must_use]
    pub fn new(
        keys: &Keys,
        trusted: &[CertificateDer<'_>],
        rotation: Duration,
        time: Arc<dyn TimeProvider>,
    ) -> Self {
        let mut each: Vec<_> =
            trusted.iter().map(|one| digest::digest(&digest::SHA256, one)).collect();
        each.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
        let mut all = digest::Context::new(&digest::SHA256);
        each.iter().for_each(|one| all.update(one.as_ref()));
        let mut digest = [0; 32];
        digest.copy_from_slice(all.finish().as_ref());
        let used = Mutex::default();
        Self { keys: keys.clone(), trusted: digest, rotation, time, used }
    }

    /// Whether clients' certificates are judged alike.
    pub(crate) fn trust_alike(&self, other: &Self) -> bool {
        self.trusted == other.trusted
    }

    /// For how long one that is sealed now is good at least.
    fn lifetime(&self) -> u32 {
        u32::try_from(self.rotation.as_secs()).unwrap_or(u32::MAX)
    }

    /// `None` where the system lacks a clock or random numbers: there is no ticket then.
    fn seal(&self, session: &[u8], limits: &[u8]) -> Option<Vec<u8>> {
        let period = self.period()?;
        let mut sealed = session.to_vec();
        let nonce =
            self.key(period)?.seal_in_place_append_tag(Aad::from(limits), &mut sealed).ok()?;
        Some([&[low_byte(period)], &nonce.as_ref()[..], &sealed].concat())
    }

    /// The session of a ticket that is ours, good and new. What it is given comes from strangers.
    fn open(&self, ticket: &[u8], limits: &[u8]) -> Option<Vec<u8>> {
        let (&named, rest) = ticket.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let now = self.period()?;
        let period = [now, now.wrapping_sub(1)].into_iter().find(|&one| low_byte(one) == named)?;
        let mut session = sealed.to_vec();
        let length = self
            .key(period)?
            .open_in_place(Nonce::from(nonce), Aad::from(limits), &mut session)
            .ok()?
            .len();
        session.truncate(length);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.first(*nonce).then_some(session)
    }

    fn period(&self) -> Option<u64> {
        let now = self.time.current_time()?;
        now.as_secs().checked_div(self.rotation.as_secs())
    }

    fn key(&self, period: u64) -> Option<RandomizedNonceKey> {
        let mut key = [0; 32];
        let purpose = [&b"ticket"[..], &period.to_be_bytes(), &self.trusted];
        let derived = self.keys.tickets.expand(&purpose, &AES_256_GCM).ok()?;
        derived.fill(&mut key).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM, &key).ok()
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("rotation", &self.rotation).finish_non_exhaustive()
    }
}

fn low_byte(period: u64) -> u8 {
    let [.., low] = period.to_be_bytes();
    low
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustls::pki_types::UnixTime;

    use super::*;

    const HOUR: u64 = 3600;
    const LIMITS: &[u8] = b"limits";

    /// Seconds since 1970, moved by hand.
    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
        }
    }

    fn tickets(keys: &Keys, trusted: &[&[u8]]) -> (Tickets, Arc<Clock>) {
        let clock = Arc::new(Clock::default());
        clock.0.store(1_000_000 * HOUR, Ordering::Relaxed);
        let trusted: Vec<_> = trusted.iter().map(|&one| CertificateDer::from(one)).collect();
        let hour = Duration::from_secs(HOUR);
        (Tickets::new(keys, &trusted, hour, Arc::clone(&clock) as _), clock)
    }

    #[test]
    fn a_ticket_outlives_one_rotation_and_not_two() {
        for (later, works) in [(0, true), (HOUR, true), (2 * HOUR - 1, true), (2 * HOUR, false)] {
            let (tickets, clock) = tickets(&Keys::fleeting().unwrap(), &[]);
            let ticket = tickets.seal(b"session", LIMITS).unwrap();
            clock.0.fetch_add(later, Ordering::Relaxed);
            assert_eq!(tickets.open(&ticket, LIMITS).is_some(), works, "{later} s later");
        }
    }

    #[test]
    fn after_256_rotations_the_same_byte_is_another_key() {
        let (tickets, clock) = tickets(&Keys::fleeting().unwrap(), &[]);
        let ticket = tickets.seal(b"session", LIMITS).unwrap();
        clock.0.fetch_add(256 * HOUR, Ordering::Relaxed);
        assert_eq!(tickets.open(&ticket, LIMITS), None);
    }

    #[test]
    fn the_next_process_opens_tickets_of_the_one_before() {
        let keys = Keys::fleeting().unwrap();
        let ticket = tickets(&keys, &[b"a", b"b"]).0.seal(b"session", LIMITS).unwrap();
        let open = |keys: &Keys, trusted: &[&[u8]], limits: &[u8]| {
            tickets(keys, trusted).0.open(&ticket, limits)
        };
        assert_eq!(open(&keys, &[b"b", b"a"], LIMITS).unwrap(), b"session");
        assert_eq!(open(&keys, &[b"a"], LIMITS), None, "an authority was removed");
        assert_eq!(open(&keys, &[b"a", b"b", b"c"], LIMITS), None);
        assert_eq!(open(&keys, &[b"a", b"b"], b"lower"), None, "limits have changed");
        assert_eq!(open(&Keys::fleeting().unwrap(), &[b"a", b"b"], LIMITS), None);
    }

    #[test]
    fn a_ticket_works_once() {
        let (tickets, _) = tickets(&Keys::fleeting().unwrap(), &[]);
        let ticket = tickets.seal(b"session", LIMITS).unwrap();
        assert!(tickets.open(&ticket, LIMITS).is_some());
        assert_eq!(tickets.open(&ticket, LIMITS), None);
        let next = tickets.seal(b"session", LIMITS).unwrap();
        assert!(tickets.open(&next, LIMITS).is_some());
    }

    #[test]
    fn what_is_no_whole_ticket_is_refused() {
        let (tickets, _) = tickets(&Keys::fleeting().unwrap(), &[]);
        let ticket = tickets.seal(b"session", LIMITS).unwrap();
        for end in 0..ticket.len() {
            assert_eq!(tickets.open(&ticket[..end], LIMITS), None, "{end} bytes");
        }
        for index in 0..ticket.len() {
            let mut bent = ticket.clone();
            bent[index] ^= 1;
            assert_eq!(tickets.open(&bent, LIMITS), None, "byte {index}");
        }
        assert_eq!(tickets.open(&[ticket[0]; 5000], LIMITS), None);
        assert!(tickets.open(&ticket, LIMITS).is_some(), "none of that used it up");
    }
}
