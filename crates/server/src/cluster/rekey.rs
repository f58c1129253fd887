//! The change of the secret of a cluster: all that is sealed in the directory is sealed anew with
//! the first secret of this node, while the nodes run.
//!
//! The tables are read page by page. A value that an earlier secret has sealed is replaced on the
//! condition that it is still there, so a value that another node writes meanwhile stays. A run
//! that was broken off goes on at its place or begins again: what is sealed with the first secret
//! is left as it is. The tables have no value of the earlier secret any more when a run has come to
//! the end and no node has sealed with the earlier secret since the run began, which the records of
//! the nodes say.

use anyhow::{Context, anyhow, bail};
use cluster::blob::{self, BlobAct, BlobExpected, BlobOutcome, BlobWish};
use cluster::engine::KeyValue;
use cluster::keys::{BlobPlace, PagedTable, RecordPlace};
use cluster_node::{LivingNode, WantedPage};
use ops::cluster::{RekeyNode, RekeyStep, SealsWith, UNOPENED_MAX, worst_of};
use termination::{ANSWERED, CommonSecret, Resealed, SharedPlace};

use super::ServerNode;
use super::certificates::{place_of, shared_place};

/// The pages of a step: a step has at most 512 values, and 64 requests to the engine.
const PAGES: usize = 32;

/// The values of a page. The node writes as many in one batch.
const PAGE: u32 = 16;

/// The tables with sealed values, in the order of a run.
const TABLES: [PagedTable; 4] =
    [PagedTable::Accounts, PagedTable::Challenges, PagedTable::Tickets, PagedTable::Certificates];

/// The place of a run: a table, and the last value of the page before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RekeyPlace {
    table: PagedTable,
    after: Option<BlobPlace>,
}

impl RekeyPlace {
    const START: Self = Self { table: TABLES[0], after: None };

    /// The place that a step has returned.
    fn read(text: &str) -> anyhow::Result<Self> {
        if text.is_empty() {
            return Ok(Self::START);
        }
        let (table, name) = text.split_once('/').unwrap_or((text, ""));
        let some = |place: fn(std::sync::Arc<str>) -> BlobPlace| {
            (!name.is_empty()).then(|| place(name.into()))
        };
        let (table, after) = match table {
            "account" => (PagedTable::Accounts, some(BlobPlace::Account)),
            "challenge" => (PagedTable::Challenges, some(BlobPlace::Challenge)),
            "tickets" => {
                let number = name.parse().ok().map(BlobPlace::Tickets);
                (PagedTable::Tickets, number.filter(|_| !name.is_empty()))
            }
            "cert" => (PagedTable::Certificates, some(BlobPlace::Certificate)),
            _ => bail!("`{text}` is no place of a change of the secret"),
        };
        Ok(Self { table, after })
    }

    /// The text of the place.
    fn text(&self) -> String {
        let table = match self.table {
            PagedTable::Accounts => "account",
            PagedTable::Challenges => "challenge",
            PagedTable::Tickets => "tickets",
            PagedTable::Certificates => "cert",
            PagedTable::Homes => "at",
        };
        match &self.after {
            Some(
                BlobPlace::Account(name)
                | BlobPlace::Challenge(name)
                | BlobPlace::Certificate(name),
            ) => format!("{table}/{name}"),
            Some(BlobPlace::Tickets(number)) => format!("{table}/{number}"),
            Some(BlobPlace::Client(_) | BlobPlace::Code(_) | BlobPlace::Revoked(_)) | None => {
                table.to_owned()
            }
        }
    }

    /// The first place of the next table.
    fn next_table(&self) -> Option<Self> {
        let at = TABLES.iter().position(|table| *table == self.table)?;
        TABLES.get(at + 1).map(|table| Self { table: *table, after: None })
    }
}

impl ServerNode {
    /// A step of a change of the secret: seals up to 512 values behind `after` anew.
    ///
    /// # Errors
    /// The node has no secret, a node lacks the first secret of this node, or the directory does
    /// not answer. What was sealed anew stays so.
    pub(crate) async fn rekey(&self, after: &str) -> anyhow::Result<RekeyStep> {
        let secret = self
            .secret()
            .context("this node has no secret (hint: give all nodes the same `cluster.secret`)")?;
        let mut place = RekeyPlace::read(after)?;
        let mut step = RekeyStep { nodes: self.rekey_nodes(), ..RekeyStep::default() };
        if let Some(node) = step.nodes.iter().find(|it| it.seals == SealsWith::Unreadable) {
            bail!(
                "node {} cannot open what this node seals (hint: list the new secret and the \
                 former one in `cluster.secret` of all nodes first)",
                node.name
            );
        }
        for _ in 0..PAGES {
            let wanted = WantedPage {
                table: place.table,
                begins: String::new(),
                after: place.after.as_ref().map(BlobPlace::record),
                limit: PAGE,
            };
            let page = self.cluster().page(wanted).await;
            let page = page.map_err(|why| anyhow!("the cluster does not answer: {why}"))?;
            let last = page.records.last().map(|(place, _)| place.clone());
            self.reseal(secret, page.records, &mut step).await?;
            match last {
                Some(RecordPlace::Blob(last)) if page.more => place.after = Some(last),
                Some(_) | None => match place.next_table() {
                    Some(next) => place = next,
                    None => {
                        let before = std::mem::take(&mut step.nodes);
                        step.nodes = worst_of(before, self.rekey_nodes());
                        return Ok(step);
                    }
                },
            }
        }
        step.next = Some(place.text());
        Ok(step)
    }

    /// Seals the values of a page anew that the first secret has not sealed.
    async fn reseal(
        &self,
        secret: &CommonSecret,
        records: Vec<(RecordPlace, KeyValue)>,
        step: &mut RekeyStep,
    ) -> anyhow::Result<()> {
        let mut wishes = Vec::new();
        for (place, found) in records {
            let RecordPlace::Blob(place) = place else { continue };
            let Some(shared) = shared_place(&place) else { continue };
            step.read += 1;
            let value = blob::decode(&found.value);
            match value.map(|value| secret.reseal(&shared, &value)) {
                Some(Ok(Resealed::Current)) => {}
                Some(Ok(Resealed::Anew(value))) => {
                    // A response to a challenge ends by itself.
                    let keep = matches!(shared, SharedPlace::Challenge(_)).then_some(ANSWERED);
                    let expected = BlobExpected::At(found.modified);
                    let act = BlobAct::Put { value, expected, keep };
                    wishes.push(BlobWish { place: place_of(shared), act });
                }
                Some(Err(_)) | None => {
                    step.unopened += 1;
                    if step.names.len() < UNOPENED_MAX {
                        let (kind, name) = shared.parts();
                        step.names.push(format!("{kind}/{name}"));
                    }
                }
            }
        }
        for outcome in self.cluster().blobs(wishes).await {
            match outcome {
                BlobOutcome::Written(_) => step.sealed += 1,
                // Another node has written or removed it meanwhile.
                BlobOutcome::Refused(_) => step.changed += 1,
                BlobOutcome::Found(_)
                | BlobOutcome::Deleted
                | BlobOutcome::TooLong
                | BlobOutcome::Away { .. } => {
                    bail!("the cluster does not answer");
                }
            }
        }
        Ok(())
    }

    /// By which secret each node seals, as its record says.
    fn rekey_nodes(&self) -> Vec<RekeyNode> {
        let own = self.secret_marks();
        let first = own.first().copied();
        let nodes = self.cluster().nodes().borrow().clone();
        let node = |(id, living): (&cluster::names::NodeId, &LivingNode)| {
            let marks = living.record.as_ref().map(|record| &record.secrets);
            let marks = marks.filter(|marks| !marks.is_empty());
            let seals =
                match (marks, first) {
                    (Some(marks), Some(first)) if marks.first() == Some(&first) => {
                        if marks.len() > 1 { SealsWith::NewOfTwo } else { SealsWith::New }
                    }
                    (Some(marks), Some(first)) if marks.contains(&first) => SealsWith::Former,
                    (Some(_), Some(_)) => SealsWith::Unreadable,
                    (None, _) | (_, None) => SealsWith::Unknown,
                };
            RekeyNode { name: id.to_string(), seals }
        };
        nodes.iter().map(node).collect()
    }
}
