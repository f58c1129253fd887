//! What the visitors of a service do, for `tunnel share`: each request by HTTP, or each connection.
//!
//! ```text
//!   target ◄── bytes ──► stream of the visitor       the bytes pass unchanged
//!                │ seen by
//!             Seen ── h1::Tracker ── Requests ──► ops::share::Visits
//! ```
//!
//! A request is told when its response has ended. A connection without a request that is understood,
//! such as HTTP/2 in clear or another protocol, is told when it ends.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use config::{Public, Service};
use h1::{Rest, Then, Tracker};
use ops::share::{Visit, Visits, bounded};
use relay::{DialError, Layer, Spectator, TargetAddr, Targets};

/// Most bytes of requests that are kept because they are a part of a head, or wait for a response. The
/// requests of a connection that needs more are not told.
const KEPT: usize = 32 << 10;

/// The services whose visits are told, by name.
#[derive(Debug, Default)]
pub(super) struct Observed(Mutex<HashMap<String, Visits>>);

impl Observed {
    /// Tells `visits` of the visitors of this service, from the next configuration on.
    pub(super) fn begin(&self, service: &str, visits: Visits) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, visits| !visits.are_over());
        all.insert(service.to_owned(), visits);
    }

    /// Who is told of the visits of a service. `None`: nobody.
    pub(super) fn of(&self, service: &Service) -> Option<Observer> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let visits = all.get(&service.name).filter(|visits| !visits.are_over())?.clone();
        let is_http =
            |public: &Public| matches!(public, Public::Name { kind, .. } if kind.is_http());
        Some(Observer { visits, is_http: service.public.iter().any(is_http) })
    }
}

/// Tells of the visitors of one service.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    visits: Visits,
    /// The visitors speak HTTP.
    is_http: bool,
}

impl Observer {
    /// The same target, whose connection for this visitor is told of.
    pub(super) fn between<T: Targets>(&self, target: T, visitor: Option<SocketAddr>) -> Between<T> {
        Between { target, observer: self.clone(), visitor }
    }

    /// Sees the bytes of a visitor from now on.
    pub(super) fn spectator(&self, visitor: Option<SocketAddr>) -> Box<dyn Spectator> {
        Box::new(Seen::new(self, visitor))
    }
}

/// A target whose connection is told of.
pub(super) struct Between<T> {
    target: T,
    observer: Observer,
    visitor: Option<SocketAddr>,
}

impl<T: Targets> Targets for Between<T> {
    fn first(&self) -> TargetAddr {
        self.target.first()
    }

    fn next(&self, failed: &[DialError]) -> Option<TargetAddr> {
        self.target.next(failed)
    }

    fn mark(&self) -> u64 {
        self.target.mark()
    }

    fn layer(&self, target: &TargetAddr) -> Option<Rc<dyn Layer>> {
        self.target.layer(target)
    }

    fn spectator(&self) -> Option<Box<dyn Spectator>> {
        Some(self.observer.spectator(self.visitor))
    }
}

/// The bytes of one connection to a target.
struct Seen {
    requests: Rc<Requests>,
    /// Follows the requests; `None`: the bytes are not HTTP, or not understood.
    tracker: Option<Tracker>,
    /// Bytes of the visitor that the tracker has not passed.
    kept: Vec<u8>,
    bytes_in: u64,
    bytes_out: u64,
}

impl Seen {
    fn new(observer: &Observer, visitor: Option<SocketAddr>) -> Self {
        let requests = Rc::new(Requests {
            visits: observer.visits.clone(),
            visitor: visitor.map(|visitor| visitor.ip().to_canonical().to_string()),
            begun: Instant::now(),
            waiting: RefCell::default(),
        });
        let tracker = observer.is_http.then(|| requests.tracker());
        Self { requests, tracker, kept: Vec::new(), bytes_in: 0, bytes_out: 0 }
    }

    /// Gives the tracker the bytes that it has not passed, and `bytes` behind them.
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
                // The server gives a service the requests of several names over one connection.
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
            self.tracker = None;
            self.kept = Vec::new();
        } else if all.is_empty() {
            self.kept = Vec::new();
        } else {
            self.kept = all.to_vec();
        }
    }
}

impl Spectator for Seen {
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
            Rest::Excess | Rest::Refused(_) | Rest::Cut(_) => self.tracker = None,
        }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.tracker = None;
        self.requests.end(self.bytes_in, self.bytes_out);
    }
}

/// The requests of one connection.
struct Requests {
    visits: Visits,
    visitor: Option<String>,
    begun: Instant,
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

    fn tell(&self, request: Request, bytes: u64) {
        let Request { method, path, begun, status } = request;
        let (visitor, millis) = (self.visitor.clone(), millis(begun));
        self.visits.tell(Visit::Request { visitor, method, path, status, bytes, millis });
    }

    /// The connection has ended.
    fn end(&self, bytes_in: u64, bytes_out: u64) {
        let Waiting { all, was_any } = self.waiting.take();
        for request in all {
            self.tell(request, 0);
        }
        if !was_any {
            let (visitor, millis) = (self.visitor.clone(), millis(self.begun));
            self.visits.tell(Visit::Connection { visitor, bytes_in, bytes_out, millis });
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
        let [method, path] = [(); 2].map(|()| bounded(words.next().unwrap_or_default()));
        let mut waiting = self.waiting.borrow_mut();
        waiting.was_any = true;
        waiting.all.push_back(Request { method, path, begun: Instant::now(), status: None });
    }

    fn responded(&self, status: u16) {
        if let Some(request) = self.waiting.borrow_mut().all.front_mut() {
            request.status = Some(status);
        }
    }

    fn ended(&self, bytes: u64, _is_complete: bool) {
        let request = self.waiting.borrow_mut().all.pop_front();
        if let Some(request) = request {
            self.tell(request, bytes);
        }
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
        let visitor = "[::ffff:192.0.2.7]:4000".parse().unwrap();
        (Seen::new(&Observer { visits, is_http }, Some(visitor)), reader)
    }

    /// What was told after the end, without times.
    async fn told(seen: Seen, mut reader: VisitReader) -> Vec<String> {
        drop(seen);
        let mut all = Vec::new();
        while let Some(told) = reader.next().await {
            let Told::Visit(visit) = told else { panic!("{told:?}") };
            all.push(match visit {
                Visit::Request { visitor, method, path, status, bytes, .. } => {
                    assert_eq!(visitor.as_deref(), Some("192.0.2.7"));
                    format!("{method} {path} {status:?} {bytes}")
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
            let all = told(seen, reader).await;
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
        assert!(told(one, reader).await[0].starts_with("GET /ws Some(101)"));

        let (mut one, reader) = seen(true);
        one.taken(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(told(one, reader).await, ["GET / None 0"]);

        let (mut one, reader) = seen(true);
        one.taken(b"\x16\x03\x01 no HTTP \r\n\r\n");
        one.sent(b"abc");
        assert_eq!(told(one, reader).await, ["16 3"]);

        let (mut one, reader) = seen(false);
        one.taken(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(told(one, reader).await, ["27 0"]);
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
