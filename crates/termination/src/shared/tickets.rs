//! Keys of session tickets (RFC 8446 section 4.6.1, RFC 5077) that all nodes have, so that a
//! visitor resumes at whichever node it reaches.
//!
//! The keys are random, and one sealed value of the store holds the last three. They are not
//! derived from the secret of the cluster: whoever learns the secret later would open recorded
//! connections. Every node reads the value each minute. The node that first finds the youngest key
//! too old adds a key, under the condition that the value has not changed. A node seals tickets
//! with a new key when the others have had time to read it.
//!
//! Until the store has answered, and for tickets of that time, a node has keys of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use tokio::time::{Instant, sleep};

use super::{Agreement, ExpectedValue, PutOutcome, SealedStore, SharedPlace, StoreAway};
use crate::wall;

/// The seconds for which a key seals tickets.
const SEALS: u64 = 6 * 3600;

/// The seconds for which a ticket is valid: its key opens it while two younger keys seal.
const VALID: u32 = 12 * 3600;

/// The keys that are kept.
const KEYS: usize = 3;

/// The pause between two looks at the store, and after a look without an answer.
const LOOK: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(1);

/// The time after which each node that answers has read a new key.
const SPREAD: Duration = Duration::from_secs(2 * LOOK.as_secs());

/// The bytes of the name of a key, which a ticket begins with.
const NAME: usize = 16;
const KEY: usize = 32;

/// The bytes of a key in the store: its name, its second of birth, and the key.
const ENTRY: usize = NAME + 8 + KEY;

/// A key as the store has it.
#[derive(Clone, PartialEq, Eq)]
struct StoredKey {
    name: [u8; NAME],
    /// The second since 1970 in which the key was made, by the clock of the node that made it.
    born: u64,
    key: [u8; KEY],
}

impl StoredKey {
    fn random() -> Option<Self> {
        let (mut name, mut key) = ([0; NAME], [0; KEY]);
        rand::fill(&mut name).ok()?;
        rand::fill(&mut key).ok()?;
        Some(Self { name, born: wall(), key })
    }

    /// Whether a younger key should be made. A time of birth in the future is that of a wrong
    /// clock.
    const fn is_old(&self, wall: u64) -> bool {
        wall.saturating_sub(self.born) >= SEALS || self.born > wall.saturating_add(SEALS)
    }
}

/// A key in use.
struct TicketKey {
    stored: StoredKey,
    key: RandomizedNonceKey,
    /// When this node read the key first.
    since: Instant,
}

/// The keys of all nodes, the oldest first, and the keys of this process alone.
pub(crate) struct SharedTickets {
    own: Arc<dyn ProducesTickets>,
    keys: ArcSwapOption<Vec<TicketKey>>,
}

impl fmt::Debug for SharedTickets {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTickets").finish_non_exhaustive()
    }
}

impl SharedTickets {
    pub(crate) fn new(own: Arc<dyn ProducesTickets>) -> Self {
        Self { own, keys: ArcSwapOption::empty() }
    }

    /// Puts the keys of the store into use.
    fn adopt(&self, stored: Vec<StoredKey>) {
        let (before, now) = (self.keys.load_full(), Instant::now());
        let since = |key: &StoredKey| {
            let mut known = before.iter().flat_map(|keys| keys.iter());
            known.find(|known| known.stored == *key).map_or(now, |known| known.since)
        };
        let keys = stored.into_iter().filter_map(|stored| {
            let key = RandomizedNonceKey::new(&AES_256_GCM, &stored.key).ok()?;
            Some(TicketKey { since: since(&stored), stored, key })
        });
        self.keys.store(Some(Arc::new(keys.collect())));
    }

    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.load();
        let keys = keys.as_ref()?;
        // The first look of a process finds keys that the other nodes have as well.
        let first = keys.iter().map(|key| key.since).min()?;
        let is_spread = |key: &&TicketKey| key.since == first || key.since.elapsed() >= SPREAD;
        let TicketKey { stored, key, .. } = keys.iter().rev().find(is_spread)?;
        let mut text = plain.to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::from(stored.name), &mut text).ok()?;
        Some([&stored.name[..], nonce.as_ref(), &text].concat())
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys.load();
        let TicketKey { key, .. } = keys.as_ref()?.iter().find(|key| key.stored.name == *name)?;
        let mut text = text.to_vec();
        let plain = key.open_in_place(Nonce::from(nonce), Aad::from(*name), &mut text).ok()?;
        Some(plain.to_vec())
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        self.own.enabled()
    }

    fn lifetime(&self) -> u32 {
        if self.keys.load().is_some() { VALID } else { self.own.lifetime() }
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain).or_else(|| self.own.encrypt(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher).or_else(|| self.own.decrypt(cipher))
    }
}

fn encode(keys: &[StoredKey]) -> Vec<u8> {
    let entry = |key: &StoredKey| [&key.name[..], &key.born.to_be_bytes(), &key.key].concat();
    keys.iter().flat_map(entry).collect()
}

fn decode(text: &[u8]) -> Option<Vec<StoredKey>> {
    let entry = |entry: &[u8]| {
        let (name, rest) = entry.split_first_chunk()?;
        let (born, key) = rest.split_first_chunk()?;
        let born = u64::from_be_bytes(*born);
        Some(StoredKey { name: *name, born, key: key.try_into().ok()? })
    };
    let is_whole = (1..=KEYS * ENTRY).contains(&text.len());
    text.chunks(ENTRY).map(entry).collect::<Option<Vec<_>>>().filter(|_| is_whole)
}

impl SealedStore {
    /// Reads the keys of the store, adds one where it is time, and puts them into use. False: the
    /// value has changed meanwhile, and has to be read again.
    async fn renew_tickets(&self, tickets: &SharedTickets, wall: u64) -> Result<bool, StoreAway> {
        let found = self.read_one(SharedPlace::Tickets).await?;
        let revision = found.as_ref().map(|found| found.revision);
        let (mut keys, mut is_current) = (Vec::new(), true);
        if let Some(found) = found {
            match found.opened {
                Ok(opened) => {
                    is_current = opened.is_current;
                    // A value that opens and is no list of keys is replaced.
                    keys = decode(&opened.plain).unwrap_or_default();
                }
                Err(error) => {
                    if self.agreement() != Agreement::Other {
                        tracing::error!(
                            "this node shares nothing with the others: the keys of session tickets \
                             in etcd cannot be opened, because {error} (hint: all nodes need the \
                             same `cluster.secret`)"
                        );
                    }
                    self.agree(Agreement::Other);
                    return Ok(true);
                }
            }
        }
        self.agree(Agreement::Same);
        if keys.last().is_none_or(|key| key.is_old(wall)) || !is_current {
            if keys.last().is_none_or(|key| key.is_old(wall)) {
                keys.push(StoredKey::random().ok_or(StoreAway)?);
            }
            keys.drain(..keys.len().saturating_sub(KEYS));
            let expected = ExpectedValue::At(revision);
            if self.write(SharedPlace::Tickets, &encode(&keys), expected).await?
                == PutOutcome::Refused
            {
                return Ok(false);
            }
        }
        tickets.adopt(keys);
        Ok(true)
    }

    /// Keeps the keys of tickets up to date until the future is dropped.
    pub(crate) async fn follow_tickets(&self, tickets: &SharedTickets) {
        loop {
            let pause = match self.renew_tickets(tickets, wall()).await {
                Ok(true) => LOOK,
                Ok(false) | Err(StoreAway) => RETRY,
            };
            sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::Ticketer;

    use super::*;
    use crate::shared::tests::{MemoryStore, node};

    fn tickets() -> SharedTickets {
        SharedTickets::new(Ticketer::new().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_of_one_node_opens_at_the_other_until_its_key_is_gone() {
        let store = MemoryStore::default();
        let [a, b] = [node(&store, &["one"]), node(&store, &["one"])];
        let [at_a, at_b] = [tickets(), tickets()];
        // Before the store answers each node has keys of its own.
        let alone = at_a.encrypt(b"session").unwrap();
        assert_eq!(at_b.decrypt(&alone), None);
        let begin = wall();
        assert_eq!(a.renew_tickets(&at_a, begin).await, Ok(true));
        assert_eq!(b.renew_tickets(&at_b, begin).await, Ok(true));
        assert_eq!(at_a.decrypt(&alone).as_deref(), Some(&b"session"[..]));
        let ticket = at_a.encrypt(b"session").unwrap();
        assert_eq!(at_b.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(at_b.decrypt(&ticket[..ticket.len() - 1]), None);
        assert_eq!(at_b.decrypt(&[]), None);

        // A new key does not seal before the other node has read it.
        tokio::time::advance(LOOK).await;
        assert_eq!(a.renew_tickets(&at_a, begin + SEALS).await, Ok(true));
        let next = at_a.encrypt(b"session").unwrap();
        assert_eq!(next[..NAME], ticket[..NAME]);
        tokio::time::advance(SPREAD).await;
        let next = at_a.encrypt(b"session").unwrap();
        assert_ne!(next[..NAME], ticket[..NAME]);
        assert_eq!(at_b.decrypt(&next), None);
        assert_eq!(b.renew_tickets(&at_b, begin + SEALS).await, Ok(true));
        assert!(at_b.decrypt(&next).is_some() && at_b.decrypt(&ticket).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_of_a_ticket_goes_after_its_life() {
        let store = MemoryStore::default();
        let (node, tickets) = (node(&store, &["one"]), tickets());
        let begin = wall();
        assert_eq!(node.renew_tickets(&tickets, begin).await, Ok(true));
        let ticket = tickets.encrypt(b"session").unwrap();
        // `StoredKey::random` takes the second of the real clock.
        for n in 1..=3 {
            assert!(tickets.decrypt(&ticket).is_some(), "{n}");
            assert_eq!(node.renew_tickets(&tickets, begin + n * SEALS + n).await, Ok(true));
        }
        assert_eq!(tickets.decrypt(&ticket), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_with_another_secret_keeps_its_own_keys_and_changes_nothing() {
        let store = MemoryStore::default();
        let [a, b] = [node(&store, &["one"]), node(&store, &["other"])];
        let [at_a, at_b] = [tickets(), tickets()];
        assert_eq!(a.agreement(), Agreement::Unknown);
        assert_eq!(a.renew_tickets(&at_a, wall()).await, Ok(true));
        assert_eq!(a.agreement(), Agreement::Same);
        assert_eq!(b.renew_tickets(&at_b, wall() + 9 * SEALS).await, Ok(true));
        assert_eq!(b.agreement(), Agreement::Other);
        let ticket = at_b.encrypt(b"session").unwrap();
        assert!(at_b.decrypt(&ticket).is_some() && at_a.decrypt(&ticket).is_none());
        assert_eq!(a.renew_tickets(&at_a, wall()).await, Ok(true));
        assert_eq!(a.agreement(), Agreement::Same);
        // Both secrets: the value is sealed anew with the first one.
        let c = node(&store, &["other", "one"]);
        assert_eq!(c.renew_tickets(&tickets(), wall()).await, Ok(true));
        assert_eq!(b.renew_tickets(&at_b, wall()).await, Ok(true));
        assert_eq!(b.agreement(), Agreement::Same);
        store.set_away(true);
        assert_eq!(a.renew_tickets(&at_a, wall()).await, Err(StoreAway));
    }

    #[test]
    fn what_is_no_list_of_keys_is_none() {
        let keys = [StoredKey::random().unwrap(), StoredKey::random().unwrap()];
        let text = encode(&keys);
        assert!(decode(&text).is_some_and(|read| read == keys));
        for bad in [&text[..ENTRY - 1], &text[..2 * ENTRY - 1], &[], &[0; 4 * ENTRY][..]] {
            assert!(decode(bad).is_none(), "{}", bad.len());
        }
    }
}
