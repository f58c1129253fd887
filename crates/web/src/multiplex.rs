//! HTTP/2 connections to targets: one for all requests of a visitor to a service.
//!
//! hyper multiplexes the requests, and obeys SETTINGS_MAX_CONCURRENT_STREAMS and GOAWAY of the
//! target (RFC 9113 sections 5.1.2 and 6.8). The window of a stream opens as the visitor reads its
//! response, so a slow visitor stalls only its own stream: the window of the connection is the sum
//! of the windows of all streams. The data that h2 buffers is counted on its way to h2, and
//! charged; when memory is short, reading is throttled until some of it has left.

use std::{
    cell::{Cell, RefCell},
    error::Error,
    fmt, io,
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use hyper::{
    client::conn::http2::{Builder, Connection, SendRequest},
    rt::Executor,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{Notify, Semaphore},
    task::spawn_local,
    time::{Sleep, sleep},
};

use crate::{
    OpenFailed, Service, Stream,
    account::{Account, Hold, SMALL},
    body::RequestBody,
    compress::Read,
    gate::{DATA, Frames, NO_MEMORY},
    service::Identity,
    wire::{Failure, WireState},
};

/// The cost of a connection, as much as that of a visitor's: the frame buffers and HPACK tables of
/// both directions, and its tasks.
const CONNECTION: u64 = 36 * 1024;
/// The cost of a stream: its task, its state, and the piece of a body that is being sent.
const STREAM: u64 = 20 * 1024;

/// The window of each response: the initial window of RFC 9113 section 6.9.2 when memory is short,
/// otherwise enough for 20 Mbit/s at 100 ms.
const SMALL_WINDOW: u32 = 65_535;
const WINDOW: u32 = 256 * 1024;
/// The maximum number of streams of a visitor: the window of the connection is the sum of this
/// number of stream windows.
const MOST_STREAMS: u32 = 128;
/// The number of streams that are opened before the SETTINGS of the target arrive: its limit is
/// unknown until then, and a target refuses streams beyond it. The other requests wait for the
/// SETTINGS, which a target sends first (RFC 9113 section 3.4).
const FIRST_STREAMS: usize = 1;
/// The maximum number of locally reset streams that h2 remembers for a second, so that late frames
/// of their responses are ignored: all streams that a visitor cancels at once, several times over.
const MOST_CANCELLED: usize = 1024;
/// The number of bytes that h2 may buffer before short memory throttles reading.
const AHEAD: u64 = 64 * 1024;
/// While memory is short, this number of bytes is read per [`TICK`]. Reading does not stop: the
/// bytes that h2 buffers are an estimate, and memory for a waiting stream may be released
/// elsewhere.
const TRICKLE: usize = SMALL;
const TICK: Duration = Duration::from_millis(100);
/// The maximum number of request body bytes that are queued for the window of their stream.
const SEND_BUFFER: usize = 64 * 1024;
/// The maximum size of the response fields, as for a header over HTTP/1.1.
const LONGEST_HEADER_LIST: u32 = 64 * 1024;
/// The overhead per frame that is charged in addition to its bytes.
const FRAME: u64 = 64;

/// The idle timeout of a connection without a stream.
const IDLE: Duration = Duration::from_secs(60);

/// The maximum number of services to which a visitor keeps connections.
const MOST: usize = 16;

/// The connections of one visitor.
#[derive(Default)]
pub(crate) struct Connections(RefCell<Vec<(Identity, Rc<Place>)>>);

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connections").field(&self.0.borrow().len()).finish()
    }
}

/// The slot of the connection to one service.
struct Place {
    /// Held by the request that opens the connection, while others wait.
    opening: Semaphore,
    open: RefCell<Option<Open>>,
    /// The number of failed attempts to open the connection, and the error of the last attempt. A
    /// request that has waited for an attempt fails with it: otherwise each request would repeat
    /// the attempt, one after the other.
    failures: Cell<u64>,
    failed: RefCell<Option<OpenFailed>>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            opening: Semaphore::new(1),
            open: RefCell::default(),
            failures: Cell::new(0),
            failed: RefCell::default(),
        }
    }
}

#[derive(Clone)]
struct Open {
    sender: SendRequest<RequestBody>,
    state: Rc<State>,
}

/// The state of a connection while hyper owns it.
struct State {
    hold: Hold,
    /// The number of response bytes that h2 buffers.
    unread: Cell<u64>,
    /// The waker of the reading task, while memory is too short for more.
    reader: Cell<Option<Waker>>,
    failure: Failure,
    /// The place to which the connection leads, once the target has sent a byte.
    leads_to: Cell<Option<crate::Place>>,
    /// The window of a stream.
    window: u32,
    streams: Cell<u32>,
    /// Notified when a stream has ended.
    ended: Notify,
}

impl State {
    /// Removes the connection from its slot: the next request opens another.
    fn leave(&self, place: &Weak<Place>) {
        let Some(place) = place.upgrade() else { return };
        let mut open = place.open.borrow_mut();
        if open.as_ref().is_some_and(|open| std::ptr::eq(&*open.state, self)) {
            let left = open.take();
            drop(open);
            drop(left);
        }
    }

    /// Charges `unread` bytes, bounded by the windows of the open streams: h2 discards the rest of
    /// the response to a cancelled request without reporting it.
    fn charge(&self, unread: u64) {
        let unread = unread.min(u64::from(self.streams.get()) * u64::from(self.window));
        self.unread.set(unread);
        self.hold.set(CONNECTION + unread);
    }
}

/// The use of a connection by one request.
pub(crate) struct Lease {
    pub(crate) sender: SendRequest<RequestBody>,
    pub(crate) wire: Rc<WireState>,
    state: Rc<State>,
    place: Weak<Place>,
}

impl Lease {
    /// Removes the connection for later requests, because the target accepts no more; hyper may
    /// notice that later.
    pub(crate) fn leave(&self) {
        self.state.leave(&self.place);
    }

    /// The place to which the connection leads.
    pub(crate) fn leads_to(&self) -> Option<crate::Place> {
        self.state.leads_to.get()
    }

    /// Why the target broke the connection, if the stream knows.
    pub(crate) fn failure(&self) -> Option<std::borrow::Cow<'static, str>> {
        self.state.failure.get()
    }

    /// Records that pieces of the response were read.
    pub(crate) fn read(&self, read: Read) {
        if read.pieces == 0 {
            return;
        }
        let state = &self.state;
        let kept = read.bytes as u64 + u64::from(read.pieces) * FRAME;
        state.charge(state.unread.get().saturating_sub(kept));
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = &self.state;
        state.streams.set(state.streams.get().saturating_sub(1));
        state.charge(state.unread.get());
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        state.ended.notify_one();
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl Connections {
    /// The connection to a service, which is opened if there is none, and whether it was already
    /// open.
    pub(crate) async fn lease(
        &self,
        service: &dyn Service,
        leads_to: Option<crate::Place>,
        account: &Rc<Account>,
    ) -> Result<(Lease, bool), OpenFailed> {
        let Some(hold) = account.take(STREAM) else { return Err(no_memory(account)) };
        let place = self.place(Identity { place: leads_to, ..service.identity() });
        let failures = place.failures.get();
        let _turn = place.opening.acquire().await;
        let kept = place.open.borrow().clone().filter(|open| !open.sender.is_closed());
        let (is_kept, open) = match kept {
            Some(open) => (true, open),
            None => {
                let failed = place.failed.borrow().clone();
                if let Some(failed) = failed.filter(|_| place.failures.get() != failures) {
                    return Err(failed);
                }
                let opened = connect(service, leads_to, account, &place).await;
                *place.failed.borrow_mut() = opened.as_ref().err().cloned();
                if opened.is_err() {
                    place.failures.set(place.failures.get() + 1);
                }
                (false, opened?)
            }
        };
        let Open { sender, state } = open;
        state.streams.set(state.streams.get() + 1);
        let wire = Rc::new(WireState::of_stream(hold, STREAM));
        let place = Rc::downgrade(&place);
        Ok((Lease { sender, wire, state, place }, is_kept))
    }

    fn place(&self, identity: Identity) -> Rc<Place> {
        let mut all = self.0.borrow_mut();
        if let Some((_, place)) = all.iter().find(|(owner, _)| *owner == identity) {
            return Rc::clone(place);
        }
        if all.len() >= MOST {
            let is_idle = |place: &Place| {
                let open = place.open.borrow();
                open.as_ref().is_none_or(|open| open.state.streams.get() == 0)
            };
            all.retain(|(_, place)| Rc::strong_count(place) > 1 || !is_idle(place));
        }
        let place = Rc::<Place>::default();
        all.push((identity, Rc::clone(&place)));
        place
    }
}

fn no_memory(account: &Account) -> OpenFailed {
    account.count_refusal();
    let reason = NO_MEMORY.reason.trim_end_matches('.').to_owned();
    OpenFailed { status: NO_MEMORY.status, reason: reason.into() }
}

async fn connect(
    service: &dyn Service,
    leads_to: Option<crate::Place>,
    account: &Rc<Account>,
    place: &Rc<Place>,
) -> Result<Open, OpenFailed> {
    let Some(hold) = account.take(CONNECTION) else { return Err(no_memory(account)) };
    let stream = service.open(leads_to).await?;
    let window = if account.may_grow(WINDOW.into()) { WINDOW } else { SMALL_WINDOW };
    let state = Rc::new(State {
        hold,
        unread: Cell::new(0),
        reader: Cell::default(),
        failure: Failure::default(),
        leads_to: Cell::default(),
        window,
        streams: Cell::new(0),
        ended: Notify::new(),
    });
    let io = Wire { stream, state: Rc::clone(&state), frames: Frames::of_target(), tick: None };
    let mut builder = Builder::new(Local);
    builder
        .initial_stream_window_size(window)
        .initial_connection_window_size(window * MOST_STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(LONGEST_HEADER_LIST)
        .initial_max_send_streams(FIRST_STREAMS)
        .max_concurrent_reset_streams(MOST_CANCELLED)
        // h2 counts over the lifetime of the connection, and late frames of cancelled responses
        // count as errors: the limit would end the connection with all its requests.
        .max_local_error_reset_streams(None);
    let (sender, connection) =
        builder.handshake(TokioIo::new(io)).await.map_err(|error| OpenFailed {
            status: 502,
            reason: format!("the connection to the target failed: {error}").into(),
        })?;
    let open = Open { sender, state: Rc::clone(&state) };
    *place.open.borrow_mut() = Some(open.clone());
    spawn_local(run(connection, state, Rc::downgrade(place)));
    Ok(open)
}

/// Drives a connection until it ends. An idle connection is dropped from its slot, so hyper shuts
/// it down gracefully.
async fn run(
    mut connection: Connection<TokioIo<Wire>, RequestBody, Local>,
    state: Rc<State>,
    place: Weak<Place>,
) {
    let forget = || state.leave(&place);
    loop {
        let is_idle = state.streams.get() == 0;
        tokio::select! {
            end = &mut connection => {
                if let Err(error) = end {
                    tracing::debug!(%error, "a connection to a target broke");
                }
                return forget();
            }
            () = state.ended.notified() => {}
            () = sleep(IDLE), if is_idle => {
                if state.streams.get() == 0 {
                    forget();
                }
            }
        }
    }
}

/// Runs the tasks of hyper on the worker of their connection.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

/// The stream to a target, whose frames are counted.
struct Wire {
    stream: Box<dyn Stream>,
    state: Rc<State>,
    frames: Frames,
    /// The timer for the next read while memory is short.
    tick: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, state, frames, tick } = &mut *self;
        let unread = state.unread.get();
        let mut is_short = false;
        if unread > AHEAD && !state.hold.account().may_grow(AHEAD) {
            let due = tick.get_or_insert_with(|| Box::pin(sleep(TICK)));
            if due.as_mut().poll(cx).is_pending() {
                state.reader.set(Some(cx.waker().clone()));
                return Poll::Pending;
            }
            is_short = true;
        }
        let before = buf.filled().len();
        let result = if is_short {
            let most = buf.remaining().min(TRICKLE);
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
            let result = ready!(Pin::new(&mut *stream).poll_read(cx, &mut part));
            let length = part.filled().len();
            buf.advance(length);
            result
        } else {
            ready!(Pin::new(&mut *stream).poll_read(cx, buf))
        };
        *tick = None;
        let read = &buf.filled()[before..];
        if result.is_err() || read.is_empty() {
            state.failure.set(stream.failure());
        } else {
            if state.leads_to.get().is_none() {
                state.leads_to.set(stream.place());
            }
            let mut brought = 0;
            frames.look(read, |frame| {
                if frame.kind == DATA && frame.length > 0 {
                    brought += u64::from(frame.length) + FRAME;
                }
            });
            if brought > 0 {
                state.charge(unread + brought);
            }
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
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

/// The HTTP/2 error code with which a peer ended a stream (RFC 9113 section 7), or that corresponds
/// to an error of hyper.
pub(crate) fn reason(error: &(dyn Error + 'static)) -> Option<h2::Reason> {
    broken(error)?.reason()
}

/// Whether a target signals that it has not processed a request: it refused the stream, or its
/// GOAWAY excludes the stream (RFC 9113 section 8.7).
pub(crate) fn is_unprocessed(error: &(dyn Error + 'static)) -> bool {
    broken(error).is_some_and(|error| {
        let is = |reason| error.is_remote() && error.reason() == Some(reason);
        // Streams that the GOAWAY of the target includes complete normally.
        let left = [h2::Reason::NO_ERROR, h2::Reason::ENHANCE_YOUR_CALM];
        is(h2::Reason::REFUSED_STREAM) || (error.is_go_away() && left.into_iter().any(is))
    })
}

/// Whether either side has ended the whole connection.
pub(crate) fn is_away(error: &(dyn Error + 'static)) -> bool {
    broken(error).is_some_and(h2::Error::is_go_away)
}

fn broken<'e>(mut error: &'e (dyn Error + 'static)) -> Option<&'e h2::Error> {
    loop {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        error = error.source()?;
    }
}
