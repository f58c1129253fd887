//! Streams for requests that the HTTP proxy sends to a service: over a link of this worker, or by
//! way of another worker. Where clients share the name, the stream of a client whose target refuses
//! is retried over a link of the next client, as long as no byte has reached a target. So is a
//! repeatable request, if the link falls silent or is lost before a byte of the answer.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use link::Lease;
use proto::{Budget, Open, ResetCode};
use relay::{Duplex, Held, Layered, Timeouts};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::Instant;
use transport::OpenError;
use web::{ByteStream, LocalFuture, OpenFailed, Place};

use node::aim::Aim;
use node::answer::Answer;
use node::backends::{Pick, Picked, Tried};
use node::entrance::{Affinity, Attempts, EnteringVisitor, Entrance, VisitorOrigin};
use node::session::Worker;
use node::{accept, entrance};

/// The maximum number of bytes of a request that are kept for the next client.
const KEPT_MOST: usize = 16 << 10;

/// The parameters of a stream for a request.
#[derive(Clone)]
pub(super) struct Upstream {
    pub(super) worker: Rc<Worker>,
    pub(super) entrance: Arc<Entrance>,
    /// The rules by which the request was checked.
    pub(super) aim: Arc<Aim>,
    pub(super) peer: Option<SocketAddr>,
    /// The time until which a request may be held.
    pub(super) until: Instant,
    /// The backend that serves the request, if it is known on this worker.
    pub(super) picked: Rc<RefCell<Option<Arc<Picked>>>>,
    /// The previous place of the visitor, for a service with session affinity.
    pub(super) stays: Option<Option<Place>>,
}

impl Upstream {
    /// Opens the stream of a request.
    pub(super) fn open_first(self) -> Result<Box<dyn web::Stream>, OpenFailed> {
        let near = self.open(Vec::new())?;
        if !self.entrance.backends.have_others() {
            return Ok(near.into_stream());
        }
        let budget: Rc<dyn Budget> = Rc::new(self.worker.state.portion.of(self.peer));
        // Without memory for the bytes of the request, only the first client is tried.
        let Some(held) = Held::draw(&budget, KEPT_MOST as u64) else {
            return Ok(near.into_stream());
        };
        let (entrance, peer) = (Arc::clone(&self.entrance), self.peer);
        let (sent, tried) = (BytesMut::new(), Vec::new());
        let kept = Some(Box::new(Kept { of: self, sent, tried, _held: held }));
        Ok(Box::new(Persistent {
            near,
            entrance,
            peer,
            kept,
            unsent: Bytes::new(),
            is_over: false,
            is_shut: false,
        }))
    }

    /// Opens a stream over a link of this worker. Without such a link the stream is a visitor's
    /// over a socket pair, which is handed to another worker or waits for a link.
    fn open(&self, tried: Vec<Tried>) -> Result<Near, OpenFailed> {
        let Self { worker, entrance, aim, peer, until, picked, stays } = self;
        let place = stays.flatten();
        let preferred = place.and_then(|place| entrance.backends.serving(place.client));
        let stays = stays.map(|place| Affinity::new(place.map_or(0, |place| place.target)));
        let mut link = None;
        let pick = entrance.backends.pick(*peer, &tried, preferred, |session| {
            link = worker.state.visitor_link(worker.index, session);
            link.is_some()
        });
        let (Pick::To(backend), Some(link)) = (pick, link) else {
            let (near, far) = UnixStream::pair().map_err(|error| {
                tracing::debug!(%error, "no socket pair for a visitor");
                failed(Answer::Down(ResetCode::Internal))
            })?;
            let origin = VisitorOrigin::Request(Arc::clone(aim), stays.clone());
            let attempts = Attempts { tried, ..Attempts::default() };
            let (socket, peer, until) = (far.into(), *peer, *until);
            let entering = EnteringVisitor { socket, peer, origin, preferred, until, attempts };
            entrance::visit(worker, entrance, entering);
            let budget = Rc::<Lease>::clone(&worker.state.budget);
            let led = stays.map(Led::new);
            return Ok(Near::Elsewhere(Elsewhere(near, led, aim.terms.timeouts, budget)));
        };
        let permit = accept::admit(&backend, peer).ok_or_else(|| failed(Answer::Busy))?;
        let down = || failed(Answer::Down(ResetCode::Shutdown));
        let settings = entrance::served_by(worker, entrance, &backend.picked).ok_or_else(down)?;
        picked.replace(Some(Arc::clone(&backend.picked)));
        // Clients that share a name may name their services differently.
        let own = &backend.picked.aim;
        let target = match &stays {
            Some(stays) => stays.opens(entrance, &backend.picked),
            None => own.target.clone(),
        };
        let priority = own.terms.priority;
        let link = worker.state.link_of_class(&backend.session, link, priority);
        let open = Open { target, visitor: *peer, priority, fields: None };
        let duplex = relay::open_duplex(&link, open, &settings, Some(permit));
        let duplex = duplex.map_err(|error| match error {
            OpenError::Limit => failed(Answer::Full),
            OpenError::Closed | OpenError::TooOld => down(),
        })?;
        if entrance.backends.have_others() {
            duplex.ask_for_silence();
        }
        Ok(Near::Here(Here(duplex, stays.map(Led::new)), Arc::clone(&backend.picked)))
    }
}

/// A stream of one client.
enum Near {
    Here(Here, Arc<Picked>),
    Elsewhere(Elsewhere),
}

impl Near {
    fn into_stream(self) -> Box<dyn web::Stream> {
        match self {
            Self::Here(here, _) => Box::new(here),
            Self::Elsewhere(elsewhere) => Box::new(elsewhere),
        }
    }

    fn io(&mut self) -> Pin<&mut dyn web::Stream> {
        match self {
            Self::Here(here, _) => Pin::new(here),
            Self::Elsewhere(elsewhere) => Pin::new(elsewhere),
        }
    }
}

/// A stream that is retried at the next client, as long as no byte has reached a target.
struct Persistent {
    near: Near,
    entrance: Arc<Entrance>,
    peer: Option<SocketAddr>,
    /// `None`: a client serves the request, or its bytes are no longer kept.
    kept: Option<Box<Kept>>,
    /// The kept bytes that the current client has not received yet.
    unsent: Bytes,
    /// The request is complete.
    is_over: bool,
    /// The current client has received the end of the request.
    is_shut: bool,
}

struct Kept {
    of: Upstream,
    /// The bytes of the request so far.
    sent: BytesMut,
    tried: Vec<Tried>,
    _held: Held,
}

/// Whether the code means that no byte has reached a target: an end sends it instead of connecting.
/// A timeout does not count, because it also ends connections.
const fn is_refusal(code: ResetCode) -> bool {
    matches!(
        code,
        ResetCode::Refused
            | ResetCode::Unreachable
            | ResetCode::Denied
            | ResetCode::Limit
            | ResetCode::Unknown
            | ResetCode::Moved
    )
}

impl Persistent {
    /// Whether the link of the stream has fallen silent, or is lost, while another client serves.
    fn had_better_leave(&self) -> bool {
        let Near::Here(Here(duplex, _), picked) = &self.near else { return false };
        duplex.take_silence() && self.entrance.backends.had_better_leave(picked.session, self.peer)
    }

    /// Whether another client may get the request even if the current client has received it.
    fn may_repeat(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| h1::is_repeatable(&kept.sent))
    }

    /// Opens a stream of the next client, if the current one has refused. False: the request stays
    /// where it is.
    fn goes_on(&mut self) -> bool {
        let Near::Here(Here(duplex, _), _) = &self.near else { return false };
        match duplex.reset_code() {
            Some(why) if is_refusal(why) => self.goes_on_after(why),
            // The link has ended, and the fate of the request is unknown.
            Some(why @ (ResetCode::Shutdown | ResetCode::Internal)) if self.may_repeat() => {
                self.goes_on_after(why)
            }
            Some(_) | None => false,
        }
    }

    /// Opens a stream of the next client, for the reason `why`. False: there is none.
    fn goes_on_after(&mut self, why: ResetCode) -> bool {
        let Near::Here(_, picked) = &self.near else { return false };
        let Some(kept) = &mut self.kept else { return false };
        self.entrance.backends.note_refusal(picked, why);
        let is_counted = entrance::is_counted(why);
        kept.tried.push(Tried { picked: Arc::clone(picked), why, is_counted });
        let backends = &kept.of.entrance.backends;
        let pick = backends.pick(kept.of.peer, &kept.tried, None, |_| true);
        match pick {
            Pick::Refuse(_) => return false,
            // A request that has a reason to fail does not wait for the clients that are away. A
            // client at another node has such a reason only if it is not found.
            Pick::Wait if why != ResetCode::Moved && !backends.are_at_other_nodes() => {
                return false;
            }
            Pick::To(_) | Pick::Here(_) | Pick::Elsewhere(_) | Pick::Wait => {}
        }
        drop(pick);
        let Ok(next) = kept.of.open(kept.tried.clone()) else { return false };
        tracing::debug!(service = picked.aim.name, %why, "the request of a refused stream goes on");
        self.unsent = kept.sent.clone().freeze();
        (self.near, self.is_shut) = (next, false);
        true
    }

    /// Sends the current client what it has not received yet: the kept bytes, and the end of the
    /// request.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let written = ready!(self.near.io().poll_write(cx, &self.unsent))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(written);
        }
        if self.is_over && !self.is_shut {
            ready!(self.near.io().poll_shutdown(cx))?;
            self.is_shut = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Repeats a step at the next client if the current one has refused.
    fn persist<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut step: impl FnMut(Pin<&mut dyn web::Stream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        loop {
            let done = match self.poll_unsent(cx) {
                Poll::Ready(Ok(())) => step(self.near.io(), cx),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            match done {
                Poll::Ready(Err(_)) if self.goes_on() => {}
                done @ (Poll::Ready(_) | Poll::Pending) => return done,
            }
        }
    }

    fn keep(&mut self, slices: &[IoSlice<'_>], mut written: usize) {
        let Some(kept) = &mut self.kept else { return };
        if kept.sent.len() + written > KEPT_MOST {
            self.kept = None;
            return;
        }
        for slice in slices {
            let part = &slice[..slice.len().min(written)];
            kept.sent.extend_from_slice(part);
            written -= part.len();
        }
    }
}

impl AsyncRead for Persistent {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.kept.is_none() {
            return this.near.io().poll_read(cx, buf);
        }
        loop {
            // The answer may arrive before the whole request is sent.
            let unsent = this.poll_unsent(cx);
            let read = match unsent {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => this.near.io().poll_read(cx, buf),
            };
            match read {
                Poll::Ready(Err(_)) if this.goes_on() => {}
                Poll::Ready(read) => {
                    if this.unsent.is_empty() {
                        this.kept = None;
                    }
                    return Poll::Ready(read);
                }
                Poll::Pending => {
                    let leaves = this.had_better_leave() && this.may_repeat();
                    if !leaves || !this.goes_on_after(ResetCode::Timeout) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl AsyncWrite for Persistent {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = this.persist(cx, |io, cx| io.poll_write_vectored(cx, slices));
        if let Poll::Ready(Ok(written)) = done {
            this.keep(slices, written);
        }
        done
    }

    fn is_write_vectored(&self) -> bool {
        match &self.near {
            Near::Here(here, _) => here.is_write_vectored(),
            Near::Elsewhere(elsewhere) => elsewhere.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().persist(cx, |io, cx| io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.is_over = true;
        // The end is sent after the kept bytes.
        this.persist(cx, |_, _| Poll::Ready(Ok(())))
    }
}

impl web::Stream for Persistent {
    fn failure(&self) -> Option<Cow<'static, str>> {
        match &self.near {
            Near::Here(here, _) => here.failure(),
            Near::Elsewhere(elsewhere) => elsewhere.failure(),
        }
    }

    fn had_better_leave(&self) -> bool {
        Self::had_better_leave(self)
    }

    fn place(&self) -> Option<Place> {
        match &self.near {
            Near::Here(here, _) => here.place(),
            Near::Elsewhere(elsewhere) => elsewhere.place(),
        }
    }

    fn carry(self: Box<Self>, first: Bytes, visitor: Box<dyn ByteStream>) -> LocalFuture<()> {
        // The target has answered, so it has the whole request.
        self.near.into_stream().carry(first, visitor)
    }
}

fn failed(answer: Answer) -> OpenFailed {
    let (status, reason) = answer.status();
    OpenFailed { status, reason: sentence(reason) }
}

/// A sentence without its full stop.
fn sentence(text: &'static str) -> Cow<'static, str> {
    Cow::Borrowed(text.strip_suffix('.').unwrap_or(text))
}

/// The affinity of a stream. The first bytes of the stream may be the mark of its target.
struct Led {
    stays: Arc<Affinity>,
    mark: [u8; MARK],
    /// The bytes of the mark that have arrived.
    have: usize,
}

/// The length of the mark of a target, in bytes.
const MARK: usize = 8;

impl Led {
    fn new(stays: Arc<Affinity>) -> Self {
        Self { stays, mark: [0; MARK], have: 0 }
    }

    /// Removes the bytes of the mark from those that were read after the first `before` bytes of
    /// `buf`. True: all of them belonged to the mark, and more follow.
    fn take(&mut self, buf: &mut ReadBuf<'_>, before: usize) -> bool {
        let read = buf.filled().len() - before;
        if self.have == MARK || read == 0 || !self.stays.is_marked() {
            return false;
        }
        let of_mark = read.min(MARK - self.have);
        let fresh = &mut buf.filled_mut()[before..];
        self.mark[self.have..][..of_mark].copy_from_slice(&fresh[..of_mark]);
        self.have += of_mark;
        fresh.copy_within(of_mark.., 0);
        buf.set_filled(before + read - of_mark);
        read == of_mark
    }

    fn place(&self) -> Place {
        Place { client: self.stays.client(), target: u64::from_be_bytes(self.mark) }
    }
}

/// A stream over a link of this worker.
struct Here(Duplex, Option<Led>);

impl web::Stream for Here {
    fn failure(&self) -> Option<Cow<'static, str>> {
        self.0.reset_code().map(|code| sentence(Answer::Down(code).status().1))
    }

    fn place(&self) -> Option<Place> {
        self.1.as_ref().map(Led::place)
    }

    fn carry(self: Box<Self>, first: Bytes, visitor: Box<dyn ByteStream>) -> LocalFuture<()> {
        Box::pin(self.0.carry(Layered::new(visitor, first)))
    }
}

/// A stream that another worker serves, with the timeouts and the budget of a connection that
/// switches to another protocol.
struct Elsewhere(UnixStream, Option<Led>, Timeouts, Rc<Lease>);

impl web::Stream for Elsewhere {
    fn failure(&self) -> Option<Cow<'static, str>> {
        None
    }

    fn place(&self) -> Option<Place> {
        self.1.as_ref().map(Led::place)
    }

    fn carry(self: Box<Self>, first: Bytes, visitor: Box<dyn ByteStream>) -> LocalFuture<()> {
        let Self(target, _, timeouts, budget) = *self;
        Box::pin(relay::join(Layered::new(visitor, first), target.into(), timeouts, budget))
    }
}

/// Forwards the writing half of a stream to the stream inside.
macro_rules! write_through {
    ($type:ty) => {
        impl AsyncWrite for $type {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.0).poll_write(cx, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.0).poll_write_vectored(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                self.0.is_write_vectored()
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_shutdown(cx)
            }
        }
    };
}

/// Forwards the reading half of a stream to the stream inside, without the mark of its target.
macro_rules! read_through {
    ($type:ty) => {
        impl AsyncRead for $type {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let this = &mut *self;
                let Some(led) = &mut this.1 else {
                    return Pin::new(&mut this.0).poll_read(cx, buf);
                };
                let before = buf.filled().len();
                loop {
                    ready!(Pin::new(&mut this.0).poll_read(cx, buf))?;
                    if !led.take(buf, before) {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    };
}

read_through!(Here);
write_through!(Here);
read_through!(Elsewhere);
write_through!(Elsewhere);
