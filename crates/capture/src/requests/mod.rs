//! The last requests of the services that keep them (`requests: true`, `tunnel share`): how they
//! are recorded, how much memory they use, and how they are read.
//!
//! ```text
//!   worker: observed ─► Recording ──begin, response, end: a short lock──► Store ─► list, detail
//!                          │ bytes of bodies, on the worker                │
//!                          └──────────────── Room ── bounds all of it ─────┘
//! ```
//!
//! Everything is in the memory of this process: no file contains a request. When a service no
//! longer keeps requests, its entries are removed.

mod frames;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use link::ProcessBudget;
use ops::requests::{
    HttpMessage, KeptBody, Messages, RequestDetail, RequestFilter, RequestProgress, SeenRequest,
    SeenRequests,
};

pub use record::{Connection, Marks};

/// The maximum number of kept requests per service.
const PER_SERVICE: usize = 200;

/// The maximum number of kept bytes of each body: a page, an API document, the start of an image.
const BODY: usize = 64 << 10;

/// The maximum memory of all kept requests, in bytes: 200 requests with 64 KiB in each direction,
/// and their headers.
const MOST: u64 = 32 << 20;

/// All kept requests take at most the budget divided by this number.
const SHARE: u64 = 8;

/// The memory of an entry in addition to its headers and bodies: its texts, and its slot in the
/// list.
const ENTRY: u64 = 1 << 10;

/// The kept requests of a client.
pub struct Store {
    inner: Mutex<Inner>,
    budget: Arc<ProcessBudget>,
    /// The memory of all requests, including requests in progress, in bytes.
    used: AtomicU64,
    most: u64,
    /// The number of requests that were not kept.
    lost: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// The number of the newest request.
    last: u64,
    /// Counts the changes, so that a reader can query the new ones.
    revision: u64,
    /// By number.
    all: VecDeque<Entry>,
    /// The number of entries of each service, so that no request has to count them.
    of_service: HashMap<String, usize>,
    /// The services that keep requests since the last reload that has changed them; `None`: there
    /// was no such reload. An older connection continues to report its requests.
    keeping: Option<HashSet<String>>,
}

impl Inner {
    /// Adds an entry. Returns the oldest entry of its service, if the service has too many.
    fn push(&mut self, entry: Entry) -> Option<Entry> {
        let service = &entry.seen.service;
        let gone = match self.of_service.get_mut(service) {
            Some(count) if *count >= PER_SERVICE => {
                let oldest = self.all.iter().position(|other| other.seen.service == *service);
                oldest.and_then(|place| self.all.remove(place))
            }
            Some(count) => {
                *count += 1;
                None
            }
            None => {
                self.of_service.insert(service.clone(), 1);
                None
            }
        };
        self.all.push_back(entry);
        gone
    }

    /// Removes the oldest request that has ended: a request in progress is held by its worker.
    fn remove_oldest(&mut self) -> Option<Entry> {
        let is_ended = |entry: &Entry| entry.seen.progress != RequestProgress::Open;
        let gone = self.all.remove(self.all.iter().position(is_ended)?)?;
        if let Some(count) = self.of_service.get_mut(&gone.seen.service) {
            *count -= 1;
        }
        Some(gone)
    }
}

/// A kept request.
struct Entry {
    seen: SeenRequest,
    request: Half,
    interim: Vec<Bytes>,
    response: Half,
    /// The counters of a connection that has switched protocols.
    live: Option<Arc<Switched>>,
    /// Why there is no replay: the request asks for a tunnel, or has switched to another protocol.
    no_replay: Option<&'static str>,
    revision: u64,
    /// The memory of the entry.
    rooms: Vec<Room>,
}

/// The bytes of a message.
#[derive(Clone, Debug, Default)]
struct Half {
    head: Bytes,
    trailers: Bytes,
    body: Bytes,
    bytes: u64,
    /// Nothing of the body is kept.
    left_out: bool,
    /// The message is complete.
    is_whole: bool,
}

/// The counters of a connection after a switch of protocols. The worker of the connection counts,
/// and readers read.
#[derive(Debug, Default)]
struct Switched {
    /// The bytes from the visitor and from the target.
    bytes: [AtomicU64; 2],
    messages: [AtomicU64; 2],
    is_websocket: bool,
}

/// Memory that kept requests use. Dropping the value releases it.
#[derive(Debug)]
struct Room {
    store: Arc<Store>,
    bytes: u64,
    held: link::Held,
}

impl Room {
    /// Reserves additional memory, like [`Store::room`]. Returns whether enough was available.
    fn grow(&mut self, bytes: u64) -> bool {
        let is_there = self.store.make_room(bytes);
        let is_taken = is_there && self.held.grow(bytes);
        if is_taken {
            self.bytes += bytes;
        } else if is_there {
            self.store.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.store.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("used", &self.used).finish_non_exhaustive()
    }
}

/// A request with the bytes that a replay sends.
#[derive(Debug)]
pub struct Original {
    pub service: String,
    pub bytes: Vec<u8>,
}

impl Store {
    pub fn new(budget: Arc<ProcessBudget>) -> Arc<Self> {
        let share = u64::try_from(budget.total()).unwrap_or_default() / SHARE;
        let (inner, used, lost) = Default::default();
        Arc::new(Self { inner, budget, used, most: MOST.min(share), lost })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts memory as used, and evicts the oldest requests for it. Returns whether enough was
    /// available.
    fn make_room(&self, bytes: u64) -> bool {
        while !self.reserve(bytes) {
            // The memory is released when the entry is dropped, outside of the lock.
            let gone = self.inner().remove_oldest();
            if gone.is_none() {
                return false;
            }
        }
        true
    }

    /// Reserves memory, and evicts the oldest requests for it. `None`: there is not enough.
    fn room(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        if !self.make_room(bytes) {
            return None;
        }
        match self.budget.take(bytes) {
            Some(held) => Some(Room { store: Arc::clone(self), bytes, held }),
            None => {
                self.used.fetch_sub(bytes, Ordering::Relaxed);
                None
            }
        }
    }

    fn reserve(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Adds a request. Returns its number. `None`: its service no longer keeps requests.
    fn begin(&self, mut entry: Entry) -> Option<u64> {
        let mut inner = self.inner();
        if inner.keeping.as_ref().is_some_and(|keeping| !keeping.contains(&entry.seen.service)) {
            return None;
        }
        let (last, revision) = (inner.last + 1, inner.revision + 1);
        (inner.last, inner.revision) = (last, revision);
        (entry.seen.id, entry.revision) = (last, revision);
        let gone = inner.push(entry);
        drop(inner);
        drop(gone);
        Some(last)
    }

    /// Changes a request, if it is still there.
    fn change(&self, id: u64, change: impl FnOnce(&mut Entry)) {
        let mut inner = self.inner();
        let revision = inner.revision + 1;
        if let Ok(place) = inner.all.binary_search_by_key(&id, |entry| entry.seen.id)
            && let Some(entry) = inner.all.get_mut(place)
        {
            change(entry);
            entry.revision = revision;
            inner.revision = revision;
        }
    }

    /// Forgets the requests of all other services, and accepts no more of them.
    pub fn retain(&self, keeping: HashSet<String>) {
        let mut inner = self.inner();
        let all = std::mem::take(&mut inner.all);
        let (kept, gone) = all.into_iter().partition(|one| keeping.contains(&one.seen.service));
        inner.all = kept;
        inner.of_service.retain(|service, _| keeping.contains(service));
        inner.keeping = Some(keeping);
        drop(inner);
        drop::<VecDeque<_>>(gone);
    }

    /// The requests that match the filter, without secrets.
    pub fn list(&self, filter: &RequestFilter) -> SeenRequests {
        let inner = self.inner();
        let all = inner.all.iter().map(Entry::seen).filter(|one| filter.takes(one)).collect();
        drop(inner);
        self.answer(all)
    }

    /// The requests that have changed since the revision, including requests in progress, and the
    /// current revision.
    pub fn since(&self, revision: u64) -> (SeenRequests, u64) {
        let inner = self.inner();
        let is_new = |entry: &&Entry| entry.revision > revision || entry.live.is_some();
        let all = inner.all.iter().filter(is_new).map(Entry::seen).collect();
        let now = inner.revision;
        drop(inner);
        (self.answer(all), now)
    }

    fn answer(&self, requests: Vec<SeenRequest>) -> SeenRequests {
        let [lost, memory_bytes] = [&self.lost, &self.used].map(|n| n.load(Ordering::Relaxed));
        SeenRequests { requests, lost, memory_bytes }
    }

    /// A request in full.
    pub fn one(&self, id: u64, secrets: bool) -> Option<RequestDetail> {
        let inner = self.inner();
        let entry = inner.all.iter().find(|entry| entry.seen.id == id)?;
        let (seen, why) = (entry.seen(), entry.no_replay());
        let (request, response) = (entry.request.clone(), entry.response.clone());
        let interim = entry.interim.clone();
        drop(inner);
        Some(RequestDetail {
            seen,
            request: request.message(secrets),
            interim: interim
                .iter()
                .map(|head| HttpMessage::of(head, b"", KeptBody::default(), secrets))
                .collect(),
            response: response.message(secrets),
            no_replay: why.map(str::to_owned),
        })
    }

    /// The service and the bytes of a replay of a request.
    ///
    /// # Errors
    /// Why there is no replay; `None`: there is no such request.
    pub fn original(&self, id: u64) -> Result<Original, Option<&'static str>> {
        let inner = self.inner();
        let entry = inner.all.iter().find(|entry| entry.seen.id == id).ok_or(None)?;
        if let Some(why) = entry.no_replay() {
            return Err(Some(why));
        }
        let (service, half) = (entry.seen.service.clone(), entry.request.clone());
        drop(inner);
        Ok(Original { service, bytes: half.bytes() })
    }
}

impl Entry {
    fn seen(&self) -> SeenRequest {
        let mut seen = self.seen.clone();
        if let Some(live) = &self.live {
            let [incoming, outgoing] = live.bytes.each_ref().map(|n| n.load(Ordering::Relaxed));
            (seen.request_bytes, seen.response_bytes) = (incoming, outgoing);
            let [incoming, outgoing] = live.messages.each_ref().map(|n| n.load(Ordering::Relaxed));
            seen.messages = live.is_websocket.then_some(Messages { incoming, outgoing });
        }
        seen
    }

    /// Why the request cannot be replayed.
    fn no_replay(&self) -> Option<&'static str> {
        let Half { body, bytes, left_out, is_whole, head, .. } = &self.request;
        if head.is_empty() {
            return Some("the bytes of the connection are not understood");
        }
        if self.no_replay.is_some() {
            return self.no_replay;
        }
        if self.seen.progress == RequestProgress::Open {
            return Some("the request is still under way");
        }
        if *left_out {
            return Some("its body was left out, because memory was short");
        }
        if !is_whole {
            return Some("the request did not come to its end");
        }
        ((body.len() as u64) < *bytes).then_some("only the begin of its body is kept")
    }
}

impl Half {
    fn message(&self, secrets: bool) -> Option<HttpMessage> {
        let body = KeptBody::of(&self.body, self.bytes, self.left_out);
        let is_there = !self.head.is_empty();
        is_there.then(|| HttpMessage::of(&self.head, &self.trailers, body, secrets))
    }

    /// The message as it is sent again. A chunked body becomes one chunk.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.to_vec();
        if self.trailers.is_empty() {
            bytes.extend_from_slice(&self.body);
            return bytes;
        }
        // The trailer section of a chunked body has at least the empty line.
        if !self.body.is_empty() {
            bytes.extend_from_slice(format!("{:x}\r\n", self.body.len()).as_bytes());
            bytes.extend_from_slice(&self.body);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n");
        bytes.extend_from_slice(&self.trailers);
        bytes
    }
}
