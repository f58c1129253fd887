//! The HTTP requests that doors and names have answered: a line of the request log for each, and
//! the counters of the service.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use logging::requests::{Request, request, wanted};
use relay::Stats;
use tokio::time::Instant;
use web::{Record, RequestHead, Wants};

/// The parts of request headers that the request log needs; `None`: there is no such log.
pub fn wants() -> Option<Wants> {
    wanted().map(|wanted| Wants { query: wanted.query, user: wanted.user })
}

/// Writes the line about a request. `service`: the service and its client.
pub fn write(record: &Record, service: Option<(&str, &str)>) {
    if wants().is_none() {
        return;
    }
    let head = record.head.as_ref();
    request(&Request {
        visitor: record.visitor,
        user: head.and_then(RequestHead::user),
        method: head.and_then(RequestHead::method),
        path: head.and_then(RequestHead::path),
        query: head.and_then(RequestHead::query),
        protocol: head.map(RequestHead::protocol),
        host: head.and_then(RequestHead::host),
        referer: head.and_then(RequestHead::referer),
        user_agent: head.and_then(RequestHead::user_agent),
        status: record.status,
        bytes: record.bytes,
        first_byte: record.first_byte,
        duration: record.duration,
        is_complete: record.is_complete,
        service,
    });
}

/// Counts a request of a service, and writes its line. `service`: the service and its client.
pub fn note(record: &Record, stats: Option<&Stats>, service: (&str, &str)) {
    if let Some(stats) = stats {
        stats.requests().count(record.status, record.first_byte);
    }
    write(record, Some(service));
}

/// The service of a visitor.
pub trait Serving {
    /// The names of the service and of its client.
    fn names(&self) -> (&str, &str);
}

/// Determines which visitor sent a request.
pub trait Senders {
    /// The visitor that sent a request with this header over a connection of `peer`.
    fn visitor(&self, peer: Option<SocketAddr>, head: &[u8]) -> Option<IpAddr>;
}

/// A request that a door may have to answer.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    peer: Option<SocketAddr>,
    /// The header and the time of its arrival, if there is a request log and the header is known.
    head: Option<Box<Noted>>,
}

/// The header of a request that a door may have to answer.
#[derive(Clone, Debug)]
struct Noted {
    head: RequestHead,
    visitor: Option<IpAddr>,
    at: Instant,
}

impl Asked {
    /// A request of this peer whose header is unknown.
    pub const fn by(peer: Option<SocketAddr>) -> Self {
        Self { peer, head: None }
    }

    /// A request of this peer. `bytes` begin with its complete header.
    pub fn of(senders: &impl Senders, peer: Option<SocketAddr>, bytes: &[u8]) -> Self {
        let head = wants().filter(|_| !bytes.is_empty()).map(|wants| {
            let visitor = senders.visitor(peer, bytes);
            Box::new(Noted { head: RequestHead::read(bytes, wants), visitor, at: Instant::now() })
        });
        Self { peer, head }
    }

    /// Records the answer of the door, which includes its header.
    pub fn answered(self, status: u16, answer: &[u8]) {
        if wants().is_none() {
            return;
        }
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
        let since = self.head.as_ref().map_or(Duration::ZERO, |noted| noted.at.elapsed());
        let peer = self.peer.map(|peer| peer.ip());
        let record = Record {
            visitor: self.head.as_ref().map_or(peer, |noted| noted.visitor),
            head: self.head.map(|noted| noted.head),
            status,
            bytes: (answer.len() - head) as u64,
            first_byte: Some(since),
            duration: since,
            is_complete: true,
        };
        write(&record, None);
    }
}

/// The requests and responses of one visitor whose bytes are carried without the proxy.
pub struct Carried {
    stats: Rc<Stats>,
    service: Arc<dyn Serving>,
    senders: Arc<dyn Senders>,
    peer: Option<SocketAddr>,
    /// The oldest request without a complete response. Most visitors have at most one.
    first: Cell<Option<Waiting>>,
    others: RefCell<VecDeque<Waiting>>,
}

/// A request whose response is not complete.
struct Waiting {
    begun: Instant,
    head: Option<Box<(RequestHead, Option<IpAddr>)>>,
    /// The status of the latest response header, and its time.
    answer: Option<(u16, Duration)>,
}

impl Waiting {
    /// Whether the header of the final response, or of a switch of protocols, was read.
    fn is_answered(&self) -> bool {
        self.answer.is_some_and(|(status, _)| status >= 200 || status == 101)
    }
}

/// The status of a request whose visitor left before the answer.
const LEFT: u16 = 499;

impl Carried {
    pub fn new(
        stats: &Rc<Stats>,
        service: Arc<dyn Serving>,
        senders: Arc<dyn Senders>,
        peer: Option<SocketAddr>,
    ) -> Rc<Self> {
        let (first, others) = Default::default();
        let stats = Rc::clone(stats);
        Rc::new(Self { stats, service, senders, peer, first, others })
    }

    /// Records that the door answers the oldest request instead of the service.
    pub fn replaced(&self, status: u16) {
        if let Some(mut waiting) = self.take() {
            waiting.answer = Some((status, waiting.begun.elapsed()));
            self.tell(waiting, 0, true);
        }
    }

    /// Forgets the requests of a refused stream, which continue at another client.
    pub fn go_on(&self) {
        self.first.take();
        self.others.borrow_mut().clear();
    }

    /// The oldest request.
    fn take(&self) -> Option<Waiting> {
        let first = self.first.take();
        self.first.set(self.others.borrow_mut().pop_front());
        first
    }

    fn tell(&self, waiting: Waiting, bytes: u64, is_complete: bool) {
        let Waiting { begun, head, answer } = waiting;
        let (head, visitor) = match head {
            Some(noted) => (Some(noted.0), noted.1),
            None => (None, self.peer.map(|peer| peer.ip())),
        };
        let record = Record {
            head,
            visitor,
            status: answer.map_or(LEFT, |(status, _)| status),
            bytes,
            first_byte: answer.map(|(_, time)| time),
            duration: begun.elapsed(),
            is_complete,
        };
        note(&record, Some(&self.stats), self.service.names());
    }
}

impl h1::Observer for Carried {
    fn requested(&self, head: &[u8]) {
        let noted = |wants| (RequestHead::read(head, wants), self.senders.visitor(self.peer, head));
        let head = wants().map(noted).map(Box::new);
        let waiting = Waiting { begun: Instant::now(), head, answer: None };
        match self.first.take() {
            None => self.first.set(Some(waiting)),
            first @ Some(_) => {
                self.first.set(first);
                self.others.borrow_mut().push_back(waiting);
            }
        }
    }

    fn responded(&self, status: u16) {
        if let Some(mut waiting) = self.first.take() {
            waiting.answer = Some((status, waiting.begun.elapsed()));
            self.first.set(Some(waiting));
        }
    }

    fn ended(&self, bytes: u64, is_complete: bool) {
        match self.take() {
            Some(waiting) if waiting.is_answered() => self.tell(waiting, bytes, is_complete),
            // The service ended before its answer: the door may answer.
            Some(waiting) => {
                if let Some(next) = self.first.replace(Some(waiting)) {
                    self.others.borrow_mut().push_front(next);
                }
            }
            None => {}
        }
    }
}

/// The stream has ended: the remaining requests get no answer.
impl Drop for Carried {
    fn drop(&mut self) {
        while let Some(mut waiting) = self.take() {
            if !waiting.is_answered() {
                waiting.answer = None;
            }
            self.tell(waiting, 0, false);
        }
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Carried({})", self.service.names().0)
    }
}
