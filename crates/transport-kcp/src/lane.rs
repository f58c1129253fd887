//! The lane of a carrier: the reliable stream of its session. It owns the connection.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use files::peers::Noted;
use transport::{Death, Lane, Side};

use crate::driver::now;
use crate::error::{ABANDONED, CLEAN};
use crate::shared::Shared;
use crate::state::{Pipe, State};
use crate::wire::PROOF;

/// The first byte of each direction: the version of the following bytes. The server's byte also
/// means that it accepted the client's certificate; it is followed by the proof of a later Reset
/// (`wire.rs`).
const MARK: u8 = 1;

/// Bytes of the preamble of each side.
const fn preamble(side: Side) -> usize {
    match side {
        Side::Client => 1,
        Side::Server => 1 + PROOF,
    }
}

/// The memory of an idle connection, in bytes: keys, queues, tables.
const MEMORY: usize = 12 << 10;

/// Closes the connection when it is dropped.
pub(crate) struct Hold {
    pub(crate) shared: Arc<Shared>,
    code: u16,
    /// The record of the connection, on a server.
    pub(crate) noted: Option<Noted>,
    /// Buffer memory of a separate socket, in bytes.
    memory: usize,
}

impl Hold {
    pub(crate) const fn new(shared: Arc<Shared>, memory: usize) -> Self {
        Self { shared, code: ABANDONED, noted: None, memory }
    }

    /// Reads at most `most` bytes from a pipe. An empty result is the end.
    pub(crate) fn poll_bytes(
        &self,
        cx: &mut Context<'_>,
        pipe: Pipe,
        most: usize,
    ) -> Poll<io::Result<Bytes>> {
        let mut state = self.shared.lock();
        let session = state.pipe(pipe);
        if let Some(session) = session {
            if let Some(bytes) = session.read(most) {
                self.shared.touch(state);
                return Poll::Ready(Ok(bytes));
            }
            if session.is_finished() {
                return Poll::Ready(Ok(Bytes::new()));
            }
        }
        if let Some(end) = state.end() {
            return Poll::Ready(Err(end.error()));
        }
        state.waiting.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Writes bytes to a pipe, at least one.
    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        pipe: Pipe,
        bytes: &mut Bytes,
    ) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        if let Some(end) = state.end() {
            return Poll::Ready(Err(end.error()));
        }
        let taken = state.pipe(pipe).map_or(0, |session| session.write(now(), bytes));
        if taken > 0 {
            self.shared.touch(state);
            return Poll::Ready(Ok(()));
        }
        state.waiting.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.close(now(), self.code);
        self.shared.touch(state);
    }
}

/// The first bytes of this side's direction. `reset`: the proof of a Reset, on a server.
pub(crate) fn mark(reset: Option<[u8; PROOF]>) -> Bytes {
    let mut bytes = vec![MARK];
    bytes.extend(reset.into_iter().flatten());
    bytes.into()
}

/// The lane, the same on both ends.
pub(crate) struct KcpLane {
    hold: Hold,
    side: Side,
    /// The received part of the peer's preamble.
    preamble: Vec<u8>,
    /// The states of our direction: its end was written, and the peer has acknowledged all bytes.
    finished: bool,
    closed: bool,
    /// Whether the peer's direction has ended.
    ended: bool,
    death: Death,
}

impl KcpLane {
    pub(crate) fn new(hold: Hold, side: Side) -> Self {
        Self {
            hold,
            side,
            preamble: Vec::new(),
            finished: false,
            closed: false,
            ended: false,
            death: Death::default(),
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.hold.shared)
    }

    /// The server's data in the bootstrap session after the handshake.
    pub(crate) fn poll_alert(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        self.hold.poll_bytes(cx, Pipe::Bootstrap, 4 << 10)
    }

    /// Reads the peer's preamble.
    pub(crate) fn poll_mark(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let whole = match self.side {
            Side::Client => preamble(Side::Server),
            Side::Server => preamble(Side::Client),
        };
        while self.preamble.len() < whole {
            let most = whole - self.preamble.len();
            let bytes = match ready!(self.hold.poll_bytes(cx, Pipe::Lane, most)) {
                Ok(bytes) => bytes,
                Err(error) => return self.death.by(error),
            };
            if bytes.is_empty() {
                return self.death.by(io::ErrorKind::UnexpectedEof.into());
            }
            self.preamble.extend_from_slice(&bytes);
            if self.preamble.first() != Some(&MARK) {
                return self.death.by(foreign());
            }
            if let Some((_, reset)) = self.preamble.split_first()
                && let Ok(reset) = reset.try_into()
            {
                self.hold.shared.lock().reset = Some(reset);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// After both directions have ended, closing loses no byte.
    fn note_end(&mut self) {
        if self.closed && self.ended {
            self.hold.code = CLEAN;
        }
    }
}

/// The error when a byte other than the mark arrived first.
fn foreign() -> io::Error {
    let text = "the peer begins its kcp:// stream in another way; is it of another version?";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The number of bytes that a lane accepts now.
fn room(state: &mut State) -> usize {
    let limit = state.send_limit;
    state.session().map_or(0, |session| limit.saturating_sub(session.unsent()).min(session.room()))
}

impl Lane for KcpLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.death.check()?;
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_mark(cx))?;
        let before = buf.len();
        let mut state = self.hold.shared.lock();
        let mut is_finished = false;
        if let Some(session) = state.session() {
            let mut spare = buf.capacity() - buf.len();
            while spare > 0
                && let Some(bytes) = session.read(spare)
            {
                buf.extend_from_slice(&bytes);
                spare -= bytes.len();
            }
            is_finished = session.is_finished();
        }
        let read = buf.len() - before;
        if read > 0 {
            // The peer must be told of the room.
            self.hold.shared.touch(state);
            return Poll::Ready(Ok(read));
        }
        if is_finished {
            drop(state);
            self.ended = true;
            self.note_end();
            return Poll::Ready(Ok(0));
        }
        if let Some(end) = state.end().cloned() {
            drop(state);
            return self.death.by(end.error());
        }
        state.waiting.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let mut state = self.hold.shared.lock();
        if let Some(end) = state.end().cloned() {
            drop(state);
            return self.death.by(end.error());
        }
        if self.finished {
            drop(state);
            return self
                .death
                .by(io::Error::new(io::ErrorKind::NotConnected, "the lane has ended"));
        }
        let (mut room, mut taken) = (room(&mut state), 0);
        let mut is_blocked = false;
        while let Some(front) = frames.front_mut() {
            if front.is_empty() {
                frames.pop_front();
                continue;
            }
            if room == 0 {
                is_blocked = true;
                break;
            }
            let Some(session) = state.session() else { break };
            let mut part = front.slice(..front.len().min(room));
            let written = session.write(now(), &mut part);
            front.advance(written);
            taken += written;
            room = if written == 0 { 0 } else { room - written };
        }
        if taken > 0 {
            self.hold.shared.touch(state);
            return Poll::Ready(Ok(taken));
        }
        if is_blocked {
            state.waiting.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(0))
    }

    /// Nothing to do: the driver sends packets by itself, as congestion control allows.
    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.death.check())
    }

    /// Completes when the peer has acknowledged all bytes, so that dropping the connection loses
    /// none of them.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        if self.closed {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.hold.shared.lock();
        let mut is_flushed = false;
        if let Some(session) = state.session() {
            if !self.finished {
                session.finish(now());
            }
            is_flushed = session.is_flushed();
        }
        let is_new = !self.finished;
        self.finished = true;
        // The peer may have closed because it had received our end, and its acknowledgement was
        // lost.
        let end = state.end().cloned().filter(|end| !end.is_clean());
        let is_over = state.end().is_some();
        if !is_flushed && !is_over {
            state.waiting.writer = Some(cx.waker().clone());
        }
        if is_new {
            self.hold.shared.touch(state);
        } else {
            drop(state);
        }
        if !is_flushed {
            match end {
                Some(end) => return self.death.by(end.error()),
                None if !is_over => return Poll::Pending,
                None => {}
            }
        }
        self.closed = true;
        self.note_end();
        Poll::Ready(Ok(()))
    }

    fn authenticated(&mut self) {
        let mut state = self.hold.shared.lock();
        state.authenticated();
        let peer = state.remote().peer;
        self.hold.shared.touch(state);
        if let Some(noted) = &mut self.hold.noted {
            noted.at(peer);
            noted.authenticated();
        }
    }

    /// The link calls it about once per change of its rate: often enough to notice a new address.
    fn set_send_limit(&mut self, bytes: usize) {
        if let Some(noted) = &mut self.hold.noted {
            noted.at(self.hold.shared.lock().remote().peer);
        }
        self.hold.shared.lock().send_limit = bytes.max(1);
    }

    fn held(&self) -> usize {
        let buffers = self.hold.shared.lock().session().map_or(0, |session| session.held());
        MEMORY + self.hold.memory + buffers
    }

    /// Nothing to do: the state works from any thread, and the runtime that made the connection
    /// drives it.
    fn detach(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for KcpLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpLane")
            .field("side", &self.side)
            .field("closed", &self.closed)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
