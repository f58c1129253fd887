//! Requests, as the JSON that the gateway reads.

use bytes::Bytes;
use cluster::engine::{
    Compare, Condition, Lease, OPERATIONS, Operation, Range, Revision, Transaction,
};
use serde::Serialize;

use super::values::{Base64, Number};
use crate::settings::LogIn;

/// Whether etcd accepts as many operations (etcd, `checkTxnRequest`): the largest of the three
/// lists of a transaction is counted, and for a transaction inside it the rest is left.
pub(crate) fn fits(transaction: &Transaction) -> bool {
    fn fits(transaction: &Transaction, most: usize) -> bool {
        let Transaction { compare, then, otherwise } = transaction;
        let count = compare.len().max(then.len()).max(otherwise.len());
        let Some(rest) = most.checked_sub(count) else { return false };
        then.iter().chain(otherwise).all(|operation| match operation {
            Operation::Inner(inner) => fits(inner, rest),
            Operation::Range(_) | Operation::Put { .. } | Operation::Delete { .. } => true,
        })
    }
    fits(transaction, OPERATIONS)
}

/// The body of `/v3/kv/txn`.
pub(crate) fn transaction(transaction: &Transaction) -> Bytes {
    body(&Txn::of(transaction))
}

/// The body of `/v3/kv/range`. With a revision the answer is the state after that change.
pub(crate) fn range(range: &Range, is_local: bool, at: Option<Revision>) -> Bytes {
    let mut query = RangeBody::of(range);
    query.serializable = is_local;
    query.revision = at.map(|at| Number(at.0));
    body(&query)
}

/// The body of `/v3/lease/grant`.
pub(crate) fn grant(seconds: u64) -> Bytes {
    #[derive(Serialize)]
    struct GrantBody {
        #[serde(rename = "TTL")]
        seconds: Number,
    }
    body(&GrantBody { seconds: Number(seconds) })
}

/// The body of `/v3/lease/keepalive` and `/v3/lease/revoke`.
pub(crate) fn lease(lease: Lease) -> Bytes {
    #[derive(Serialize)]
    struct LeaseBody {
        #[serde(rename = "ID")]
        id: Number,
    }
    body(&LeaseBody { id: Number(lease.0) })
}

/// The body of `/v3/auth/authenticate`.
pub(crate) fn log_in(log_in: &LogIn) -> Bytes {
    #[derive(Serialize)]
    struct LogInBody<'a> {
        name: &'a str,
        password: &'a str,
    }
    body(&LogInBody { name: &log_in.user, password: &log_in.password })
}

/// The body of `/v3/watch`. Answers come in fragments: without `fragment` etcd puts up to 1,000
/// changes into one line, whatever their size. From revision 0 the changes begin now.
pub(crate) fn watch(range: &Range, from: Revision) -> Bytes {
    #[derive(Serialize)]
    struct Create {
        key: Base64,
        #[serde(skip_serializing_if = "Option::is_none")]
        range_end: Option<Base64>,
        start_revision: Number,
        progress_notify: bool,
        fragment: bool,
    }
    #[derive(Serialize)]
    struct WatchBody {
        create_request: Create,
    }
    let RangeBody { key, range_end, .. } = RangeBody::of(range);
    let start_revision = Number(from.0);
    body(&WatchBody {
        create_request: Create {
            key,
            range_end,
            start_revision,
            progress_notify: true,
            fragment: true,
        },
    })
}

/// The values above have strings as keys and no numbers that JSON lacks, so they are always
/// written.
fn body(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[derive(Serialize)]
struct Txn {
    compare: Vec<CompareBody>,
    success: Vec<OperationBody>,
    failure: Vec<OperationBody>,
}

impl Txn {
    fn of(transaction: &Transaction) -> Self {
        let operations = |list: &[Operation]| list.iter().map(OperationBody::of).collect();
        Self {
            compare: transaction.compare.iter().map(CompareBody::of).collect(),
            success: operations(&transaction.then),
            failure: operations(&transaction.otherwise),
        }
    }
}

#[derive(Serialize)]
struct CompareBody {
    key: Base64,
    target: &'static str,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_revision: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mod_revision: Option<Number>,
}

impl CompareBody {
    fn of(compare: &Compare) -> Self {
        // The revisions of an absent key are 0 (`applyCompare`).
        let (target, result, create_revision, mod_revision) = match compare.is {
            Condition::Absent => ("CREATE", "EQUAL", Some(Number(0)), None),
            Condition::CreatedAt(at) => ("CREATE", "EQUAL", Some(Number(at.0)), None),
            Condition::ModifiedAt(at) => ("MOD", "EQUAL", None, Some(Number(at.0))),
            Condition::ModifiedBefore(at) => ("MOD", "LESS", None, Some(Number(at.0))),
        };
        let key = Base64(compare.key.clone());
        Self { key, target, result, create_revision, mod_revision }
    }
}

#[derive(Serialize)]
enum OperationBody {
    #[serde(rename = "request_range")]
    Range(RangeBody),
    #[serde(rename = "request_put")]
    Put(PutBody),
    #[serde(rename = "request_delete_range")]
    Delete(DeleteBody),
    #[serde(rename = "request_txn")]
    Inner(Txn),
}

impl OperationBody {
    fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Range(range) => Self::Range(RangeBody::of(range)),
            Operation::Put { key, value, lease } => Self::Put(PutBody {
                key: Base64(key.clone()),
                value: Base64(value.clone()),
                lease: lease.map(|lease| Number(lease.0)),
            }),
            Operation::Delete { key } => Self::Delete(DeleteBody { key: Base64(key.clone()) }),
            Operation::Inner(inner) => Self::Inner(Txn::of(inner)),
        }
    }
}

#[derive(Serialize)]
struct PutBody {
    key: Base64,
    value: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Number>,
}

#[derive(Serialize)]
struct DeleteBody {
    key: Base64,
}

#[derive(Serialize)]
struct RangeBody {
    key: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Base64>,
    limit: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Number>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    serializable: bool,
}

impl RangeBody {
    fn of(range: &Range) -> Self {
        Self {
            key: Base64(range.from.clone()),
            range_end: range.to.clone().map(Base64),
            limit: Number(range.limit.into()),
            revision: None,
            serializable: false,
        }
    }
}
