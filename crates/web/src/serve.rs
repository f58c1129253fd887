//! The driver of one connection of a visitor.

use std::{
    cell::RefCell,
    error::Error,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Request,
    body::{Body, Incoming},
    rt::Executor,
    server::conn::{http1, http2},
    service::{HttpService, service_fn},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    task::spawn_local,
    time::{Instant, Sleep, sleep, timeout},
};

use crate::{
    Services, Visitor,
    account::{Account, H1, H2, SWITCHED},
    gate::{Due, Gate, Progress},
    half::Half,
    proxy::Connection,
    upgrade::Replayed,
};

/// The first request, and each later head from its first byte, has to arrive within this time.
pub(crate) const HEAD: Duration = Duration::from_secs(10);
/// An HTTP/1 connection between two requests; nginx waits as long.
pub(crate) const IDLE_H1: Duration = Duration::from_secs(75);
/// An HTTP/2 connection without a request. Browsers keep one connection per host and reopen it at
/// the price of a handshake.
const IDLE_H2: Duration = Duration::from_secs(300);
/// After a refusal the visitor may still send. A connection that is closed with unread bytes is
/// reset, and the visitor would lose the answer.
const LINGER: Duration = Duration::from_secs(2);
const MOST_LINGERED: u64 = 256 * 1024;

/// hyper reads bodies in pieces that grow up to this size.
pub(crate) const READ_BUFFER: usize = 128 * 1024;

/// Streams of a visitor at a time; what RFC 9113 section 6.5.2 calls a minimum is 100.
const MOST_STREAMS: u32 = 128;
/// The window of a stream carries 20 Mbit/s at 100 ms, that of the connection 80 Mbit/s. Both bound
/// the memory that a visitor may fill.
const STREAM_WINDOW: u32 = 256 * 1024;
pub(crate) const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Both windows of a visitor that comes when memory is short: the smallest that RFC 9113 section
/// 6.9.2 knows for a connection.
const SMALL_WINDOW: u32 = 65_535;
/// Bytes of answers that wait per stream.
const SEND_BUFFER: usize = 128 * 1024;
const LONGEST_HEADER_LIST: u32 = 32 * 1024;
/// Streams that a visitor may reset before they are served (CVE-2023-44487), and streams that its
/// errors may make the server reset. More end the connection with ENHANCE_YOUR_CALM. The values are
/// the defaults of h2. h2 also bounds the frames of one head (CVE-2024-27316), and answers one ping
/// at a time.
const MOST_RESETS: usize = 20;
const MOST_ERRORS: usize = 1024;
/// A visitor that answers no ping is gone.
const PING: Duration = Duration::from_secs(60);
const PONG: Duration = Duration::from_secs(20);

/// Serves a visitor until its connection ends.
///
/// `account` is charged for all that the connection and its requests hold. A visitor, or a request,
/// for which it has too little is refused.
///
/// A visitor of HTTP/1 that ends its direction gets the answers to its requests; one that has left
/// is noticed by bytes of the answer that are sent ahead.
///
/// When `stop` resolves, the connection ends in order: requests in progress are answered, HTTP/2
/// gets GOAWAY. Dropping the future ends the connection, and requests in progress, at once.
///
/// A connection that broke within an answer is returned, and the caller resets it: a plain end could
/// be the end of the answer, as every answer without a length ends for a visitor of HTTP/1.0.
///
/// Each type of `io` is one more copy of an HTTP server in the binary.
pub async fn serve<T>(
    io: T,
    visitor: Visitor,
    services: Rc<dyn Services>,
    account: Rc<Account>,
    stop: impl Future<Output = ()>,
) -> Option<T>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    if !account.extend(H1) {
        account.count_refusal();
        return None;
    }
    let progress = Rc::new(Progress::new());
    let io = Half::new(io, Rc::clone(&progress));
    let mut gate = Gate::new(io, Rc::clone(&progress), &account, visitor.most_unsent);
    let mut stop = pin!(stop);
    let chosen = tokio::select! {
        biased;
        chosen = timeout(HEAD, gate.choose(visitor.protocol)) => chosen,
        () = &mut stop => return None,
    };
    let Ok(Ok(h2)) = chosen else {
        return None;
    };
    if h2 && !account.extend(H2 - H1) {
        account.count_refusal();
        return None;
    }
    let connection = Rc::new(Connection {
        visitor,
        services,
        progress,
        account,
        pool: Rc::default(),
        h2,
        switched: RefCell::new(None),
    });
    if h2 {
        serve_h2(gate, &connection, stop).await;
        None
    } else {
        serve_h1(gate, &connection, stop).await
    }
}

async fn serve_h1<T>(
    gate: Gate<Half<T>>,
    connection: &Rc<Connection>,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Option<T>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        .max_headers(h1::FIELDS)
        .max_buf_size(READ_BUFFER)
        .title_case_headers(true);
    let service = Rc::clone(connection);
    let service = service_fn(move |request: Request<Incoming>| Rc::clone(&service).handle(request));
    let served = builder.serve_connection(TokioIo::new(gate), service);
    let watch = Watch::new(&connection.progress, HEAD, IDLE_H1, stop);
    let (end, gate, read) = drive_h1(served, watch).await;
    let target = if end.is_ok() { connection.switched.take() } else { None };
    let Some(target) = target else {
        return end_h1(end, gate, &connection.progress).await.map(Half::into_inner);
    };
    let (io, held) = gate.into_parts();
    let first =
        if read.is_empty() { held.freeze() } else { [&read[..], &held[..]].concat().into() };
    connection.account.shorten(H1 - SWITCHED);
    target.carry(Replayed::new(first, io.into_inner())).await;
    None
}

/// Drives a connection of HTTP/1 to its end. Returns the connection, and the bytes of the visitor
/// that hyper has read beyond the last request.
pub(crate) async fn drive_h1<T, S, B>(
    mut served: http1::Connection<TokioIo<Gate<T>>, S>,
    mut watch: Watch<'_, impl Future<Output = ()>>,
) -> (hyper::Result<()>, Gate<T>, Bytes)
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let end = std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = Pin::new(&mut served).poll(cx) {
                return Poll::Ready(end);
            }
            match watch.poll(cx) {
                Poll::Pending => return Poll::Pending,
                // The gate refuses the head, and the next turn asks the gate.
                Poll::Ready(Event::SlowHead) => {}
                Poll::Ready(Event::End) => Pin::new(&mut served).graceful_shutdown(),
            }
        }
    })
    .await;
    let parts = served.into_parts();
    (end, parts.io.into_inner(), parts.read_buf)
}

/// Ends a connection of HTTP/1 that did not switch to another protocol. Returns a connection that
/// broke.
pub(crate) async fn end_h1<T: AsyncRead + AsyncWrite + Unpin>(
    end: hyper::Result<()>,
    gate: Gate<T>,
    progress: &Progress,
) -> Option<T> {
    let mid_message = gate.is_mid_message();
    let mut io = gate.into_parts().0;
    match end {
        Err(error) => {
            tracing::debug!(%error, "the connection of a visitor broke");
            // What hyper or the gate refuses was answered as well.
            if error.is_parse() || progress.broken().is_some() {
                let _ = io.shutdown().await;
                linger(io).await;
                return None;
            }
            return Some(io);
        }
        Ok(()) if mid_message => linger(io).await,
        Ok(()) => {}
    }
    None
}

/// Reads what a visitor still sends after hyper has ended the other direction.
async fn linger(io: impl AsyncRead + Unpin) {
    let mut rest = io.take(MOST_LINGERED);
    let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

async fn serve_h2<T>(
    gate: Gate<T>,
    connection: &Rc<Connection>,
    stop: Pin<&mut impl Future<Output = ()>>,
) where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (stream, all) = if connection.account.may_grow(CONNECTION_WINDOW.into()) {
        (STREAM_WINDOW, CONNECTION_WINDOW)
    } else {
        (SMALL_WINDOW, SMALL_WINDOW)
    };
    let mut builder = http2::Builder::new(Local);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(stream)
        .initial_connection_window_size(all)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(LONGEST_HEADER_LIST)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .max_local_error_reset_streams(MOST_ERRORS)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .enable_connect_protocol();
    let service = Rc::clone(connection);
    let service = service_fn(move |request: Request<Incoming>| Rc::clone(&service).handle(request));
    let mut served = builder.serve_connection(TokioIo::new(gate), service);
    let mut watch = Watch::new(&connection.progress, IDLE_H2, IDLE_H2, stop);
    let end = std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = Pin::new(&mut served).poll(cx) {
                return Poll::Ready(end);
            }
            match watch.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Event::SlowHead | Event::End) => {
                    Pin::new(&mut served).graceful_shutdown();
                }
            }
        }
    })
    .await;
    if let Err(error) = end {
        tracing::debug!(%error, "the connection of a visitor broke");
    }
}

/// Spawns the streams of HTTP/2 on the worker of their connection.
#[derive(Clone, Copy, Debug)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

/// The events that do not come from the visitor.
pub(crate) struct Watch<'c, S> {
    progress: &'c Progress,
    head: Duration,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    stop: Pin<&'c mut S>,
    ended: bool,
}

enum Event {
    /// A head is incomplete for too long.
    SlowHead,
    /// The connection has to end in order. The event comes once, and no other event after it.
    End,
}

impl<'c, S: Future<Output = ()>> Watch<'c, S> {
    pub(crate) fn new(
        progress: &'c Progress,
        head: Duration,
        idle: Duration,
        stop: Pin<&'c mut S>,
    ) -> Self {
        Self { progress, head, idle, timer: Box::pin(sleep(head)), stop, ended: false }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.ended {
            return Poll::Pending;
        }
        if self.stop.as_mut().poll(cx).is_ready() {
            self.ended = true;
            return Poll::Ready(Event::End);
        }
        loop {
            let due = self.progress.due(self.head, self.idle);
            // The timer is moved only where it would fire too late: a moved timer for each request
            // would cost more than a turn without effect now and then.
            if let Due::At(at) = due
                && at < self.timer.deadline()
            {
                self.timer.as_mut().reset(at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            match due {
                Due::At(at) if at > now => self.timer.as_mut().reset(at),
                Due::Never => self.timer.as_mut().reset(now + self.idle),
                Due::At(_) if self.progress.time_out() => {
                    self.timer.as_mut().reset(now + self.idle);
                    return Poll::Ready(Event::SlowHead);
                }
                Due::At(_) => {
                    self.ended = true;
                    return Poll::Ready(Event::End);
                }
            }
        }
    }
}
