//! HTTP/2 visitors (RFC 9113), served by h2 directly: hyper's server has neither a window per
//! stream nor interim responses.
//!
//! * `inflow` holds the received data by stream, and `window` controls how much may arrive.
//! * `stream` carries one request and its response, whose pieces are each a `chunk`.
//! * `tunnel` is a stream that has switched to another protocol.
//! * `pings` detects a dead connection, and measures the round trip.
//! * `calm` limits the rate of cancelled requests.

mod calm;
mod chunk;
mod inflow;
mod pings;
mod stream;
mod tunnel;
mod window;

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use h2::{
    Reason,
    server::{self, Handshake},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::spawn_local,
};

pub(crate) use inflow::{Inflow, Upload};
pub(crate) use tunnel::Tunnel;

use crate::{
    gate::Gate,
    proxy::Connection,
    watch::{Event, IDLE_H2, Watch},
};
use calm::Verdict;
use chunk::Chunk;
use inflow::LARGE;
use pings::Pings;

/// The maximum number of concurrent streams; RFC 9113 section 6.5.2 recommends at least 100.
const MOST_STREAMS: u32 = 128;
/// The maximum number of queued response bytes per stream.
const SEND_BUFFER: usize = 128 * 1024;
/// The maximum size of the request fields, each counted as its name, value and 32 bytes (RFC 9113
/// section 6.5.2). A browser keeps up to 180 cookies for a site, and sends a field for each.
const LONGEST_HEADER_LIST: u32 = 48 * 1024;
/// The maximum number of streams that a visitor may reset before they are accepted. h2 accepts none
/// before it has parsed all read data, and a read may hold 700 pairs of the shortest HEADERS and
/// RST_STREAM. A turn ends after 128 headers ([`inflow`]), so a visitor does not reach this number.
/// The effective bound is [`calm`]. h2 has another bound, for streams that it resets because of
/// errors of the visitor, over the lifetime of a connection: it is off, because a connection that
/// serves for days would reach it, and `calm` counts these streams as well. h2 also bounds the
/// frames of one header block (CVE-2024-27316), and acknowledges one PING at a time.
const MOST_RESETS: usize = 4096;

/// Serves a visitor until its connection ends.
pub(crate) async fn serve<T>(
    mut gate: Gate<T>,
    connection: &Rc<Connection>,
    stop: Pin<&mut impl Future<Output = ()>>,
) where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let inflow = Inflow::new(&connection.account, MOST_STREAMS);
    gate.frames(&inflow);
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(LARGE)
        .initial_connection_window_size(LARGE)
        .max_concurrent_streams(inflow.most_streams())
        .max_header_list_size(LONGEST_HEADER_LIST)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .max_local_error_reset_streams(None)
        .enable_connect_protocol();
    let mut driver = Driver {
        state: State::Greeting(builder.handshake(gate)),
        connection: Rc::clone(connection),
        inflow,
        ends: false,
        is_shut: false,
    };
    let idle = connection.idle().max(IDLE_H2);
    let mut watch = Watch::new(&connection.progress, idle, idle, stop);
    let end = std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = driver.poll(cx) {
                return Poll::Ready(end);
            }
            match watch.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Event::SlowHead | Event::End) => driver.end(),
            }
        }
    })
    .await;
    if let Err(error) = end {
        tracing::debug!(%error, "the connection of a visitor broke");
    }
}

/// The connection of a visitor.
struct Driver<T> {
    state: State<T>,
    connection: Rc<Connection>,
    inflow: Rc<Inflow>,
    /// Whether the connection shuts down gracefully.
    ends: bool,
    /// Whether the connection is closed at once.
    is_shut: bool,
}

enum State<T> {
    Greeting(Handshake<Gate<T>, Chunk>),
    Open(server::Connection<Gate<T>, Chunk>, Option<Pings>),
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    /// Shuts the connection down gracefully: sends GOAWAY, and completes the requests in progress
    /// (RFC 9113 section 6.8).
    fn end(&mut self) {
        self.ends = true;
        if let State::Open(h2, _) = &mut self.state {
            h2.graceful_shutdown();
        }
    }

    /// Reads, serves and writes as much as possible.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        self.inflow.begin_turn(cx);
        if let State::Greeting(handshake) = &mut self.state {
            self.inflow.end_turn();
            let mut h2 = ready!(Pin::new(handshake).poll(cx))?;
            if self.ends {
                h2.graceful_shutdown();
            }
            let pings = h2.ping_pong().map(|pings| Pings::new(pings, &self.inflow));
            self.state = State::Open(h2, pings);
        }
        let State::Open(h2, pings) = &mut self.state else { return Poll::Pending };
        loop {
            let accepted = h2.poll_accept(cx);
            if let Poll::Ready(Some(Ok((request, respond)))) = accepted {
                let connection = Rc::clone(&self.connection);
                spawn_local(stream::serve(connection, &self.inflow, request, respond));
                continue;
            }
            // Deliver the data of this turn, also for the streams that it has opened.
            self.inflow.deliver();
            let is_gone = pings.as_mut().is_some_and(|pings| pings.poll(cx).is_ready());
            let verdict = self.inflow.calm.verdict();
            if verdict != Verdict::Fine && !self.ends {
                tracing::debug!("a visitor cancels too many requests");
                self.ends = true;
                h2.graceful_shutdown();
                continue;
            }
            if self.is_shut {
                // GOAWAY for a dead visitor may be queued behind data that it does not read.
                if is_gone && accepted.is_pending() {
                    return Poll::Ready(Ok(()));
                }
            } else if is_gone || self.inflow.is_violated() || verdict == Verdict::End {
                self.is_shut = true;
                let reason = if is_gone {
                    Reason::NO_ERROR
                } else if verdict == Verdict::End {
                    Reason::ENHANCE_YOUR_CALM
                } else {
                    Reason::FLOW_CONTROL_ERROR
                };
                h2.abrupt_shutdown(reason);
                continue;
            }
            // Flush the frames that h2 has written, all together.
            if accepted.is_pending() && self.inflow.end_turn() {
                continue;
            }
            return accepted.map(|end| end.map_or(Ok(()), |end| end.map(|_| ())));
        }
    }
}

/// Readers of bodies get an error, because no more bytes will arrive.
impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        self.inflow.end();
    }
}
