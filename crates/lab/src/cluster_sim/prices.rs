//! What the engine costs: figures that were measured with etcd 3.4.23 on two cores on 2026-11-24
//! (one member) and on 2026-11-28 (three members on one disk). All times are in microseconds.
//!
//! | measured | here |
//! |---|---|
//! | put alone 800 µs, 44 to 55 µs each in a transaction of 128 | [`WRITE`] and [`WRITTEN`] |
//! | get alone 400 to 1,100 µs, 55 µs each in 128 | [`READ`] and [`KEY_READ`] |
//! | page of 1,000 records 40 ms | [`LISTED`] |
//! | one watcher told of one change 19 µs | [`TOLD`] |
//! | end of a lease with 10,000 keys 51 ms, everything else waits | [`ENDED`] |
//! | a put before three members is answered after 3.4 ms | [`COMMIT`] |
//! | gaps after the death of the leader 2.06, 1.01, 2.01 s | [`ELECTIONS`] |

use cluster::engine::{Operation, Range, Transaction};
use cluster::node::EngineRequest;

/// The cores of a member. Requests take a core each, in the order of their arrival.
pub(super) const CORES: usize = 2;

/// The members of the engine.
pub(super) const MEMBERS: u8 = 3;

/// A transaction that writes, and each of its writes: 800 µs with one write, 50 µs for each of 128.
const WRITE: u64 = 756;
const WRITTEN: u64 = 44;

/// A transaction that reads, and each key: 400 µs with one key, 55 µs for each of 128.
const READ: u64 = 347;
const KEY_READ: u64 = 52;

/// A record of a page.
const LISTED: u64 = 40;

/// A lease that is granted, renewed or ended: a put alone.
pub(super) const LEASED: u64 = 800;

/// A key that is deleted because its lease ends.
pub(super) const ENDED: u64 = 5;

/// A watcher that is told of a change.
pub(super) const TOLD: u64 = 19;

/// The time from the end of a write's processing to its answer: 3.4 ms for a put alone, without the
/// processor time of the put. Other requests are processed meanwhile.
pub(super) const COMMIT: u64 = 2_600;

/// The same for a read that all members confirm. Not measured: a round trip between the members.
pub(super) const CONFIRM: u64 = 500;

/// The times without a leader after the death of a leader.
pub(super) const ELECTIONS: [u64; 3] = [1_010_000, 2_010_000, 2_060_000];

/// The time after which an answer counts as lost.
pub(super) const GIVEN_UP: u64 = 1_000_000;

/// The time until all members have found each other after a stop of all.
pub(super) const RETURN: u64 = 2_300_000;

/// The log-in of a client at its node: 2,000 clients over `tls://` in 0.88 s (benches/README.md).
pub(super) const LOG_IN: u64 = 440;

/// Whether a request writes, so that its answer waits for the other members.
pub(super) fn writes(request: &EngineRequest) -> bool {
    match request {
        EngineRequest::Transact(_, transaction) => is_write(transaction),
        EngineRequest::Grant(..) | EngineRequest::Revoke(_) => true,
        // The leader answers a renewal by itself.
        EngineRequest::KeepAlive(_) => false,
    }
}

fn is_write(transaction: &Transaction) -> bool {
    !transaction.then.iter().all(|operation| matches!(operation, Operation::Range(_)))
}

/// The processor time of a request. `listed` counts the keys of a range of many keys.
pub(super) fn price(request: &EngineRequest, listed: impl Fn(&Range) -> u64) -> u64 {
    let transaction = match request {
        EngineRequest::Transact(_, transaction) => transaction,
        EngineRequest::Grant(..) | EngineRequest::Revoke(_) | EngineRequest::KeepAlive(_) => {
            return LEASED;
        }
    };
    let (start, each) = if is_write(transaction) { (WRITE, WRITTEN) } else { (READ, KEY_READ) };
    let costs = transaction.then.iter().map(|operation| match operation {
        Operation::Range(range) if range.to.is_some() => LISTED * listed(range),
        Operation::Range(_) => KEY_READ,
        Operation::Put { .. } | Operation::Delete { .. } | Operation::Inner(_) => each,
    });
    start + costs.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use cluster::node::Lane;

    use super::*;

    fn priced(then: Vec<Operation>) -> u64 {
        let transaction = Transaction { then, ..Transaction::default() };
        price(&EngineRequest::Transact(Lane::Claims, transaction), |_| 1_000)
    }

    #[test]
    fn the_prices_are_those_that_were_measured() {
        let key = Bytes::from_static(b"a");
        let put = Operation::Put { key: key.clone(), value: key.clone(), lease: None };
        let get = Operation::Range(Range::of(key.clone()));
        assert_eq!(priced(vec![put.clone()]), 800);
        assert_eq!(priced(vec![put; 128]) / 128, 49);
        assert_eq!(priced(vec![get.clone()]), 399);
        assert_eq!(priced(vec![get; 128]) / 128, 54);
        let page = priced(vec![Operation::Range(Range::below(&key))]);
        assert_eq!(page / 1_000, 40, "40 ms");
    }
}
