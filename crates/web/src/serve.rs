//! The driver of one connection of a visitor.

use std::{
    cell::RefCell,
    error::Error,
    pin::{Pin, pin},
    rc::Rc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Request, Version,
    body::{Body, Incoming},
    server::conn::http1,
    service::{HttpService, service_fn},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use crate::{
    Services, Visitor,
    account::{Account, H1, H2, SWITCHED},
    body::VisitorBody,
    gate::{Gate, Progress},
    half::Half,
    http2,
    interim::Sink,
    multiplex::Connections,
    proxy::{Connection, Unanswered},
    upgrade::Replayed,
    watch::{Event, HEAD, Watch},
};

/// The visitor may still send after a response, and closing a connection with unread bytes causes a
/// reset, by which the visitor would lose the response (RFC 9112 section 9.6). So its bytes are
/// read until it closes the connection or sends nothing for `LINGER`, and for at most `LINGER_ALL`.
/// So visitors that send a whole body before they read get their response. The times are those of
/// nginx.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_ALL: Duration = Duration::from_secs(30);
/// The size of one read of these bytes.
const LINGER_PIECE: usize = 4 * 1024;

/// The maximum size of the pieces in which hyper reads bodies, in bytes.
pub(crate) const READ_BUFFER: usize = 128 * 1024;

/// Serves a visitor until its connection ends.
///
/// `account` is charged for the memory of the connection and its requests. A visitor or a request
/// that it cannot afford is refused.
///
/// An HTTP/1 visitor that half-closes gets the responses to its requests; one that has left is
/// detected by bytes of the response that are sent ahead.
///
/// When `stop` resolves, the connection shuts down gracefully: requests in progress complete,
/// HTTP/2 gets GOAWAY. Dropping the future ends the connection and the requests in progress at
/// once.
///
/// A connection that broke within a response is returned, and the caller resets it: a normal close
/// could be mistaken for the end of the response, as for a response without a length to an HTTP/1.0
/// visitor.
///
/// Each type of `io` adds another copy of an HTTP server to the binary.
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
        shared: Connections::default(),
        h2,
        switched: RefCell::new(None),
    });
    if h2 {
        http2::serve(gate, &connection, stop).await;
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
        .preserve_header_case(true)
        .title_case_headers(true);
    let service = Rc::clone(connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let sink = match request.version() {
            Version::HTTP_11 => Sink::Gate(Rc::clone(&service.progress.leaving)),
            _ => Sink::Nowhere,
        };
        Rc::clone(&service).handle(request.map(VisitorBody::Incoming), sink)
    });
    let served = builder.serve_connection(TokioIo::new(gate), service);
    let idle = connection.idle();
    let watch = Watch::new(&connection.progress, HEAD, idle, stop);
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

/// Drives an HTTP/1 connection to its end. Returns the connection, and the bytes of the visitor
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
                // The gate refuses the header in the next poll.
                Poll::Ready(Event::SlowHead) => {}
                Poll::Ready(Event::End) => Pin::new(&mut served).graceful_shutdown(),
            }
        }
    })
    .await;
    let parts = served.into_parts();
    (end, parts.io.into_inner(), parts.read_buf)
}

/// Ends an HTTP/1 connection that did not switch to another protocol. Returns a connection that
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
            let is_unanswered = error.source().is_some_and(|source| source.is::<Unanswered>());
            // Requests refused by hyper or the gate have a response as well; without a response the
            // connection ends as if the target had closed it.
            if is_unanswered || error.is_parse() || progress.broken().is_some() {
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

/// Discards data that a visitor sends after hyper has ended the other direction.
async fn linger(mut io: impl AsyncRead + Unpin) {
    let mut piece = vec![0; LINGER_PIECE];
    let discard = async { while let Ok(Ok(1..)) = timeout(LINGER, io.read(&mut piece)).await {} };
    let _ = timeout(LINGER_ALL, discard).await;
}
