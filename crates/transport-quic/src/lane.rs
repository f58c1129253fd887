//! The first lane, which is one bidirectional stream. It owns the connection.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use quinn::{Connection, ReadError, RecvStream, SendStream, StoppedError, VarInt, WriteError};
use transport::{Death, Lane};

use crate::datagrams::Stranger;
use crate::error::{ABANDONED, CLEAN, is_clean, of_connection};
use crate::pending::PendingFuture;
use crate::pipe;

/// The first byte of each direction, which makes the stream known to the peer. It is the version of
/// the mapping of lanes to streams. The server's byte also means that it accepted the client's
/// certificate.
pub(crate) const MARK: u8 = 1;

/// The priority of the first lane. Its bytes leave before the bytes of all other lanes; `lanes.rs`
/// has their priorities.
pub(crate) const PRIORITY: i32 = 3;

/// The memory of an idle connection: keys, tables, the TLS session, the task. (Measured with 64
/// additional connections on a server with one worker: 97 KiB each.)
const MEMORY: usize = 96 << 10;

/// Closes the connection when it is dropped.
pub(crate) struct Hold {
    pub(crate) connection: Connection,
    code: VarInt,
    memory: usize,
}

impl Hold {
    pub(crate) const fn new(connection: Connection) -> Self {
        Self { connection, code: ABANDONED, memory: MEMORY }
    }

    /// Makes the hold of a connection with an endpoint of its own, whose receive buffers take
    /// `buffers` bytes.
    pub(crate) const fn alone(connection: Connection, buffers: usize) -> Self {
        Self { connection, code: ABANDONED, memory: MEMORY + buffers }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.connection.close(self.code, b"");
    }
}

/// The first lane, the same on both ends.
pub(crate) struct QuicLane {
    hold: Hold,
    send: SendStream,
    recv: RecvStream,
    /// Whether the peer's [`MARK`] was read.
    marked: bool,
    /// Drops the datagrams of a client until it has logged in.
    stranger: Option<Stranger>,
    acknowledged: PendingFuture<Result<Option<VarInt>, StoppedError>>,
    /// The state of our direction: its end was written, and the peer has acknowledged all bytes.
    finished: bool,
    closed: bool,
    /// Whether the peer's direction has ended.
    ended: bool,
    death: Death,
}

impl QuicLane {
    pub(crate) fn new(
        hold: Hold,
        (send, recv): (SendStream, RecvStream),
        marked: bool,
        stranger: Option<Stranger>,
    ) -> Self {
        Self {
            hold,
            send,
            recv,
            marked,
            stranger,
            acknowledged: PendingFuture::default(),
            finished: false,
            closed: false,
            ended: false,
            death: Death::default(),
        }
    }

    /// After both directions have ended, closing loses no byte.
    fn note_end(&mut self) {
        if self.closed && self.ended {
            self.hold.code = CLEAN;
        }
    }

    /// Reads the peer's [`MARK`] unless it was already read.
    fn poll_mark(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.marked {
            return Poll::Ready(Ok(()));
        }
        let mut first = [0];
        match ready!(self.recv.poll_read(cx, &mut first)) {
            Ok(n) if is_mark(&first[..n]) => {
                self.marked = true;
                Poll::Ready(Ok(()))
            }
            Ok(_) => self.death.by(foreign()),
            Err(error) => self.death.by(of_read(&error)),
        }
    }
}

/// Whether `first` is the mark.
pub(crate) fn is_mark(first: &[u8]) -> bool {
    first == [MARK]
}

/// The error when a byte other than the mark arrived first.
pub(crate) fn foreign() -> io::Error {
    let text = "the peer lays lanes on QUIC streams in another way; is it of another version?";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Lane for QuicLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.death.check()?;
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        if let Some(stranger) = &mut self.stranger {
            stranger.poll_drop(cx);
        }
        ready!(self.poll_mark(cx))?;
        match ready!(pipe::read(&mut self.recv, cx, buf)) {
            Ok(n) => {
                self.ended = n == 0;
                self.note_end();
                Poll::Ready(Ok(n))
            }
            Err(error) => self.death.by(of_read(&error)),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        match ready!(pipe::write(&mut self.send, cx, frames)) {
            Ok(n) => Poll::Ready(Ok(n)),
            Err(WriteError::ConnectionLost(error)) => self.death.by(of_connection(&error)),
            Err(WriteError::Stopped(_) | WriteError::ZeroRttRejected) => self.death.by(stopped()),
            Err(WriteError::ClosedStream) => self.death.by(finished()),
        }
    }

    /// Nothing to do: quinn sends packets by itself, as congestion control allows.
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
        if !self.finished {
            // The call fails on a stream that the peer stopped, and the wait below returns that
            // error.
            let _ = self.send.finish();
            self.finished = true;
        }
        let send = &self.send;
        match ready!(self.acknowledged.poll(cx, || send.stopped())) {
            Ok(None) => {}
            // The peer closed because it had received our end, and its acknowledgement was lost.
            Err(StoppedError::ConnectionLost(error)) if is_clean(&error) => {}
            Err(StoppedError::ConnectionLost(error)) => {
                return self.death.by(of_connection(&error));
            }
            Ok(Some(_)) | Err(StoppedError::ZeroRttRejected) => return self.death.by(stopped()),
        }
        self.closed = true;
        self.note_end();
        Poll::Ready(Ok(()))
    }

    fn authenticated(&mut self) {
        self.stranger = None;
    }

    fn held(&self) -> usize {
        self.hold.memory
    }

    /// Nothing to do: the handles work from any thread, and the runtime that made the connection
    /// drives it.
    fn detach(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for QuicLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicLane")
            .field("connection", &self.hold.connection.stable_id())
            .field("closed", &self.closed)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

fn of_read(error: &ReadError) -> io::Error {
    match error {
        ReadError::ConnectionLost(error) => of_connection(error),
        ReadError::Reset(_)
        | ReadError::ClosedStream
        | ReadError::IllegalOrderedRead
        | ReadError::ZeroRttRejected => {
            io::Error::new(io::ErrorKind::ConnectionReset, "the peer gave up its first lane")
        }
    }
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the peer reads its first lane no more")
}

fn finished() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the lane has ended")
}
