//! Observes the visitors of a service: for `tunnel share` each HTTP request, or each connection,
//! and for the kept requests their headers and bodies.
//!
//! ```text
//!   target ◄── bytes ──► stream of the visitor       the bytes pass unchanged
//!                │ seen by
//!             Seen ── h1::Tracker ── Requests ─┬► ops::share::Visits
//!                                              └► requests::Connection ─► requests::Store
//! ```
//!
//! A visit is reported when its response has ended. A connection without a parsable request, such
//! as cleartext HTTP/2 or another protocol, is reported when it ends.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use config::{Public, Service};
use h1::{BodyPart, Rest, Then, Tracker};
use ops::share::{Visit, Visits, bounded};
use relay::{DialError, Layer, Spectator, TargetAddr, Targets, Visitor};

use super::requests::{Connection, Marks, Store};

/// The maximum number of bytes of requests that are kept because they are part of a header, or wait
/// for a response. The requests of a connection that needs more are not reported.
const KEPT: usize = 32 << 10;

/// The services whose visits are reported, by name, and the kept requests.
#[derive(Debug)]
pub struct Observed {
    visits: Mutex<HashMap<String, Visits>>,
    pub store: Arc<Store>,
}

impl Observed {
    pub fn new(store: Arc<Store>) -> Self {
        Self { visits: Mutex::default(), store }
    }

    /// Reports the visitors of this service to `visits`, from the next configuration on.
    pub fn begin(&self, service: &str, visits: Visits) {
        let mut all = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, visits| !visits.are_over());
        all.insert(service.to_owned(), visits);
    }

    /// The observer of the visits of a service, if there is one.
    pub fn of(&self, service: &Service) -> Option<Observer> {
        let all = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let visits = all.get(&service.name).filter(|visits| !visits.are_over()).cloned();
        drop(all);
        let is_http =
            |public: &Public| matches!(public, Public::Name { kind, .. } if kind.is_http());
        let is_http = service.public.iter().any(is_http);
        let store = (service.requests && is_http).then(|| Arc::clone(&self.store));
        if visits.is_none() && store.is_none() {
            return None;
        }
        Some(Observer { visits, store, service: service.name.as_str().into(), is_http })
    }

    /// Forgets the requests of services that no longer keep requests.
    pub fn retain(&self, services: &[Service]) {
        let keeping = services.iter().filter(|one| one.requests).map(|one| one.name.clone());
        self.store.retain(keeping.collect());
    }
}

/// Reports the visitors of one service.
#[derive(Clone, Debug)]
pub struct Observer {
    visits: Option<Visits>,
    /// The store of the requests; `None`: they are not kept.
    store: Option<Arc<Store>>,
    service: Rc<str>,
    /// The visitors speak HTTP.
    is_http: bool,
}

/// The visitor whose bytes are observed.
#[derive(Clone, Debug, Default)]
pub struct ObservedVisitor {
    pub visitor: Visitor,
    /// The replay to which the bytes belong, if any.
    pub replay: Option<Rc<Marks>>,
}

impl ObservedVisitor {
    fn shown(&self) -> Option<String> {
        self.visitor.shown(false)
    }
}

impl Observer {
    /// Whether the requests of the service are kept.
    pub const fn keeps(&self) -> bool {
        self.store.is_some()
    }

    /// The same observer, with another store.
    #[cfg(test)]
    pub(crate) fn with_store(self, store: &Arc<Store>) -> Self {
        Self { store: Some(Arc::clone(store)), ..self }
    }

    /// The same target, whose connection for this visitor is observed.
    pub fn between<T: Targets>(&self, target: T, whose: ObservedVisitor) -> Between<T> {
        Between { target, observer: self.clone(), whose }
    }

    /// Reports that no target could be reached for a visitor.
    fn failed(&self, whose: &ObservedVisitor, error: &DialError) {
        let visits = self.visits.as_ref().filter(|_| whose.replay.is_none());
        if let Some(visits) = visits {
            let (visitor, reason) = (whose.shown(), error.to_string());
            visits.tell(Visit::Failed { visitor, reason });
        }
    }

    /// Observes the bytes of a visitor from now on.
    pub fn spectator(&self, whose: ObservedVisitor) -> Box<dyn Spectator> {
        Box::new(Seen::new(self, whose))
    }
}

/// A target whose connection is observed.
#[derive(Debug)]
pub struct Between<T> {
    target: T,
    observer: Observer,
    whose: ObservedVisitor,
}

impl<T: Targets> Targets for Between<T> {
    fn first(&self) -> TargetAddr {
        self.target.first()
    }

    fn next(&self, failed: &[DialError]) -> Option<TargetAddr> {
        let next = self.target.next(failed);
        if next.is_none()
            && let Some(error) = failed.last()
        {
            self.observer.failed(&self.whose, error);
        }
        next
    }

    fn mark(&self) -> u64 {
        self.target.mark()
    }

    fn connected(&self, took: Duration) {
        self.target.connected(took);
    }

    fn layer(&self, target: &TargetAddr) -> Option<Rc<dyn Layer>> {
        self.target.layer(target)
    }

    fn spectator(&self) -> Option<Box<dyn Spectator>> {
        Some(self.observer.spectator(self.whose.clone()))
    }
}

/// The bytes of one connection to a target.
struct Seen {
    requests: Rc<Requests>,
    /// Tracks the requests; `None`: the bytes are not HTTP, or cannot be parsed.
    tracker: Option<Tracker>,
    /// Bytes of the visitor that the tracker has not consumed.
    kept: Vec<u8>,
    bytes_in: u64,
    bytes_out: u64,
}

impl Seen {
    fn new(observer: &Observer, whose: ObservedVisitor) -> Self {
        let (visitor, replay) = (whose.shown(), whose.replay);
        // A replay is not a visit.
        let visits = observer.visits.clone().filter(|_| replay.is_none());
        let recorded = observer.store.clone().map(|store| {
            RefCell::new(Some(Connection::new(store, &observer.service, visitor.clone(), replay)))
        });
        let requests = Rc::new(Requests {
            visits,
            recorded: recorded.unwrap_or_default(),
            visitor,
            begun: Instant::now(),
            offered: Cell::default(),
            waiting: RefCell::default(),
        });
        let tracker = observer.is_http.then(|| requests.tracker());
        Self { requests, tracker, kept: Vec::new(), bytes_in: 0, bytes_out: 0 }
    }

    /// Passes the bytes that the tracker has not consumed, followed by `bytes`, to the tracker.
    fn follow(&mut self, bytes: &[u8]) {
        let Some(tracker) = &mut self.tracker else { return };
        let is_direct = self.kept.is_empty();
        if !is_direct {
            self.kept.extend_from_slice(bytes);
        }
        let mut all = if is_direct { bytes } else { &self.kept[..] };
        let mut is_lost = false;
        loop {
            let (passed, then) = tracker.requests(all);
            all = all.get(passed..).unwrap_or_default();
            match then {
                Then::Read | Then::Hold | Then::Wait => break,
                // The server sends a service the requests of several names over one connection.
                Then::Other { host: Some(_) } if !all.is_empty() => {
                    *tracker = self.requests.tracker()
                }
                Then::Other { .. } | Then::Changed | Then::Refuse(_) | Then::Close => {
                    is_lost = true;
                    break;
                }
            }
        }
        if is_lost || all.len() > KEPT {
            self.kept = Vec::new();
            self.lose();
        } else if all.is_empty() {
            self.kept = Vec::new();
        } else {
            self.kept = all.to_vec();
        }
    }

    /// Stops tracking, because the rest cannot be parsed.
    fn lose(&mut self) {
        self.tracker = None;
        self.requests.record(Connection::lose);
    }
}

impl Spectator for Seen {
    fn offered(&mut self) {
        self.requests.offered.set(Some(Instant::now()));
    }

    fn taken(&mut self, bytes: &[u8]) {
        self.bytes_in = self.bytes_in.saturating_add(bytes.len() as u64);
        self.follow(bytes);
    }

    fn sent(&mut self, bytes: &[u8]) {
        self.bytes_out = self.bytes_out.saturating_add(bytes.len() as u64);
        let Some(tracker) = &mut self.tracker else { return };
        let progress = tracker.responses(bytes);
        match progress.rest {
            Rest::Held if progress.completed => self.follow(&[]),
            Rest::Held => {}
            Rest::Excess | Rest::Refused(_) | Rest::Cut(_) => self.lose(),
        }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if let Some(mut tracker) = self.tracker.take() {
            // A body without a length ends with the connection.
            tracker.service_ended();
        }
        self.requests.end(self.bytes_in, self.bytes_out);
    }
}

/// The requests of one connection.
struct Requests {
    /// `None`: visits are not reported.
    visits: Option<Visits>,
    /// Records the requests in the store; `None`: they are not kept.
    recorded: RefCell<Option<Connection>>,
    visitor: Option<String>,
    begun: Instant,
    /// When the newest bytes of the visitor were offered to the target.
    offered: Cell<Option<Instant>>,
    waiting: RefCell<Waiting>,
}

/// The requests whose response has not ended.
#[derive(Default)]
struct Waiting {
    all: VecDeque<Request>,
    /// There was a request on this connection.
    was_any: bool,
}

struct Request {
    method: String,
    path: String,
    begun: Instant,
    status: Option<u16>,
}

impl Requests {
    fn tracker(self: &Rc<Self>) -> Tracker {
        let mut tracker = Tracker::new(None);
        tracker.observe(Rc::<Self>::clone(self));
        tracker
    }

    fn record(&self, note: impl FnOnce(&mut Connection)) {
        if let Some(connection) = &mut *self.recorded.borrow_mut() {
            note(connection);
        }
    }

    fn tell(&self, visit: impl FnOnce(Option<String>) -> Visit) {
        if let Some(visits) = &self.visits {
            visits.tell(visit(self.visitor.clone()));
        }
    }

    fn tell_request(&self, request: Request, bytes: u64, cut: bool) {
        let Request { method, path, begun, status } = request;
        let millis = millis(begun);
        self.tell(|visitor| Visit::Request { visitor, method, path, status, bytes, millis, cut });
    }

    /// Handles the end of the connection.
    fn end(&self, bytes_in: u64, bytes_out: u64) {
        let Waiting { all, was_any } = self.waiting.take();
        for request in all {
            self.tell_request(request, 0, true);
        }
        if !was_any {
            let millis = millis(self.begun);
            self.tell(|visitor| Visit::Connection { visitor, bytes_in, bytes_out, millis });
        }
        if let Some(connection) = self.recorded.take() {
            connection.end((!was_any).then_some([bytes_in, bytes_out]));
        }
    }
}

fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl h1::Observer for Requests {
    fn requested(&self, head: &[u8]) {
        let line = head.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|&byte| byte == b' ');
        // Only a visit reports them.
        let [method, path] = match self.visits {
            Some(_) => [(); 2].map(|()| bounded(words.next().unwrap_or_default())),
            None => Default::default(),
        };
        // A target inside of this process reads the bytes itself, and they are never offered to it.
        let begun = self.offered.get().unwrap_or_else(Instant::now);
        let mut waiting = self.waiting.borrow_mut();
        waiting.was_any = true;
        waiting.all.push_back(Request { method, path, begun, status: None });
        self.record(|connection| connection.requested(head, begun));
    }

    fn request_body(&self, part: BodyPart<'_>) {
        self.record(|connection| connection.request_body(part));
    }

    fn request_ended(&self) {
        self.record(Connection::request_ended);
    }

    fn response_head(&self, head: &[u8]) {
        self.record(|connection| connection.response_head(head));
    }

    fn responded(&self, status: u16) {
        if let Some(request) = self.waiting.borrow_mut().all.front_mut() {
            request.status = Some(status);
        }
        self.record(|connection| connection.responded(status));
    }

    fn response_body(&self, part: BodyPart<'_>) {
        self.record(|connection| connection.response_body(part));
    }

    fn ended(&self, bytes: u64, is_complete: bool) {
        let request = self.waiting.borrow_mut().all.pop_front();
        if let Some(request) = request {
            self.tell_request(request, bytes, !is_complete);
        }
        self.record(|connection| connection.ended(is_complete));
    }

    fn switched_request(&self, bytes: &[u8]) {
        self.record(|connection| connection.switched(false, bytes));
    }

    fn switched_response(&self, bytes: &[u8]) {
        self.record(|connection| connection.switched(true, bytes));
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requests")
    }
}

#[cfg(test)]
mod tests {
    use ops::share::{Told, VisitReader, visits};

    use super::*;

    fn seen(is_http: bool) -> (Seen, VisitReader) {
        let (visits, reader) = visits();
        let visitor = Visitor::At("[::ffff:192.0.2.7]:4000".parse().unwrap());
        let visits = Some(visits);
        let observer = Observer { visits, store: None, service: "web".into(), is_http };
        (Seen::new(&observer, ObservedVisitor { visitor, replay: None }), reader)
    }

    /// What was told after the end, without times.
    async fn lines(seen: Seen, mut reader: VisitReader) -> Vec<String> {
        drop(seen);
        let mut all = Vec::new();
        while let Some(item) = reader.next().await {
            let Told::Visit(visit) = item else { panic!("{item:?}") };
            all.push(match visit {
                Visit::Request { visitor, method, path, status, bytes, cut, .. } => {
                    assert_eq!(visitor.as_deref(), Some("192.0.2.7"));
                    let cut = if cut { " cut" } else { "" };
                    format!("{method} {path} {status:?} {bytes}{cut}")
                }
                Visit::Failed { visitor, reason } => {
                    assert_eq!(visitor.as_deref(), Some("192.0.2.7"));
                    reason
                }
                Visit::Connection { bytes_in, bytes_out, .. } => format!("{bytes_in} {bytes_out}"),
            });
        }
        all
    }

    #[tokio::test]
    async fn the_requests_of_a_connection_are_told_whatever_the_pieces() {
        let requests = b"GET /a?b=c HTTP/1.1\r\nHost: x.example\r\n\r\n\
            POST /p HTTP/1.1\r\nHost: x.example\r\nContent-Length: 5\r\n\r\nhello\
            GET /other HTTP/1.1\r\nHost: y.example\r\n\r\n";
        let responses = [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"[..],
            b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
        ];
        for size in [1, 2, 7, 4096] {
            let (mut seen, reader) = seen(true);
            for piece in requests.chunks(size) {
                seen.taken(piece);
            }
            // A server sends a request for another name behind the whole response before it.
            for piece in responses.iter().flat_map(|response| response.chunks(size)) {
                seen.sent(piece);
            }
            let all = lines(seen, reader).await;
            let expected =
                ["GET /a?b=c Some(200) 3", "POST /p Some(404) 12", "GET /other Some(204) 0"];
            assert_eq!(all, expected, "pieces of {size}");
        }
    }

    #[tokio::test]
    async fn an_upgrade_an_unanswered_request_and_other_bytes_are_told() {
        let (mut one, reader) = seen(true);
        one.taken(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        one.sent(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        one.taken(&[b'x'; 100_000]);
        assert!(one.kept.is_empty());
        assert!(lines(one, reader).await[0].starts_with("GET /ws Some(101)"));

        let (mut one, reader) = seen(true);
        one.taken(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(lines(one, reader).await, ["GET / None 0"]);

        let (mut one, reader) = seen(true);
        one.taken(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        one.sent(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
        assert_eq!(lines(one, reader).await, ["GET / Some(200) 3 cut"]);

        let (mut one, reader) = seen(true);
        one.taken(b"\x16\x03\x01 no HTTP \r\n\r\n");
        one.sent(b"abc");
        assert_eq!(lines(one, reader).await, ["16 3"]);

        let (mut one, reader) = seen(false);
        one.taken(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(lines(one, reader).await, ["27 0"]);
    }

    #[tokio::test]
    async fn a_target_that_is_not_reached_is_told() {
        let (visits, reader) = visits();
        let service = "web".into();
        let observer = Observer { visits: Some(visits), store: None, service, is_http: true };
        let visitor = Visitor::At("192.0.2.7:4000".parse().unwrap());
        let target = TargetAddr::Tcp { host: "localhost".into(), port: 3000 };
        let whose = ObservedVisitor { visitor, replay: None };
        let between = observer.between(target.clone(), whose.clone());
        let failed = || DialError::Timeout(target.clone());
        assert_eq!(between.next(&[failed()]), None);
        drop(between);
        let nothing = Seen::new(&Observer { visits: None, ..observer.clone() }, whose);
        drop(observer);
        assert_eq!(lines(nothing, reader).await, [failed().to_string()]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut one, _reader) = seen(true);
        one.taken(b"GET / HTTP/1.1\r\nHost: x\r\n");
        for _ in 0..100 {
            one.taken(format!("A: {}\r\n", "b".repeat(1000)).as_bytes());
            assert!(one.kept.len() <= KEPT);
        }
        assert!(one.tracker.is_none());
    }
}
