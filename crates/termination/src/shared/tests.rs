//! A store in memory, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rate::Lock;
use super::*;

/// A store in memory, which all nodes of a test have.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStore(Arc<Memory>);

#[derive(Debug, Default)]
struct Memory {
    values: Lock<(u64, BTreeMap<SharedPlace, StoredValue>)>,
    is_away: AtomicBool,
    is_taken: AtomicBool,
}

/// A node with these secrets.
pub(crate) fn node(store: &MemoryStore, secrets: &[&'static str]) -> SealedStore {
    let secret = CommonSecret::new(secrets.iter().copied()).unwrap();
    SealedStore::new(secret, Arc::new(store.clone()))
}

impl MemoryStore {
    /// The store answers nobody, or everybody again.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.0.is_away.store(is_away, Ordering::Relaxed);
    }

    /// A byte of a value is changed.
    pub(crate) fn damage(&self, place: &SharedPlace) {
        let mut values = self.0.values.lock().unwrap();
        let stored = values.1.get_mut(place).unwrap();
        let mut bytes = stored.value.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        stored.value = bytes.into();
    }

    fn away(&self) -> Result<(), StoreAway> {
        if self.0.is_away.load(Ordering::Relaxed) { Err(StoreAway) } else { Ok(()) }
    }
}

/// The right to order, until it is dropped.
struct MemoryTurn(MemoryStore);

impl Drop for MemoryTurn {
    fn drop(&mut self) {
        self.0.0.is_taken.store(false, Ordering::Relaxed);
    }
}

impl SharedStore for MemoryStore {
    fn get(
        &self,
        places: Vec<SharedPlace>,
    ) -> StoreFuture<'_, Result<Vec<Option<StoredValue>>, StoreAway>> {
        Box::pin(async move {
            self.away()?;
            let values = self.0.values.lock().unwrap();
            Ok(places.iter().map(|place| values.1.get(place).cloned()).collect())
        })
    }

    fn put(
        &self,
        place: SharedPlace,
        value: Bytes,
        expected: ExpectedValue,
        _: Option<Duration>,
    ) -> StoreFuture<'_, Result<PutOutcome, StoreAway>> {
        Box::pin(async move {
            self.away()?;
            let mut values = self.0.values.lock().unwrap();
            let there = values.1.get(&place).map(|stored| stored.revision);
            if expected != ExpectedValue::Any && expected != ExpectedValue::At(there) {
                return Ok(PutOutcome::Refused);
            }
            values.0 += 1;
            let revision = values.0;
            values.1.insert(place, StoredValue { revision, value });
            Ok(PutOutcome::Written(revision))
        })
    }

    fn remove(&self, place: SharedPlace) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.0.values.lock().unwrap().1.remove(&place);
        })
    }

    fn take_turn(&self) -> StoreFuture<'_, Option<OrderTurn>> {
        Box::pin(async move {
            self.away().ok()?;
            let was_taken = self.0.is_taken.swap(true, Ordering::Relaxed);
            (!was_taken).then(|| Box::new(MemoryTurn(self.clone())) as OrderTurn)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_found_for_its_name_alone_and_look_ups_are_bounded() {
    let store = MemoryStore::default();
    let [a, b] = [node(&store, &["one"]), node(&store, &["one"])];
    let place = SharedPlace::Challenge("token".into());
    a.answer(&place, "a.example", b"token.thumbprint").await.unwrap();
    let proof = b.proof(place.clone(), "a.example").await;
    assert_eq!(proof.as_deref(), Some(&b"token.thumbprint"[..]));
    assert_eq!(b.proof(place.clone(), "b.example").await, None);
    let other = node(&store, &["other"]);
    assert_eq!(other.proof(place.clone(), "a.example").await, None);
    let mut found = 0;
    for _ in 0..2 * CHALLENGES {
        found += u32::from(a.proof(place.clone(), "a.example").await.is_some());
    }
    assert_eq!(found, CHALLENGES);
    a.withdraw(place.clone()).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(a.proof(place, "a.example").await, None);
}

#[test]
fn a_token_has_128_bits_of_base64url() {
    let token = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";
    assert!(is_token(token) && is_token(&token[..22]));
    for other in ["", &token[..21], &token.repeat(3), &token.replace('x', "/")] {
        assert!(!is_token(other), "{other}");
    }
}
