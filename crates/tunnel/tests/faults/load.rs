//! Visitors of all kinds at all entrances, one after another at each entrance, for as long as the
//! value lives; and readings of who has the shared name in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::judge::{Call, NameOp, Owner, Visit};

use crate::clients::SHARED;
use crate::etcd::{behind, bytes, number, post, text};
use crate::stage::Stage;
use crate::visitor::{KINDS, Kind, Wanted, visit};

/// The pause of the visitors of an entrance, and that of the reader.
const PAUSE: Duration = Duration::from_millis(40);

/// The keys of the cluster.
pub(crate) const PREFIX: &str = "/tunnel/test/1/";

/// Threads that go on until they are told.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Visits these services at all entrances.
    pub(crate) fn start(stage: &Stage, wanted: &[Wanted]) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let visits: Vec<_> = wanted.iter().flat_map(|it| KINDS.map(|kind| (*it, kind))).collect();
        let mut threads = Vec::new();
        for (entrance, address, front) in stage.entrances() {
            let (over, history) = (Arc::clone(&is_over), Arc::clone(&stage.history));
            let mut visits = visits.clone();
            if front.is_some() {
                visits.retain(|(_, kind)| *kind == Kind::Http);
            }
            threads.push(thread::spawn(move || {
                for (wanted, kind) in visits.iter().cycle() {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut to = wanted.at(*kind, address);
                    to.set_port(front.unwrap_or_else(|| to.port()));
                    let begun = history.now();
                    let served = visit(*kind, *wanted, to);
                    let (key, entrance, ended) =
                        (wanted.key(*kind), entrance.clone(), history.now());
                    history.known().visits.push(Visit { key, entrance, begun, ended, served });
                    thread::sleep(PAUSE);
                }
            }));
        }
        Self { is_over, threads }
    }

    /// Reads who has the shared name, at one member of etcd after the other.
    pub(crate) fn read_owner(stage: &Stage) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (over, history) = (Arc::clone(&is_over), Arc::clone(&stage.history));
        let members = stage.etcd.addresses();
        let reader = thread::spawn(move || {
            for member in members.iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let begun = history.now();
                if let Ok(answer) = post(*member, "/v3/kv/txn", &question()) {
                    let call = Call::answered(NameOp::Read(owner(&answer)), begun, history.now());
                    history.known().claims.push(call);
                }
                thread::sleep(PAUSE);
            }
        });
        Self { is_over, threads: vec![reader] }
    }

    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// The record of the shared name, and all nodes that are alive, of one revision.
fn question() -> Value {
    let host: Vec<_> = SHARED.name.split('.').rev().collect();
    let host = format!("{PREFIX}host/http/{}", host.join("."));
    let nodes = format!("{PREFIX}node/");
    json!({ "success": [
        { "request_range": { "key": text(&host) } },
        { "request_range": { "key": text(&nodes), "range_end": text(&behind(&nodes)) } },
    ]})
}

/// The owner of the record, if one of its nodes is alive in the epoch of the record.
fn owner(answer: &Value) -> Option<Owner> {
    let range = |at: usize| &answer["responses"][at]["response_range"]["kvs"];
    let record: Value = serde_json::from_slice(&bytes(&range(0)[0]["value"])).ok()?;
    let also = record["also"].as_array().cloned().unwrap_or_default();
    let holders = std::iter::once(&record).chain(&also);
    let nodes = range(1).as_array()?;
    let is_alive = |holder: &Value| {
        let key = format!("{PREFIX}node/{}", holder["node"].as_str().unwrap_or_default());
        nodes.iter().any(|node| {
            bytes(&node["key"]) == key.as_bytes()
                && Some(number(&node["create_revision"])) == holder["epoch"].as_u64()
        })
    };
    let is_held = holders.into_iter().any(is_alive);
    is_held.then(|| owner_of(&record)).flatten()
}

/// The process that a record names by the services that it describes.
pub(crate) fn owner_of(record: &Value) -> Option<Owner> {
    use base64::Engine as _;
    let about = record["about"].as_str()?;
    let about = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(about).ok()?;
    let digits =
        about.windows(7).find(|it| it[0] == b'p' && it[1..].iter().all(u8::is_ascii_digit))?;
    let process = String::from_utf8_lossy(&digits[1..]).parse().ok()?;
    Some(Owner { client: record["client"].as_str()?.to_owned(), process })
}
