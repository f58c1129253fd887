//! A stream: one session, from the side of the user.

mod connect;
mod io;

use std::fmt;
use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use kcp_go::session;
use kcp_go::wire::Conversation;
use tokio::time::Instant;

use crate::driver::now;
use crate::shared::{PIECE, Phase, Shared, State};
use crate::wait::Waiters;

/// A reliable stream of bytes, or of messages, to one peer.
///
/// It is read and written by [`AsyncRead`](tokio::io::AsyncRead) and
/// [`AsyncWrite`](tokio::io::AsyncWrite), which copy, or by the methods below, which do not. They
/// take `&self`, so that one task reads while another one writes.
///
/// KCP has no end of a stream: a reader waits until there are bytes, a deadline passes
/// ([`set_read_deadline`](Self::set_read_deadline)), or the session fails. Peers say by themselves
/// when they are done. A peer is found dead only while it owes an acknowledgement.
///
/// A stream that is dropped is flushed in the background, for
/// [`Config::linger`](crate::Config::linger) at most. Who wants to know whether all has arrived
/// calls `shutdown` before.
///
/// | error | why |
/// |---|---|
/// | `TimedOut` | a deadline; the peer is dead; nothing came for [`Limits::idle`](crate::Limits::idle); `shutdown` took longer than the linger |
/// | `ConnectionReset` | the peer has begun a new conversation |
/// | `ConnectionAborted` | the driver was dropped |
/// | `BrokenPipe` | a write after `shutdown` |
/// | `AddrInUse` | the socket has a session with this peer |
/// | others | the socket failed |
pub struct Stream {
    shared: Arc<Shared>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { peer, conversation, .. } = &*self.shared;
        f.debug_struct("Stream").field("peer", peer).field("conversation", conversation).finish()
    }
}

impl Stream {
    pub(crate) const fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The address of the peer.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// The number of the conversation.
    #[must_use]
    pub fn conversation(&self) -> Conversation {
        self.shared.conversation
    }

    /// What the session has counted so far.
    #[must_use]
    pub fn counters(&self) -> session::Counters {
        self.shared.lock().session.counters()
    }

    /// How often the socket refused datagrams of this stream for the moment
    /// ([`is_transient`](crate::is_transient)).
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.lock().refused
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.shared.lock().session.round_trip()
    }

    /// Reads fail with `TimedOut` from this time on where nothing has arrived; `None`: never.
    pub fn set_read_deadline(&self, deadline: Option<Instant>) {
        self.shared.with(|state| {
            state.read_deadline = deadline.map(Instant::into_std);
            ((), true)
        });
    }

    /// Writes fail with `TimedOut` from this time on where there is no room; `None`: never.
    pub fn set_write_deadline(&self, deadline: Option<Instant>) {
        self.shared.with(|state| {
            state.write_deadline = deadline.map(Instant::into_std);
            ((), true)
        });
    }

    /// The next bytes of the stream, at most `most`, without a copy.
    ///
    /// # Errors
    ///
    /// See [`Stream`].
    pub async fn read_bytes(&self, most: usize) -> Result<Bytes> {
        poll_fn(|cx| self.poll_read_bytes(cx, most)).await
    }

    /// The next message, whole: for sessions whose
    /// [`engine.stream`](kcp_go::engine::Config::stream) is `false`.
    ///
    /// # Errors
    ///
    /// See [`Stream`].
    pub async fn recv(&self) -> Result<Bytes> {
        self.read_bytes(usize::MAX).await
    }

    /// As [`read_bytes`](Self::read_bytes).
    ///
    /// # Errors
    ///
    /// See [`Stream`].
    pub fn poll_read_bytes(&self, cx: &mut Context<'_>, most: usize) -> Poll<Result<Bytes>> {
        if most == 0 {
            return Poll::Ready(Ok(Bytes::new()));
        }
        self.shared.with(|state| match state.next(most) {
            Some(bytes) => (Poll::Ready(Ok(bytes)), state.session.opens_window()),
            None => {
                let over = Self::read_fails(state);
                if over.is_none() {
                    state.readers.add(cx);
                }
                (over.map_or(Poll::Pending, |error| Poll::Ready(Err(error))), false)
            }
        })
    }

    /// Writes all of `bytes` without a copy: the memory is kept until the peer has acknowledged it.
    ///
    /// # Errors
    ///
    /// See [`Stream`].
    pub async fn write_bytes(&self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            poll_fn(|cx| self.poll_write_bytes(cx, &mut bytes)).await?;
        }
        Ok(())
    }

    /// Writes what there is room for from the front of `bytes`, and returns how much that was.
    ///
    /// # Errors
    ///
    /// See [`Stream`].
    pub fn poll_write_bytes(&self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<Result<usize>> {
        self.write_with(cx, |state, _| state.session.write(now(), bytes))
    }

    /// Sends a message, which arrives whole where the session is one of messages: for sessions
    /// whose [`engine.stream`](kcp_go::engine::Config::stream) is `false`.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: it is empty, or longer than 255 segments or the window. See [`Stream`].
    pub async fn send(&self, message: Bytes) -> Result<()> {
        poll_fn(|cx| self.poll_send(cx, &message)).await
    }

    fn poll_send(&self, cx: &Context<'_>, message: &Bytes) -> Poll<Result<()>> {
        self.shared.with(|state| {
            if let Some(error) = Self::write_fails(state) {
                return (Poll::Ready(Err(error)), false);
            }
            if state.session.send(now(), message.clone()) {
                return (Poll::Ready(Ok(())), true);
            }
            // What does not fit now will never fit.
            if message.is_empty() || state.session.is_flushed() {
                let text = "a message is empty, or longer than 255 segments or the window";
                return (Poll::Ready(Err(Error::new(ErrorKind::InvalidInput, text))), false);
            }
            (Self::wait(state, cx, |state| &mut state.writers), false)
        })
    }

    /// Sends a datagram beside the stream. It leaves once, in front of what was written, and may
    /// get lost. Peers older than kcp-go v5.6.60 misread it.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: it does not fit into a datagram. See [`Stream`].
    pub fn send_oob(&self, payload: Bytes) -> Result<()> {
        self.shared.with(|state| {
            if let Some(error) = Self::write_fails(state) {
                return (Err(error), false);
            }
            let sent = state.session.send_oob(payload);
            (sent.map_err(|error| Error::new(ErrorKind::InvalidInput, error)), true)
        })
    }

    /// The next datagram that came beside the stream. The oldest are dropped where nobody reads.
    ///
    /// # Errors
    ///
    /// See [`Stream`]; the read deadline counts here, too.
    pub async fn recv_oob(&self) -> Result<Bytes> {
        poll_fn(|cx| {
            self.shared.with(|state| {
                if let Some(payload) = state.next_oob() {
                    return (Poll::Ready(Ok(payload)), false);
                }
                let over = Self::read_fails(state);
                if over.is_none() {
                    state.oob_readers.add(cx);
                }
                (over.map_or(Poll::Pending, |error| Poll::Ready(Err(error))), false)
            })
        })
        .await
    }

    /// Waits until the peer has acknowledged all that was written. More may be written afterwards.
    ///
    /// # Errors
    ///
    /// See [`Stream`]; the write deadline counts here, too.
    pub async fn flushed(&self) -> Result<()> {
        poll_fn(|cx| {
            self.shared.with(|state| {
                if state.session.is_flushed() {
                    return (Poll::Ready(Ok(())), false);
                }
                let result = match &state.end {
                    Some(end) => Poll::Ready(Err(end.error())),
                    None => Self::wait(state, cx, |state| &mut state.flushers),
                };
                (result, false)
            })
        })
        .await
    }

    /// Writes by `write`, which gets the room in bytes and returns how many it has taken.
    fn write_with(
        &self,
        cx: &Context<'_>,
        write: impl FnOnce(&mut State, usize) -> usize,
    ) -> Poll<Result<usize>> {
        self.shared.with(|state| {
            if let Some(error) = Self::write_fails(state) {
                return (Poll::Ready(Err(error)), false);
            }
            let room = state.session.room();
            if room == 0 {
                let waits = Self::wait(state, cx, |state| &mut state.writers);
                return (waits.map_ok(|()| 0), false);
            }
            (Poll::Ready(Ok(write(state, room))), true)
        })
    }

    /// Waits among `waiters`, until the deadline for writing.
    fn wait(
        state: &mut State,
        cx: &Context<'_>,
        waiters: impl FnOnce(&mut State) -> &mut Waiters,
    ) -> Poll<Result<()>> {
        if state.write_deadline.is_some_and(|at| at <= now()) {
            return Poll::Ready(Err(timed_out("the deadline for writing has passed")));
        }
        waiters(state).add(cx);
        Poll::Pending
    }

    /// Why nothing can be written.
    fn write_fails(state: &State) -> Option<Error> {
        match (&state.end, state.phase) {
            (Some(end), _) => Some(end.error()),
            (None, Phase::Open) => None,
            (None, Phase::Shut | Phase::Left) => {
                Some(Error::new(ErrorKind::BrokenPipe, "the stream was shut down for writing"))
            }
        }
    }

    /// Why there is nothing to wait for, where nothing has arrived.
    fn read_fails(state: &State) -> Option<Error> {
        if let Some(end) = &state.end {
            return Some(end.error());
        }
        let is_past = state.read_deadline.is_some_and(|at| at <= now());
        is_past.then(|| timed_out("the deadline for reading has passed"))
    }

    fn poll_shutdown(&self, cx: &Context<'_>) -> Poll<Result<()>> {
        let linger = self.shared.linger;
        self.shared.with(|state| {
            if state.phase == Phase::Open {
                state.phase = Phase::Shut;
            }
            let now = now();
            // The driver has to know the time.
            let touches = state.linger.is_none();
            let until = *state.linger.get_or_insert(now + linger);
            let result = if state.session.is_flushed() {
                Poll::Ready(Ok(()))
            } else if let Some(end) = &state.end {
                Poll::Ready(Err(end.error()))
            } else if until <= now {
                Poll::Ready(Err(timed_out("the peer has not acknowledged all that was written")))
            } else {
                state.flushers.add(cx);
                Poll::Pending
            };
            (result, touches)
        })
    }

    /// Reads for a buffer of `most` bytes.
    fn poll_read_some(&self, cx: &mut Context<'_>, most: usize) -> Poll<Result<Bytes>> {
        let read = self.poll_read_bytes(cx, most.min(PIECE));
        read.map_ok(|mut bytes| {
            // A message may be longer than the buffer.
            if bytes.len() > most {
                let rest = bytes.split_off(most);
                self.shared.lock().unread = rest;
            }
            bytes
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.leave(now());
    }
}

fn timed_out(text: &'static str) -> Error {
    Error::new(ErrorKind::TimedOut, text)
}
