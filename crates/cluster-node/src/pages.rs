//! Pages of records, for people who look at the cluster: nothing of them is kept, and nobody reads
//! them when nobody looks. They have calls of their own to the engine, so that no client and no
//! visitor waits for them, and the rules of the cluster do not know them.

use std::future::pending;

use cluster::engine::{KeyValue, NoReply, Operation, Performed, Transaction};
use cluster::keys::{Keyspace, PagedTable, RecordPlace};
use cluster::node::{EngineReply, EngineRequest, Lane};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::engine::{EngineCaller, Unanswered};
use crate::lanes::ANSWER;

/// The most pages that wait for the engine. Further callers wait for room.
pub(crate) const PAGES: usize = 8;

/// The most records of a page. Records of homes have 200 bytes, and 1.5 KB at most.
pub const PAGE_RECORDS: u32 = 200;

/// The records of a table that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPage {
    /// The table.
    pub table: PagedTable,
    /// What the names of the records begin with.
    pub begins: String,
    /// The last record of the page before.
    pub after: Option<RecordPlace>,
    /// The most records, [`PAGE_RECORDS`] at most.
    pub limit: u32,
}

/// A page of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPage {
    /// The records in the order of their keys.
    pub records: Vec<(RecordPlace, KeyValue)>,
    /// Whether there are further records.
    pub more: bool,
}

/// A page, and who waits for it.
pub(crate) type PageQuestion = (WantedPage, oneshot::Sender<Result<RecordPage, Unanswered>>);

/// Reads pages until the future is dropped.
pub(crate) async fn pages<C: EngineCaller>(
    mut caller: C,
    keys: Keyspace,
    mut asked: mpsc::Receiver<PageQuestion>,
) {
    while let Some((wanted, reply)) = asked.recv().await {
        if reply.is_closed() {
            continue;
        }
        let read = timeout(ANSWER, page(&mut caller, &keys, wanted)).await;
        let read = read.unwrap_or_else(|_| {
            caller.turn();
            Err(unanswered("the directory does not answer"))
        });
        let _ = reply.send(read);
    }
    // The node leaves when nobody has a handle any more, and this future has no part in that.
    pending().await
}

pub(crate) fn unanswered(reason: &str) -> Unanswered {
    Unanswered { failure: NoReply::Refused, reason: reason.to_owned() }
}

async fn page<C: EngineCaller>(
    caller: &mut C,
    keys: &Keyspace,
    wanted: WantedPage,
) -> Result<RecordPage, Unanswered> {
    let WantedPage { table, begins, after, limit } = wanted;
    let limit = limit.clamp(1, PAGE_RECORDS);
    let range = keys.page(table, &begins, after.as_ref(), limit);
    if range.to.as_ref().is_some_and(|to| range.from >= *to) {
        return Ok(RecordPage::default());
    }
    let transaction = Transaction { then: vec![Operation::Range(range)], ..Transaction::default() };
    let EngineReply::Done(done) =
        caller.ask(&EngineRequest::Transact(Lane::LookUps, transaction)).await?
    else {
        return Err(unanswered("the directory gave the answer to another request"));
    };
    let Some(Performed::Range { keys: found, more }) = done.answers.into_iter().next() else {
        return Err(unanswered("the directory gave no records"));
    };
    let record = |found: KeyValue| Some((keys.place(&found.key)?, found));
    Ok(RecordPage { records: found.into_iter().filter_map(record).collect(), more })
}
