//! Session tickets (RFC 8446 section 4.6.1) that contain the sealed session. A client resumes with
//! them and sends 0-RTT. The server keeps no session in memory and accepts its tickets after a
//! restart.
//!
//! rustls has two ways to resume. With tickets that contain the session it allows no 0-RTT, and it
//! has no setting to say that replays do no harm. With a store of sessions under random ids it
//! allows 0-RTT, but a restart empties the store and any unauthenticated peer can fill it. So
//! rustls gets a store that keeps nothing. The sealed session replaces the id in the message to the
//! client (`exchange`), and the server opens it when the client returns it.
//!
//! Three measures limit replays. A ticket works once (`used`). rustls refuses 0-RTT when the
//! ticket's age differs by more than a minute from the client's statement. And the bytes that the
//! carrier sends as 0-RTT are safe to arrive twice (protocol 18), which can happen right after a
//! restart.

pub(crate) mod exchange;
mod limits;
mod resuming;
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

pub(crate) use resuming::resuming;
pub use session::{client_crypto, server_crypto};

/// The time for which a key seals. A ticket is valid for at least this time and at most twice this
/// time. That covers a night, and a client whose certificate has expired can use an old ticket for
/// at most one day.
pub const ROTATION: Duration = Duration::from_secs(12 * 3600);

/// Seals and opens the tickets of one server process; all workers share it.
///
/// A ticket consists of the low byte of the number of its period, a nonce, and the session under
/// AES-256-GCM. The key is derived from the persisted secret, the number of the period and the
/// authorities that the server trusts. Only the key of the present period seals; the keys of the
/// present and the previous period open. (Rotation limits the lifetime of tickets. Against a thief
/// of `state_dir` only the bytes after the handshake have forward secrecy, because each resumption
/// includes a new key exchange.)
pub struct Tickets {
    keys: Keys,
    trusted: [u8; 32],
    rotation: Duration,
    time: Arc<dyn TimeProvider>,
    used: Mutex<Used>,
}

impl Tickets {
    /// Makes the tickets. `trusted` holds the certificates that verify clients (the content of
    /// `client_ca`; empty when no client certificate is requested). A ticket states that a
    /// certificate was valid, so it is worthless under other authorities. The caller makes a new
    /// value when `trusted` changes.
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

    /// Whether both values trust the same authorities.
    pub(crate) fn trust_alike(&self, other: &Self) -> bool {
        self.trusted == other.trusted
    }

    /// The minimum lifetime of a ticket that is sealed now, in seconds.
    fn lifetime(&self) -> u32 {
        u32::try_from(self.rotation.as_secs()).unwrap_or(u32::MAX)
    }

    /// Seals a session. `None` when the system has no clock or no random numbers.
    fn seal(&self, session: &[u8], limits: &[u8]) -> Option<Vec<u8>> {
        let period = self.period()?;
        let mut sealed = session.to_vec();
        let nonce =
            self.key(period)?.seal_in_place_append_tag(Aad::from(limits), &mut sealed).ok()?;
        Some([&[low_byte(period)], &nonce.as_ref()[..], &sealed].concat())
    }

    /// Opens a ticket. Returns its session when the ticket is ours, is valid and was not used.
    /// `ticket` is untrusted input.
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

    /// A clock that counts seconds since 1970 and is moved by hand.
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
