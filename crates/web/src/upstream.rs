//! Connections to targets: HTTP/1.1, opened by the service and kept for the next request of the
//! same visitor.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt, io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use hyper::client::conn::http1::{Builder, Connection, Parts, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    sync::oneshot,
    task::{AbortHandle, spawn_local},
};

use crate::{
    Identity, OpenFailed, Service, Stream,
    account::{Account, Hold, SMALL, SWITCHED, UPSTREAM},
    body::RequestBody,
    gate::{NO_MEMORY, poll_bounded},
};

/// Idle connections to one service that a visitor keeps, and to all services. A browser over
/// HTTP/1.1 opens six connections of its own, each with one connection to the target; over HTTP/2
/// requests come in bursts.
const MOST_IDLE: usize = 4;
const MOST_IDLE_OF_ALL: usize = 16;
/// hyper reads in pieces that grow up to this size, and the head of an answer is at most as long.
const READ_BUFFER: usize = 128 * 1024;

/// A connection to a target.
pub(crate) struct Upstream {
    pub(crate) sender: SendRequest<RequestBody>,
    /// The stream, once the target has switched to another protocol.
    pub(crate) switched: oneshot::Receiver<Parts<TokioIo<Wire>>>,
    pub(crate) wire: Rc<WireState>,
    task: AbortHandle,
}

/// What is known about the stream of a connection while hyper owns it.
pub(crate) struct WireState {
    /// A byte of an answer arrived since the last request was sent.
    pub(crate) received: Cell<bool>,
    /// The body of the request is not completely sent.
    pub(crate) sending: Cell<bool>,
    failure: RefCell<Option<Cow<'static, str>>>,
    /// The memory of the connection: what follows, and what it costs without.
    hold: Hold,
    /// The largest head of a request, for which hyper keeps a buffer.
    head: Cell<usize>,
    /// The size of the block that hyper reads into, beyond its smallest.
    block: Cell<usize>,
    /// The head of the answer is complete.
    is_parsed: Cell<bool>,
    /// Bytes of an answer whose head is not complete.
    unparsed: Cell<usize>,
    /// Bytes of the body of a request that wait to be written.
    queued: Cell<usize>,
    /// The body that waits until they are.
    body: Cell<Option<Waker>>,
}

impl WireState {
    fn new(hold: Hold) -> Self {
        Self {
            received: Cell::new(false),
            sending: Cell::new(false),
            failure: RefCell::default(),
            hold,
            head: Cell::new(0),
            block: Cell::new(0),
            is_parsed: Cell::new(false),
            unparsed: Cell::new(0),
            queued: Cell::new(0),
            body: Cell::new(None),
        }
    }

    pub(crate) const fn account(&self) -> &Rc<Account> {
        self.hold.account()
    }

    /// The size of the blocks that hyper reads into.
    pub(crate) const fn block(&self) -> usize {
        self.block.get() + SMALL
    }

    /// Charges what the connection holds: of the blocks that hyper has it reads into one, and the
    /// last piece of a body pins another.
    fn settle(&self) {
        let buffers = 2 * self.block.get() + self.head.get() + self.queued.get();
        self.hold.set(UPSTREAM + (buffers + self.unparsed.get()) as u64);
    }

    /// A request with a head of this size begins.
    pub(crate) fn begin(&self, head: usize) {
        self.received.set(false);
        self.is_parsed.set(false);
        self.unparsed.set(0);
        // A head is encoded into a buffer that begins with the smallest size, and doubles.
        let buffer = if head > SMALL { 2 * head } else { 0 };
        self.head.set(self.head.get().max(buffer));
        self.settle();
    }

    /// An interim answer is complete.
    pub(crate) fn interim(&self) {
        if self.unparsed.replace(0) > SMALL {
            self.settle();
        }
    }

    /// The head of the answer is complete.
    pub(crate) fn answered(&self) {
        self.is_parsed.set(true);
        if self.unparsed.replace(0) > SMALL {
            self.settle();
        }
    }

    /// Only the stream is left.
    pub(crate) fn switched(&self) {
        self.hold.set(SWITCHED);
    }

    /// Whether the body of a request may bring a piece. The first one always may. Otherwise the
    /// task of `cx` is woken once what waits is written.
    pub(crate) fn may_queue(&self, cx: &Context<'_>) -> bool {
        if self.queued.get() == 0 || self.account().may_grow(READ_BUFFER as u64) {
            return true;
        }
        self.body.set(Some(cx.waker().clone()));
        false
    }

    /// A piece of the body of a request waits to be written.
    pub(crate) fn queue(&self, bytes: usize) {
        self.queued.set(self.queued.get() + bytes);
        self.settle();
    }

    fn read(&self, bytes: usize) {
        self.received.set(true);
        if self.is_parsed.get() {
            return;
        }
        self.unparsed.set(self.unparsed.get() + bytes);
        if self.unparsed.get() > SMALL {
            self.settle();
        }
    }

    fn written(&self, bytes: usize) {
        if self.queued.get() == 0 {
            return;
        }
        self.queued.set(self.queued.get().saturating_sub(bytes));
        self.settle();
        if self.queued.get() == 0
            && let Some(waker) = self.body.take()
        {
            waker.wake();
        }
    }

    /// Why the target broke the connection, if the stream knows.
    pub(crate) fn failure(&self) -> Option<Cow<'static, str>> {
        self.failure.borrow().clone()
    }
}

impl fmt::Debug for WireState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireState").finish_non_exhaustive()
    }
}

impl Upstream {
    /// Opens a connection to the target of a service.
    pub(crate) async fn open(
        service: &dyn Service,
        account: &Rc<Account>,
    ) -> Result<Self, OpenFailed> {
        let Some(hold) = account.take(UPSTREAM) else {
            account.count_refusal();
            let reason = NO_MEMORY.reason.trim_end_matches('.').to_owned();
            return Err(OpenFailed { status: NO_MEMORY.status, reason: reason.into() });
        };
        let stream = service.open().await?;
        let wire = Rc::new(WireState::new(hold));
        let io = TokioIo::new(Wire { stream, state: Rc::clone(&wire) });
        let mut builder = Builder::new();
        // Some old devices read field names only in the usual case.
        builder.title_case_headers(true).max_buf_size(READ_BUFFER);
        let (sender, connection) = builder.handshake(io).await.map_err(|error| OpenFailed {
            status: 502,
            reason: format!("the connection to the target failed: {error}").into(),
        })?;
        let (switches, switched) = oneshot::channel();
        let task = spawn_local(run(connection, switches)).abort_handle();
        Ok(Self { sender, switched, wire, task })
    }
}

/// Drives a connection until it ends or switches to another protocol.
async fn run(
    mut connection: Connection<TokioIo<Wire>, RequestBody>,
    switches: oneshot::Sender<Parts<TokioIo<Wire>>>,
) {
    let end = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    if let Err(error) = end {
        tracing::debug!(%error, "a connection to a target broke");
        return;
    }
    if let Err(mut parts) = switches.send(connection.into_parts()) {
        // Nobody waits for a switch: the connection is idle, and its end is orderly.
        let _ = parts.io.inner_mut().shutdown().await;
    }
}

/// A request in progress would go on after nobody waits for its answer. An idle connection ends
/// by itself without its sender.
impl Drop for Upstream {
    fn drop(&mut self) {
        if !self.sender.is_ready() {
            self.task.abort();
        }
    }
}

/// The idle connections of one visitor.
#[derive(Default)]
pub(crate) struct Pool(RefCell<Vec<(Identity, Upstream)>>);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.borrow().len()).finish()
    }
}

impl Pool {
    /// The connection to a service that was used last.
    pub(crate) fn take(&self, identity: Identity) -> Option<Upstream> {
        let mut idle = self.0.borrow_mut();
        idle.retain(|(_, upstream)| !upstream.sender.is_closed());
        let at = idle
            .iter()
            .rposition(|(owner, upstream)| *owner == identity && upstream.sender.is_ready())?;
        Some(idle.remove(at).1)
    }

    /// Ends all idle connections.
    pub(crate) fn clear(&self) {
        let idle = self.0.take();
        drop(idle);
    }

    fn put(&self, identity: Identity, upstream: Upstream) {
        // The body of the request may still be on its way, or be unwanted.
        if upstream.sender.is_closed() || upstream.wire.sending.get() {
            return;
        }
        // An idle connection is no need.
        if !upstream.wire.account().may_grow(0) {
            return;
        }
        let mut idle = self.0.borrow_mut();
        let same = idle.iter().filter(|(owner, _)| *owner == identity).count();
        let oldest = if same >= MOST_IDLE {
            idle.iter().position(|(owner, _)| *owner == identity)
        } else {
            (idle.len() >= MOST_IDLE_OF_ALL).then_some(0)
        };
        let dropped = oldest.map(|at| idle.remove(at));
        idle.push((identity, upstream));
        drop(idle);
        drop(dropped);
    }
}

/// A connection to a target while its answer is read. Dropping it breaks the connection.
pub(crate) struct Exchange {
    upstream: Upstream,
    identity: Identity,
    pool: Rc<Pool>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Exchange {
    pub(crate) const fn new(upstream: Upstream, identity: Identity, pool: Rc<Pool>) -> Self {
        Self { upstream, identity, pool }
    }

    pub(crate) fn wire(&self) -> Rc<WireState> {
        Rc::clone(&self.upstream.wire)
    }

    /// The answer was read to its end.
    pub(crate) fn complete(self) {
        self.pool.put(self.identity, self.upstream);
    }
}

/// The stream to a target, which notes what hyper's errors do not tell.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    state: Rc<WireState>,
}

impl Wire {
    pub(crate) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Self { stream, state } = &mut *self;
        let unparsed = state.unparsed.get();
        if unparsed > SMALL && !state.account().affords(unparsed as u64) {
            *state.failure.borrow_mut() =
                Some("the answer of the target has a long head, and memory is short".into());
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let (result, block) = poll_bounded(stream, cx, buf, state.block.get(), state.account());
        if state.block.replace(block) != block {
            state.settle();
        }
        let result = ready!(result);
        let read = buf.filled().len() - before;
        if result.is_ok() && read > 0 {
            state.read(read);
        } else {
            *self.state.failure.borrow_mut() = self.stream.failure();
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.state.written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes once its own buffer is empty.
        self.state.written(usize::MAX);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.state.written(written);
        Poll::Ready(Ok(written))
    }
}
