//! Visitors of HTTP/1.1 whose TLS is terminated here, on the byte path: the decrypted bytes are
//! forwarded to the service unchanged, like those of an `http://` visitor, and a guard tracks the
//! requests.
//!
//! ```text
//!   TLS ends ── first request header ───────> stream of the service ── Onward ──┐
//!                  │                                                            ├─> a page
//!                  └─ another host, options, no link here, limits, doubt ──> `site`, `web`
//! ```
//!
//! The proxy (`site`) takes every connection that the byte path cannot handle: it refuses, holds
//! and routes each request, and nothing is decided twice. A TLS session belongs to one worker, so a
//! visitor does not move to a worker with a link.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h1::{HeadSniffer, Looked, Tracker};
use relay::{Http, Layered, Leaving, Onward, Retry, RetryHandler, Socket, Why};
use termination::TlsIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::task::spawn_local;
use tokio::time::timeout;
use web::{Account, Replayed};

use super::answer::{self, unsafe_response};
use super::doors::{Doors, PATIENCE};
use super::site;
use super::site::{Io, VisitorSocket, Way};
use super::state::DoorsState;
use capture::log::{Asked, Carried};
use node::answer::Answer;
use node::backends::Pick;
use node::entrance::{Entrance, NameDoor};
use node::names::{Kind, Space};
use node::session::Worker;
use node::{accept, entrance};

/// The maximum length of a first request header on the byte path, in bytes. A connection with a
/// longer header is passed to the proxy. Browsers send 1 to 4 KiB.
const FIRST: usize = 8 << 10;

impl Doors {
    /// Whether the requests of a visitor of this name may take the byte path.
    pub(super) fn carries(&self, name: &str, peer: Option<SocketAddr>) -> bool {
        self.edition_of(name, peer).is_some()
    }

    /// The edition of the only service of a name, if it needs no proxy and need not be waited for.
    fn edition_of(&self, name: &str, peer: Option<SocketAddr>) -> Option<u64> {
        if self.names().is_awaited(Space::Tls, name) {
            return None;
        }
        let services = self.names().find(Space::Tls, name)?;
        let direct = self.direct(&services, peer)?;
        (direct.service.kind == Kind::Https).then_some(direct.edition)
    }
}

/// Serves a visitor whose TLS is terminated here.
pub(super) async fn serve(
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    io: TlsIo<VisitorSocket>,
    peer: Option<SocketAddr>,
    way: Way,
    account: Rc<Account>,
) {
    let mut io = Shared::new(io);
    let (mut sniffer, mut first) = (doors.head_sniffer(), BytesMut::new());
    let looked = timeout(PATIENCE, look(&mut io, &mut sniffer, &mut first)).await;
    let looked = match looked {
        Ok(Ok(looked)) => looked,
        // A browser opens connections that it may use later.
        Ok(Err(_)) | Err(_) if first.is_empty() => return,
        Ok(Err(_)) => return,
        Err(_) => {
            let page = doors.page(408, "No complete request origin in time.");
            Asked::by(peer).answered(408, &page);
            return say(io, &page).await;
        }
    };
    let visitor = Secured { worker, doors, io, peer, way: Rc::new(way), account };
    match looked {
        Looked::Head(head) if head.host.as_deref() == visitor.way.name.as_deref() => {
            if let Err(first) = visitor.open(first) {
                visitor.proxy(first);
            }
        }
        Looked::Head(_) | Looked::Http2 | Looked::Bad(_) | Looked::Not | Looked::More => {
            visitor.proxy(first);
        }
    }
}

/// Reads until the first request header is parsed, or until [`FIRST`] bytes have arrived.
async fn look(
    io: &mut Shared,
    sniffer: &mut HeadSniffer,
    first: &mut BytesMut,
) -> io::Result<Looked> {
    loop {
        first.reserve(FIRST / 2);
        if io.read_buf(first).await? == 0 {
            return Ok(Looked::More);
        }
        let looked = sniffer.look(first);
        if !matches!(looked, Looked::More) || first.len() >= FIRST {
            return Ok(looked);
        }
    }
}

/// A visitor whose TLS is terminated here.
#[derive(Clone)]
struct Secured {
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    io: Shared,
    peer: Option<SocketAddr>,
    way: Rc<Way>,
    /// The account of the memory that the TLS session holds.
    account: Rc<Account>,
}

impl Secured {
    /// Opens a stream to the service, on the byte path. Returns the first bytes if the proxy must
    /// decide.
    fn open(&self, first: BytesMut) -> Result<(), BytesMut> {
        let Self { worker, doors, io, peer, way, .. } = self;
        let name = way.name.as_deref().unwrap_or_default();
        let generation = doors.names().generation();
        let Some(edition) = doors.edition_of(name, *peer) else { return Err(first) };
        let Some(services) = doors.names().find(Space::Tls, name) else { return Err(first) };
        let Some(direct) = doors.direct(&services, *peer) else { return Err(first) };
        let entrance = &direct.service.entrance;
        let mut link = None;
        let pick = entrance.backends.pick(*peer, &[], None, |session| {
            link = worker.state.visitor_link(worker.index, session);
            link.is_some()
        });
        let (Pick::To(backend), Some(link)) = (pick, link) else { return Err(first) };
        let Some(settings) = entrance::served_by(worker, entrance, &backend.picked) else {
            return Err(first);
        };
        let Some(permit) = accept::admit(&backend, peer) else { return Err(first) };
        let aim = &backend.picked.aim;
        let (target, priority) = (aim.target.clone(), aim.terms.priority);
        let link = worker.state.link_of_class(&backend.session, link, priority);
        let open = proto::Open { target, visitor: *peer, priority, fields: None };
        let route_header = doors.terms.load().route_header.clone();
        let door: Arc<dyn NameDoor> = Arc::<Doors>::clone(doors);
        let carried = Carried::new(
            &settings.stats,
            Arc::<node::backends::Picked>::clone(&backend.picked),
            Arc::<dyn NameDoor>::clone(&door),
            *peer,
        );
        let again = Rc::clone(&carried);
        let mut tracker = Tracker::new(route_header.as_deref().map(Rc::from));
        tracker.observe(Rc::clone(&carried) as Rc<dyn h1::Observer>);
        let (visitor, generation) = (self.clone(), generation.into());
        let onward = Rc::new(Back { visitor, edition, route_header, generation, carried });
        let http = Http { tracker: Some(tracker), first, onward };
        let reset = io.clone();
        let layered = Layered::new(io.clone(), Bytes::new()).cut_by(move || reset.reset_on_close());
        let stop = {
            let worker = Rc::clone(worker);
            async move { worker.state.of::<DoorsState>().left().await }
        };
        let retry = entrance.backends.have_others().then(|| {
            let (entrance, picked) = (Arc::clone(entrance), Arc::clone(&backend.picked));
            let handler =
                Box::new(ByProxy { visitor: self.clone(), carried: again, entrance, picked });
            Retry { handler, first: BytesMut::new() }
        });
        let visitor = (layered, http, retry);
        // A connection without a request is closed after one to two times this duration.
        let idle = doors.terms.load().web.idle(doors.trusts(*peer));
        let opened =
            relay::serve_layered(visitor, &link, open, &settings, Some(permit), stop, idle);
        if let Err(error) = opened {
            tracing::debug!(service = aim.name, %error, "a backend opens no stream");
            settings.stats.count_refused(relay::open_error_code(error));
            self.answer(Answer::Down(proto::ResetCode::Shutdown));
        }
        Ok(())
    }

    /// Passes the connection, of which the bytes `rest` were read already, to the proxy.
    fn proxy(&self, rest: BytesMut) {
        let Self { worker, doors, io, peer, way, account } = self.clone();
        let io: Pin<Box<dyn Io>> =
            if rest.is_empty() { Box::pin(io) } else { Box::pin(Replayed::new(rest.freeze(), io)) };
        let way = Way::clone(&way);
        spawn_local(site::serve(worker, doors, io, peer, way, account));
    }

    fn answer(&self, answer: Answer) {
        let (status, reason) = answer.status();
        self.say(status, reason);
    }

    fn say(&self, status: u16, reason: &str) {
        let (io, page) = (self.io.clone(), self.doors.page(status, reason));
        let account = Rc::clone(&self.account);
        spawn_local(async move {
            say(io, &page).await;
            drop(account);
        });
    }
}

/// Sends a page and closes the connection in stages (RFC 9112 section 9.6).
async fn say(io: Shared, page: &[u8]) {
    // A visitor that does not read the answer loses it.
    let _ = timeout(answer::FAREWELL_ALL, answer::say(io, page)).await;
}

/// Passes a visitor whose stream was refused or has a silent link to the proxy, which tries the
/// clients in turn.
struct ByProxy {
    visitor: Secured,
    /// The requests of the visitor on the refused stream.
    carried: Rc<Carried>,
    entrance: Arc<Entrance>,
    /// The backend of the refused stream.
    picked: Arc<node::backends::Picked>,
}

impl RetryHandler for ByProxy {
    fn is_worth_it(&self) -> bool {
        self.entrance.backends.are_served_beside(self.picked.session, self.visitor.peer)
    }

    fn may_repeat(&self, sent: &[u8]) -> bool {
        h1::is_repeatable(sent)
    }

    fn retry(self: Box<Self>, _: Option<Socket>, first: BytesMut, why: proto::ResetCode) {
        self.entrance.backends.note_refusal(&self.picked, why);
        self.carried.go_on();
        self.visitor.proxy(first);
    }
}

impl fmt::Debug for ByProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByProxy").field("name", &self.visitor.way.name).finish_non_exhaustive()
    }
}

/// Continues the connection that one stream returns.
struct Back {
    visitor: Secured,
    edition: u64,
    /// The header field that names the host of the connection's requests.
    route_header: Option<Arc<str>>,
    /// The generation for which the service was found to be the same.
    generation: Cell<u64>,
    /// The requests of the visitor.
    carried: Rc<Carried>,
}

impl fmt::Debug for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Back").field("name", &self.visitor.way.name).finish_non_exhaustive()
    }
}

impl Onward for Back {
    fn onward(&self, leaving: Leaving) {
        let visitor = &self.visitor;
        match leaving.why {
            Why::Other(_) | Why::Changed | Why::Bad(_) => visitor.proxy(leaving.rest),
            Why::Down(code) => {
                self.carried.replaced(Answer::Down(code).status().0);
                visitor.answer(Answer::Down(code));
            }
            Why::Doubt(doubt) => {
                self.carried.replaced(502);
                visitor.say(502, &unsafe_response(doubt));
            }
        }
    }

    fn is_current(&self) -> bool {
        let Secured { doors, peer, way, .. } = &self.visitor;
        let generation = doors.names().generation();
        if generation == self.generation.get() {
            return true;
        }
        let name = way.name.as_deref().unwrap_or_default();
        let is_same = doors.edition_of(name, *peer) == Some(self.edition)
            && doors.terms.load().route_header == self.route_header;
        if is_same {
            self.generation.set(generation);
        }
        is_same
    }
}

/// The TLS session of a visitor, which the stream and the handler of the returned connection share.
/// Only one of them uses it at a time.
#[derive(Clone, Debug)]
struct Shared(Rc<RefCell<TlsIo<VisitorSocket>>>);

impl Shared {
    fn new(io: TlsIo<VisitorSocket>) -> Self {
        Self(Rc::new(RefCell::new(io)))
    }
}

impl Io for Shared {
    fn reset_on_close(&self) {
        self.0.borrow().reset_on_close();
    }
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut *self.0.borrow_mut()).poll_read(cx, buf));
        // HTTP delimits requests, so an end without the TLS closure alert truncates no request
        // unnoticed (RFC 9112 section 9.8).
        let is_cut = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        Poll::Ready(read.or_else(|error| if is_cut(&error) { Ok(()) } else { Err(error) }))
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)
    }
}
