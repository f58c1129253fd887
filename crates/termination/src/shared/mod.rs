//! What the terminators of the nodes of a cluster share, so that one node orders a certificate and
//! every node presents it: certificates with their keys, accounts, responses to challenges, keys of
//! session tickets. The store is that of the caller ([`SharedStore`]); everything in it is sealed
//! with the secret of the cluster ([`CommonSecret`]).
//!
//! Nothing is watched. A node looks a certificate up when a visitor asks for it
//! (`crate::look_ups`), and keeps it in memory (`kept`). A node whose client publishes a name
//! compares its certificate with the store when it sees the name first, and before it orders;
//! `acme::common` has these rules.

mod kept;
mod place;
mod rate;
mod secret;
mod tickets;

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

pub(crate) use kept::{Flights, LookedUp};
pub use place::SharedPlace;
use rate::PerSecond;
use secret::OpenedValue;
pub use secret::{CommonSecret, Resealed, Unsealed};
pub(crate) use tickets::SharedTickets;

/// The longest time for which a check of an authority, or a visitor, waits for the store.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The most look-ups of challenges in a second: anyone can ask for any token.
const CHALLENGES: u32 = 100;

/// The most look-ups of certificates in a second: the names below a published wildcard are chosen
/// by visitors.
const CERTIFICATES: u32 = 1_000;

/// How long a response to a challenge is kept if the node that has put it ends before its order.
pub const ANSWERED: Duration = Duration::from_secs(300);

/// The characters of a token of http-01. RFC 8555 section 8.3 demands 128 bits of base64url; Let's
/// Encrypt has 43 characters and step-ca 32. Other paths are not worth a look-up.
const TOKEN: RangeInclusive<usize> = 22..=86;

/// A future of a store.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The right to order certificates, which one node at a time has. It ends when the value is
/// dropped.
pub type OrderTurn = Box<dyn Send>;

/// The store of a cluster. Its values have at most 32 KiB.
pub trait SharedStore: fmt::Debug + Send + Sync + 'static {
    /// Reads the values of some places.
    fn get(
        &self,
        places: Vec<SharedPlace>,
    ) -> StoreFuture<'_, Result<Vec<Option<StoredValue>>, StoreAway>>;

    /// Writes a value, which the store removes after `keep`.
    fn put(
        &self,
        place: SharedPlace,
        value: Bytes,
        expected: ExpectedValue,
        keep: Option<Duration>,
    ) -> StoreFuture<'_, Result<PutOutcome, StoreAway>>;

    /// Removes a value, if the store answers.
    fn remove(&self, place: SharedPlace) -> StoreFuture<'_, ()>;

    /// Takes the right to order; `None`: another node has it, or the store does not answer.
    fn take_turn(&self) -> StoreFuture<'_, Option<OrderTurn>>;
}

/// A value of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The number of the change that wrote the value.
    pub revision: u64,
    /// The value.
    pub value: Bytes,
}

/// What must be in the store before a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedValue {
    /// Anything or nothing.
    Any,
    /// The value of this revision; `None`: no value.
    At(Option<u64>),
}

/// What has become of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The value was written, by the change of this number.
    Written(u64),
    /// Something else was there than was expected.
    Refused,
}

/// The store does not answer, or this node does not belong to the cluster at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store of the cluster does not answer")]
pub struct StoreAway;

/// A response to a challenge, for any node that is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SharedAnswer {
    /// The name that is checked.
    host: Box<str>,
    /// The key authorization of http-01, or the digest of tls-alpn-01.
    proof: Vec<u8>,
}

/// Whether this node has the secret of the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// The store was not read yet.
    Unknown,
    /// The keys of tickets, which are sealed anew every six hours, were opened.
    Same,
    /// They were not.
    Other,
}

/// A value as it was found.
#[derive(Debug)]
pub(crate) struct FoundValue {
    pub(crate) revision: u64,
    pub(crate) opened: Result<OpenedValue, Unsealed>,
}

/// The sealed store, with the bounds of look-ups.
#[derive(Debug)]
pub(crate) struct SealedStore {
    secret: CommonSecret,
    store: Arc<dyn SharedStore>,
    agreement: AtomicU8,
    challenges: PerSecond,
    pub(crate) certificates: PerSecond,
    pub(crate) flights: Flights,
}

impl SealedStore {
    pub(crate) fn new(secret: CommonSecret, store: Arc<dyn SharedStore>) -> Self {
        Self {
            secret,
            store,
            agreement: AtomicU8::new(0),
            challenges: PerSecond::new(CHALLENGES),
            certificates: PerSecond::new(CERTIFICATES),
            flights: Flights::default(),
        }
    }

    pub(crate) fn agreement(&self) -> Agreement {
        match self.agreement.load(Ordering::Relaxed) {
            0 => Agreement::Unknown,
            1 => Agreement::Same,
            _ => Agreement::Other,
        }
    }

    fn agree(&self, agreement: Agreement) {
        let number = match agreement {
            Agreement::Unknown => 0,
            Agreement::Same => 1,
            Agreement::Other => 2,
        };
        self.agreement.store(number, Ordering::Relaxed);
    }

    /// Reads and opens the values of some places.
    pub(crate) async fn read(
        &self,
        places: Vec<SharedPlace>,
    ) -> Result<Vec<Option<FoundValue>>, StoreAway> {
        let values = self.store.get(places.clone()).await?;
        let open = |(place, stored): (&SharedPlace, Option<StoredValue>)| {
            let StoredValue { revision, value } = stored?;
            Some(FoundValue { revision, opened: self.secret.open(place, &value) })
        };
        Ok(places.iter().zip(values).map(open).collect())
    }

    /// Reads and opens one value.
    pub(crate) async fn read_one(
        &self,
        place: SharedPlace,
    ) -> Result<Option<FoundValue>, StoreAway> {
        Ok(self.read(vec![place]).await?.pop().flatten())
    }

    /// Seals and writes a value.
    pub(crate) async fn write(
        &self,
        place: SharedPlace,
        plain: &[u8],
        expected: ExpectedValue,
    ) -> Result<PutOutcome, StoreAway> {
        self.write_for(place, plain, expected, None).await
    }

    async fn write_for(
        &self,
        place: SharedPlace,
        plain: &[u8],
        expected: ExpectedValue,
        keep: Option<Duration>,
    ) -> Result<PutOutcome, StoreAway> {
        // Sealing fails only without random numbers: nothing can be shared then.
        let value = self.secret.seal(&place, plain).ok_or(StoreAway)?;
        self.store.put(place, value, expected, keep).await
    }

    /// Takes the right to order.
    pub(crate) async fn take_turn(&self) -> Option<OrderTurn> {
        self.store.take_turn().await
    }

    /// Puts the response to a challenge where every node finds it.
    pub(crate) async fn answer(
        &self,
        place: &SharedPlace,
        host: &str,
        proof: &[u8],
    ) -> Result<(), StoreAway> {
        let answer = SharedAnswer { host: host.into(), proof: proof.to_vec() };
        let text = serde_json::to_vec(&answer).map_err(|_| StoreAway)?;
        self.write_for(place.clone(), &text, ExpectedValue::Any, Some(ANSWERED)).await.map(drop)
    }

    /// Removes the response to a challenge.
    pub(crate) async fn withdraw(&self, place: SharedPlace) {
        self.store.remove(place).await;
    }

    /// The response of another node to a challenge of this host.
    pub(crate) async fn proof(&self, place: SharedPlace, host: &str) -> Option<Vec<u8>> {
        if !self.challenges.allows() {
            return None;
        }
        let found = timeout(PATIENCE, self.read_one(place)).await.ok()?.ok()??;
        let opened = match found.opened {
            Ok(opened) => opened,
            Err(error) => {
                tracing::debug!(host, "the response to a challenge is not used: {error}");
                return None;
            }
        };
        let answer: SharedAnswer = serde_json::from_slice(&opened.plain).ok()?;
        (&*answer.host == host).then_some(answer.proof)
    }
}

/// Whether a text can be a token of http-01.
pub(crate) fn is_token(text: &str) -> bool {
    let is_of_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    TOKEN.contains(&text.len()) && text.bytes().all(is_of_base64)
}

#[cfg(test)]
pub(crate) mod tests;
