//! Records the requests of one connection to a target in the store. The bytes of bodies are copied
//! once, on the worker of the connection; the store is locked when a request begins, when its
//! response begins, and when it ends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use h1::BodyPart;
use ops::requests::{RequestProgress, SeenRequest, without_users};
use ops::share::bounded;
use tokio::sync::oneshot;

use super::frames::Frames;
use super::{BODY, ENTRY, Entry, Half, Room, Store, Switched};

/// The initial memory of a body, in bytes. Most requests have no body, and most API responses fit.
const FIRST: usize = 2 << 10;

/// The maximum number of kept interim responses of a request.
const INTERIMS: usize = 8;

/// The number of parts of most entries that use memory: the header and the body of a request and of
/// its response.
const PARTS: usize = 4;

/// The marks of the connection of a replay.
#[derive(Debug)]
pub struct Marks {
    /// The request that is sent again.
    pub of: u64,
    /// Receives the number of the new request when it has ended.
    pub done: RefCell<Option<oneshot::Sender<u64>>>,
}

/// The requests of one connection.
#[derive(Debug)]
pub struct Connection {
    store: Arc<Store>,
    service: String,
    visitor: Option<String>,
    begun: Instant,
    marks: Option<Rc<Marks>>,
    /// The requests whose response has not ended, oldest first.
    waiting: VecDeque<Recording>,
    /// A request whose response has ended, and whose body has not.
    late: Option<Recording>,
    /// The request after which the bytes are those of another protocol.
    switched: Option<Over>,
    /// The header of a response whose status is reported next.
    head: Option<(Bytes, Room)>,
}

/// A request in progress.
#[derive(Debug)]
struct Recording {
    /// `None`: there was no memory for the request, or its service no longer keeps requests.
    id: Option<u64>,
    begun: Instant,
    is_connect: bool,
    status: Option<u16>,
    interims: usize,
    request: Keeper,
    response: Keeper,
}

/// A connection after a switch of protocols.
#[derive(Debug)]
struct Over {
    recording: Recording,
    live: Arc<Switched>,
    /// The frames of both directions of a WebSocket.
    frames: Option<[Frames; 2]>,
}

/// The kept bytes of a body.
#[derive(Debug, Default)]
struct Keeper {
    bytes: u64,
    kept: Vec<u8>,
    trailers: Vec<u8>,
    left_out: bool,
    is_whole: bool,
    room: Option<Room>,
}

impl Keeper {
    fn take(&mut self, store: &Arc<Store>, part: BodyPart<'_>) {
        match part {
            BodyPart::Data(bytes) => {
                self.bytes += bytes.len() as u64;
                let left = BODY.saturating_sub(self.kept.len());
                let part = bytes.get(..left).unwrap_or(bytes);
                if !part.is_empty() && self.fits(store, part.len()) {
                    self.kept.extend_from_slice(part);
                }
            }
            // The tracker bounds a trailer section.
            BodyPart::Trailers(bytes) => {
                if !self.left_out && self.grow(store, bytes.len()) {
                    self.trailers.extend_from_slice(bytes);
                }
            }
        }
    }

    /// Whether there is memory for `more` additional bytes.
    fn fits(&mut self, store: &Arc<Store>, more: usize) -> bool {
        if self.left_out {
            return false;
        }
        let (size, wanted) = (self.kept.capacity(), self.kept.len() + more);
        if wanted <= size {
            return true;
        }
        let wanted = wanted.next_power_of_two().clamp(FIRST, BODY);
        let is_there = self.grow(store, wanted - size);
        if is_there {
            self.kept.reserve_exact(wanted - self.kept.len());
        }
        is_there
    }

    /// Reserves memory. If there is not enough, nothing of the body is kept.
    fn grow(&mut self, store: &Arc<Store>, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let is_there = match &mut self.room {
            Some(room) => room.grow(bytes),
            None => {
                self.room = store.room(bytes);
                self.room.is_some()
            }
        };
        if !is_there {
            (self.kept, self.trailers, self.left_out) = (Vec::new(), Vec::new(), true);
            self.room = None;
        }
        is_there
    }

    /// Moves everything into the half of an entry.
    fn end(self, half: &mut Half, rooms: &mut Vec<Room>) {
        let Self { bytes, kept, trailers, left_out, is_whole, room } = self;
        half.body = kept.into();
        half.trailers = trailers.into();
        (half.bytes, half.left_out, half.is_whole) = (bytes, left_out, is_whole);
        rooms.extend(room);
    }
}

impl Connection {
    pub fn new(
        store: Arc<Store>,
        service: &str,
        visitor: Option<String>,
        marks: Option<Rc<Marks>>,
    ) -> Self {
        let (waiting, late, switched, head) = Default::default();
        let (service, begun) = (service.to_owned(), Instant::now());
        Self { store, service, visitor, begun, marks, waiting, late, switched, head }
    }

    /// Records the header of a request, which was offered to the target at the time `begun`.
    pub(crate) fn requested(&mut self, head: &[u8], begun: Instant) {
        let line = head.split(|&byte| byte == b'\r' || byte == b'\n').find(|line| !line.is_empty());
        let mut words = line.unwrap_or_default().split(|&byte| byte == b' ');
        let method = bounded(words.next().unwrap_or_default());
        // A secret is masked before the text is truncated.
        let target = String::from_utf8_lossy(words.next().unwrap_or_default());
        let path = bounded(without_users(&target).0.as_bytes());
        let is_connect = method == "CONNECT";
        let mut seen = self.seen(method, path);
        seen.progress = RequestProgress::Open;
        let request = Half { head: Bytes::copy_from_slice(head), ..Half::default() };
        let no_replay = is_connect.then_some("it asks for a tunnel");
        let id = self.put(seen, request, no_replay);
        self.waiting.push_back(Recording::new(id, is_connect, begun));
    }

    fn seen(&self, method: String, path: String) -> SeenRequest {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SeenRequest {
            service: self.service.clone(),
            unix_millis: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            visitor: self.visitor.clone(),
            method,
            path,
            replay_of: self.marks.as_ref().map(|marks| marks.of),
            ..SeenRequest::default()
        }
    }

    /// Adds a request to the store, if there is memory.
    fn put(
        &self,
        seen: SeenRequest,
        request: Half,
        no_replay: Option<&'static str>,
    ) -> Option<u64> {
        let Some(room) = self.store.room(ENTRY + request.head.len() as u64) else {
            self.store.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let mut rooms = Vec::with_capacity(PARTS);
        rooms.push(room);
        let (interim, response) = (Vec::new(), Half::default());
        let (live, revision) = (None, 0);
        let entry = Entry { seen, request, interim, response, live, no_replay, revision, rooms };
        self.store.begin(entry)
    }

    pub(crate) fn request_body(&mut self, part: BodyPart<'_>) {
        let youngest = self.late.as_mut().or_else(|| self.waiting.back_mut());
        if let Some(recording) = youngest.filter(|recording| recording.id.is_some()) {
            recording.request.take(&self.store, part);
        }
    }

    pub(crate) fn request_ended(&mut self) {
        // The newest request whose body has not ended.
        if let Some(recording) = self.late.as_mut().or_else(|| self.waiting.back_mut()) {
            recording.request.is_whole = true;
        }
        if let Some(late) = self.late.take() {
            self.finish(late, RequestProgress::Complete);
        }
    }

    /// Records the header of a response, whose status follows.
    pub(crate) fn response_head(&mut self, head: &[u8]) {
        let is_kept = self.waiting.front().is_some_and(|recording| recording.id.is_some());
        let room = is_kept.then(|| self.store.room(head.len() as u64)).flatten();
        self.head = room.map(|room| (Bytes::copy_from_slice(head), room));
    }

    pub(crate) fn responded(&mut self, status: u16) {
        let head = self.head.take();
        let Some(recording) = self.waiting.front_mut() else { return };
        recording.status = Some(status);
        let Some(id) = recording.id else { return };
        if (100..=199).contains(&status) && status != 101 {
            recording.interims += 1;
            if let Some((head, room)) = head.filter(|_| recording.interims <= INTERIMS) {
                self.store.change(id, |entry| {
                    entry.interim.push(head);
                    entry.rooms.push(room);
                });
            }
            return;
        }
        let micros = micros(recording.begun);
        self.store.change(id, |entry| {
            (entry.seen.status, entry.seen.first_byte_micros) = (Some(status), Some(micros));
            if let Some((head, room)) = head {
                entry.response.head = head;
                entry.rooms.push(room);
            }
        });
    }

    pub(crate) fn response_body(&mut self, part: BodyPart<'_>) {
        if let Some(recording) = self.waiting.front_mut().filter(|one| one.id.is_some()) {
            recording.response.take(&self.store, part);
        }
    }

    /// Records the end of the response to the oldest request.
    pub fn ended(&mut self, is_complete: bool) {
        let Some(mut recording) = self.waiting.pop_front() else { return };
        let (status, is_connect) = (recording.status.unwrap_or_default(), recording.is_connect);
        if status == 101 || is_connect && (200..=299).contains(&status) {
            self.switch(recording);
            return;
        }
        recording.response.is_whole = is_complete;
        let is_answered = is_complete && recording.status.is_some();
        if is_answered && !recording.request.is_whole {
            // The target has answered before the end of the request.
            self.late = Some(recording);
            return;
        }
        let progress = if is_answered { RequestProgress::Complete } else { RequestProgress::Cut };
        self.finish(recording, progress);
    }

    fn switch(&mut self, mut recording: Recording) {
        recording.response.is_whole = true;
        let mut live = Arc::<Switched>::default();
        if let Some(id) = recording.id {
            self.store.change(id, |entry| {
                let is_websocket = entry.is_websocket();
                live = Arc::new(Switched { is_websocket, ..Switched::default() });
                entry.live = Some(Arc::clone(&live));
                entry.no_replay = Some("it has switched to another protocol");
            });
        }
        let frames = live.is_websocket.then(Default::default);
        self.switched = Some(Over { recording, live, frames });
    }

    /// Counts bytes after a switch of protocols.
    pub(crate) fn switched(&mut self, is_of_target: bool, bytes: &[u8]) {
        let Some(Over { live, frames, .. }) = &mut self.switched else { return };
        let way = usize::from(is_of_target);
        live.bytes[way].fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(frames) = frames {
            live.messages[way].fetch_add(frames[way].pass(bytes), Ordering::Relaxed);
        }
    }

    /// Finishes all requests, because the rest of the connection cannot be parsed.
    pub(crate) fn lose(&mut self) {
        if let Some(late) = self.late.take() {
            self.finish(late, RequestProgress::Complete);
        }
        for recording in std::mem::take(&mut self.waiting) {
            self.finish(recording, RequestProgress::Cut);
        }
        if let Some(Over { recording, .. }) = self.switched.take() {
            self.finish(recording, RequestProgress::Complete);
        }
    }

    /// Records the end of the connection. `bytes`: the bytes from the visitor and from the target,
    /// of a connection without a request.
    pub fn end(mut self, bytes: Option<[u64; 2]>) {
        self.lose();
        let Some([incoming, outgoing]) = bytes else { return };
        let seen = SeenRequest {
            request_bytes: incoming,
            response_bytes: outgoing,
            progress: RequestProgress::Complete,
            whole_micros: Some(micros(self.begun)),
            ..self.seen(String::new(), String::new())
        };
        self.put(seen, Half::default(), None);
    }

    fn finish(&self, recording: Recording, progress: RequestProgress) {
        let Recording { id, begun, request, response, .. } = recording;
        let Some(id) = id else { return };
        let micros = micros(begun);
        self.store.change(id, |entry| {
            // The counters after a switch of protocols keep their current values.
            let counted = entry.live.is_some().then(|| entry.seen());
            let Entry { seen, request: first, response: second, rooms, live, .. } = entry;
            request.end(first, rooms);
            response.end(second, rooms);
            (seen.request_bytes, seen.response_bytes) = (first.bytes, second.bytes);
            if let Some(counted) = counted {
                (*seen, *live) = (counted, None);
            }
            (seen.progress, seen.whole_micros) = (progress, Some(micros));
        });
        if let Some(done) = self.marks.as_ref().and_then(|marks| marks.done.take()) {
            // The caller may have left.
            let _ = done.send(id);
        }
    }
}

impl Recording {
    fn new(id: Option<u64>, is_connect: bool, begun: Instant) -> Self {
        let (status, interims, request, response) = Default::default();
        Self { id, begun, is_connect, status, interims, request, response }
    }
}

impl Entry {
    /// Whether the response has switched to a WebSocket (RFC 6455 section 4.2.2).
    fn is_websocket(&self) -> bool {
        let lines = self.response.head.split(|&byte| byte == b'\n');
        lines.skip(1).any(|line| {
            let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
            let (name, value) = line.split_at(colon);
            name.eq_ignore_ascii_case(b"upgrade")
                && value
                    .get(1..)
                    .is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"websocket"))
        })
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
