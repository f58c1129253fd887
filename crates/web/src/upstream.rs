//! Connections to targets: HTTP/1.1, opened by the service and kept for the next request of the
//! same visitor.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt, io,
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use h1::{Answers, Progress, Rest};
use hyper::client::conn::http1::{Builder, Connection, Parts, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    sync::oneshot,
    task::{AbortHandle, spawn_local},
    time::{Instant, sleep},
};

use crate::{
    Identity, OpenFailed, Place, Service, Stream,
    account::{Account, Hold, SMALL, SWITCHED, UPSTREAM},
    body::RequestBody,
    gate::{NO_MEMORY, poll_bounded},
};

/// Idle connections to one service that a visitor keeps, and to all services. A browser over
/// HTTP/1.1 opens six connections of its own, each with one connection to the target.
const MOST_IDLE: usize = 4;
const MOST_IDLE_OF_ALL: usize = 16;
/// Over HTTP/2 requests come in bursts: as many connections as a visitor has streams stay for this
/// time, or twice as long. Each one that is opened costs a dial at the client.
const MOST_OF_BURST: usize = 128;
const BURST: Duration = Duration::from_secs(1);
/// hyper reads in pieces that grow to about this size.
const READ_BUFFER: usize = 128 * 1024;
/// What hyper keeps of an answer at most. Its longest head has a place, also when it is mended.
const MOST_BUFFER: usize = h1::ANSWER_HEAD + SMALL;

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
    /// No request is in progress: the connection waits in a [`Pool`].
    is_idle: Cell<bool>,
    /// The request in progress is sent again, on another connection, if this one breaks.
    repeats: Cell<bool>,
    /// A request has asked for another protocol.
    asked_to_switch: Cell<bool>,
    /// The target takes no more bytes.
    deaf: Cell<bool>,
    failure: Failure,
    /// Where the connection leads, once the target has answered.
    pub(crate) place: Cell<Option<Place>>,
    /// The memory of the connection: what follows, and what it costs without.
    hold: Hold,
    base: u64,
    /// A request over HTTP/2, of whose body h2 takes one piece at a time.
    is_stream: bool,
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
    /// Finds the boundaries of the answers.
    answers: RefCell<Answers>,
    /// Bytes that were checked and that hyper has not read.
    checked: Cell<usize>,
}

impl WireState {
    fn new(hold: Hold) -> Self {
        Self {
            received: Cell::new(false),
            sending: Cell::new(false),
            is_idle: Cell::new(false),
            repeats: Cell::new(false),
            asked_to_switch: Cell::new(false),
            deaf: Cell::new(false),
            failure: Failure::default(),
            place: Cell::default(),
            hold,
            base: UPSTREAM,
            is_stream: false,
            head: Cell::new(0),
            block: Cell::new(0),
            is_parsed: Cell::new(false),
            unparsed: Cell::new(0),
            queued: Cell::new(0),
            body: Cell::new(None),
            answers: RefCell::default(),
            checked: Cell::new(0),
        }
    }

    /// The state of one request over HTTP/2, whose memory is `hold`.
    pub(crate) fn of_stream(hold: Hold, base: u64) -> Self {
        Self { base, is_stream: true, ..Self::new(hold) }
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
        let copies = self.queued.get() + self.checked.get();
        let buffers = 2 * self.block.get() + self.head.get() + copies;
        self.hold.set(self.base + (buffers + self.unparsed.get()) as u64);
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

    /// A request goes to the target. `switches`: it asks for another protocol.
    pub(crate) fn asked(&self, is_head: bool, switches: bool) {
        self.asked_to_switch.set(switches);
        self.answers.borrow_mut().asked(is_head, switches);
    }

    /// Whether the request that begins is sent again, on another connection, if this one breaks.
    pub(crate) fn set_repeats(&self, repeats: bool) {
        self.repeats.set(repeats);
    }

    /// Whether the connection may break now without harm to a visitor.
    fn may_break(&self) -> bool {
        self.is_idle.get() || (self.repeats.get() && !self.received.get())
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
        if self.is_stream || self.queued.get() == 0 || self.account().may_grow(READ_BUFFER as u64) {
            return true;
        }
        self.body.set(Some(cx.waker().clone()));
        false
    }

    /// A piece of the body of a request waits to be written.
    pub(crate) fn queue(&self, bytes: usize) {
        let before = if self.is_stream { 0 } else { self.queued.get() };
        self.queued.set(before + bytes);
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
        self.failure.get()
    }
}

/// Why a target broke its connection.
#[derive(Debug, Default)]
pub(crate) struct Failure(RefCell<Option<Cow<'static, str>>>);

impl Failure {
    pub(crate) fn get(&self) -> Option<Cow<'static, str>> {
        self.0.borrow().clone()
    }

    pub(crate) fn set(&self, reason: Option<Cow<'static, str>>) {
        *self.0.borrow_mut() = reason;
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
        place: Option<Place>,
        account: &Rc<Account>,
    ) -> Result<Self, OpenFailed> {
        let Some(hold) = account.take(UPSTREAM) else {
            account.count_refusal();
            let reason = NO_MEMORY.reason.trim_end_matches('.').to_owned();
            return Err(OpenFailed { status: NO_MEMORY.status, reason: reason.into() });
        };
        let stream = service.open(place).await?;
        let wire = Rc::new(WireState::new(hold));
        let io = TokioIo::new(Wire::new(stream, &wire));
        let mut builder = Builder::new();
        // Names stay as the visitor wrote them. Those of HTTP/2 get the usual case: some old
        // devices read no other.
        builder
            .preserve_header_case(true)
            .title_case_headers(true)
            .max_headers(h1::ANSWER_FIELDS)
            .max_buf_size(MOST_BUFFER);
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
pub(crate) struct Pool {
    /// The one that is idle for the longest time is the first.
    idle: RefCell<Vec<Idle>>,
    /// A task ends those that are left of a burst.
    is_swept: Cell<bool>,
}

struct Idle {
    /// The service of the target.
    owner: Identity,
    since: Instant,
    upstream: Upstream,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.idle.borrow().len()).finish()
    }
}

impl Pool {
    /// The connection to a service that was used last, if it was idle for less than `most`. A
    /// request without a place takes a connection to any.
    pub(crate) fn take(&self, identity: Identity, most: Option<Duration>) -> Option<Upstream> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|one| !one.upstream.sender.is_closed());
        let leads = |one: &Idle| {
            let place = identity.place.or(one.owner.place);
            one.owner == Identity { place, ..identity }
        };
        let at = idle.iter().rposition(|one| leads(one) && one.upstream.sender.is_ready())?;
        let is_fresh = most.is_none_or(|most| idle[at].since.elapsed() < most);
        is_fresh.then(|| {
            let Idle { upstream, .. } = idle.remove(at);
            upstream.wire.is_idle.set(false);
            upstream
        })
    }

    /// Ends all idle connections.
    pub(crate) fn clear(&self) {
        let idle = self.idle.take();
        drop(idle);
    }

    fn put(self: &Rc<Self>, identity: Identity, upstream: Upstream) {
        // The body of the request may still be on its way, or be unwanted.
        if upstream.sender.is_closed() || upstream.wire.sending.get() {
            return;
        }
        // What a target makes of the bytes behind a request to switch is not certain: it may have
        // begun the other protocol, or a body.
        if upstream.wire.asked_to_switch.get() {
            return;
        }
        // An idle connection is no need.
        if !upstream.wire.account().may_grow(0) {
            return;
        }
        upstream.wire.is_idle.set(true);
        let mut idle = self.idle.borrow_mut();
        let dropped = (idle.len() >= MOST_OF_BURST).then(|| idle.remove(0));
        idle.push(Idle { owner: identity, since: Instant::now(), upstream });
        let is_burst = !self.is_swept.get() && surplus(&idle).is_some();
        drop(idle);
        drop(dropped);
        if is_burst {
            self.is_swept.set(true);
            spawn_local(sweep(Rc::downgrade(self)));
        }
    }

    /// Takes one that is left of a burst. Returns with it whether there may be others later.
    fn take_surplus(&self) -> (Option<Idle>, bool) {
        let mut idle = self.idle.borrow_mut();
        let at = surplus(&idle);
        let is_burst = at.is_some();
        let at = at.filter(|&at| idle[at].since.elapsed() >= BURST);
        (at.map(|at| idle.remove(at)), is_burst)
    }
}

/// The position of the oldest connection that a visitor keeps for a burst alone.
fn surplus(idle: &[Idle]) -> Option<usize> {
    // Those that are used stand behind, so the oldest of an owner are the surplus.
    let of_owner = |owner| idle.iter().filter(|one| one.owner == owner).count();
    if idle.len() <= MOST_IDLE {
        return None;
    }
    idle.iter()
        .position(|one| of_owner(one.owner) > MOST_IDLE)
        .or_else(|| (idle.len() > MOST_IDLE_OF_ALL).then_some(0))
}

/// Ends connections that are left of a burst, until there are none.
async fn sweep(pool: Weak<Pool>) {
    loop {
        sleep(BURST).await;
        let Some(pool) = pool.upgrade() else { return };
        loop {
            let (taken, is_burst) = pool.take_surplus();
            if !is_burst {
                pool.is_swept.set(false);
                return;
            }
            if taken.is_none() {
                break;
            }
        }
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

/// The stream to a target, which notes what hyper's errors do not tell. hyper gets only bytes with
/// one meaning ([`h1`]), so it finds the boundaries of answers that the byte path finds.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    state: Rc<WireState>,
    /// Bytes that were checked and that hyper has not read: heads that came in pieces, or were
    /// mended.
    checked: BytesMut,
    over: Option<Over>,
}

/// Why nothing more of the target is read.
#[derive(Clone, Copy)]
enum Over {
    /// Nobody asked for what follows.
    Excess,
    /// An answer is in doubt.
    Doubt,
}

impl Wire {
    fn new(stream: Box<dyn Stream>, state: &Rc<WireState>) -> Self {
        let (state, checked) = (Rc::clone(state), BytesMut::new());
        Self { stream, state, checked, over: None }
    }

    /// Checks the bytes of the target that were read behind the first `before` bytes of `buf`, and
    /// leaves those in it that hyper may read now.
    fn check(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let answers = &mut *self.state.answers.borrow_mut();
        if answers.is_raw() {
            return;
        }
        let bytes = &buf.filled()[before..];
        let Progress { held, deliver, rest, .. } = answers.responses(bytes);
        if held.is_empty() {
            buf.set_filled(before + deliver);
        } else {
            self.checked.extend_from_slice(&held);
            self.checked.extend_from_slice(&bytes[..deliver]);
            self.state.checked.set(self.checked.capacity());
            self.state.settle();
            buf.set_filled(before);
        }
        self.over = match rest {
            Rest::Held => return,
            Rest::Excess => Some(Over::Excess),
            Rest::Refused(doubt) | Rest::Cut(doubt) => {
                let reason =
                    format!("the answer of the target is not valid HTTP: {}", doubt.reason());
                self.state.failure.set(Some(reason.into()));
                Some(Over::Doubt)
            }
        };
    }

    /// Gives hyper bytes that were checked before.
    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let length = self.checked.len().min(buf.remaining());
        buf.put_slice(&self.checked[..length]);
        self.checked.advance(length);
        if self.checked.is_empty() {
            self.checked = BytesMut::new();
            self.state.checked.set(0);
            self.state.settle();
        }
    }

    pub(crate) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }
}

impl Wire {
    /// A target that takes no more of a request may have answered it: hyper, which would give the
    /// connection up with the write, has to read on. What it still wants to write waits until the
    /// answer is complete, or reading fails as well.
    fn wrote(&self, result: io::Result<usize>) -> Poll<io::Result<usize>> {
        match result {
            Ok(written) => {
                self.state.written(written);
                Poll::Ready(Ok(written))
            }
            Err(error) => {
                tracing::debug!(%error, "a target takes no more of a request");
                self.state.deaf.set(true);
                Poll::Pending
            }
        }
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
        loop {
            if !self.checked.is_empty() {
                self.give(buf);
                return Poll::Ready(Ok(()));
            }
            match self.over {
                None => {}
                Some(Over::Excess) => return Poll::Ready(Ok(())),
                Some(Over::Doubt) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            let Self { stream, state, .. } = &mut *self;
            let unparsed = state.unparsed.get();
            if unparsed > SMALL && !state.account().affords(unparsed as u64) {
                let reason = "the answer of the target has a long head, and memory is short";
                state.failure.set(Some(reason.into()));
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            let (result, block) = poll_bounded(stream, cx, buf, state.block.get(), state.account());
            if state.block.replace(block) != block {
                state.settle();
            }
            if result.is_pending() && state.may_break() && stream.had_better_leave() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let result = ready!(result);
            let read = buf.filled().len() - before;
            if result.is_err() || read == 0 {
                self.state.failure.set(self.stream.failure());
                return Poll::Ready(result);
            }
            if !state.received.get() {
                state.place.set(stream.place());
            }
            state.read(read);
            self.check(buf, before);
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.state.deaf.get() {
            return Poll::Pending;
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.wrote(result)
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
        if self.state.deaf.get() {
            return Poll::Pending;
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        self.wrote(result)
    }
}
