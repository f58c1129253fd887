//! Lanes of single streams. Each lane is a unidirectional stream of quinn, so a lost packet delays
//! only its own lane.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use proto::Priority;
use quinn::{Connection, ConnectionError, ReadError, VarInt, WriteError};
use transport::{Death, Lanes, RecvLane, SendLane};

use crate::error::of_connection;
use crate::pending::PendingFuture;
use crate::pipe;
use crate::settings::{LANES, LANES_MOST};
use files::peers::Noted;

/// The code of every RESET_STREAM and STOP_SENDING. The frames of `proto` carry the reason.
const GIVEN_UP: VarInt = VarInt::from_u32(0);

const fn priority(class: Priority) -> i32 {
    match class {
        Priority::Interactive => 2,
        Priority::Normal => 1,
        Priority::Bulk => 0,
    }
}

/// The state that the lanes of a connection share.
#[derive(Debug, Default)]
struct Shared {
    /// Set when [`QuicLanes`] is dropped.
    gone: AtomicBool,
}

impl Shared {
    fn check(&self) -> io::Result<()> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the lanes are closed"));
        }
        Ok(())
    }
}

/// The lanes of a carrier, the same on both ends.
pub(crate) struct QuicLanes {
    connection: Connection,
    accepting: PendingFuture<Result<quinn::RecvStream, ConnectionError>>,
    shared: Arc<Shared>,
    /// The number of lanes that the peer may have open.
    allowed: u32,
    /// The record of this connection, on a server that records its connections.
    noted: Option<Noted>,
}

impl QuicLanes {
    pub(crate) fn new(connection: Connection, noted: Option<Noted>) -> Self {
        let (accepting, shared) = (PendingFuture::default(), Arc::default());
        Self { connection, accepting, shared, allowed: LANES, noted }
    }
}

impl Lanes for QuicLanes {
    fn open(&mut self, class: Priority) -> io::Result<Option<Box<dyn SendLane>>> {
        // The future is polled once: a stream that gets no lane immediately uses the first lane.
        let polled = pin!(self.connection.open_uni()).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(opened) = polled else { return Ok(None) };
        let stream = opened.map_err(|error| of_connection(&error))?;
        stream.set_priority(priority(class)).map_err(io::Error::other)?;
        let (shared, death) = (Arc::clone(&self.shared), Death::default());
        Ok(Some(Box::new(QuicSendLane { stream, shared, death, finished: false })))
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn RecvLane>>> {
        let connection = &self.connection;
        let accepted = ready!(self.accepting.poll(cx, || {
            let connection = connection.clone();
            async move { connection.accept_uni().await }
        }));
        let stream = accepted.map_err(|error| of_connection(&error))?;
        if let Some(noted) = &mut self.noted {
            noted.at(self.connection.remote_address());
        }
        let (shared, death) = (Arc::clone(&self.shared), Death::default());
        Poll::Ready(Ok(Box::new(QuicRecvLane { stream, shared, death, ended: false })))
    }

    fn authenticated(&mut self, bytes: u64) {
        self.limit_unread(bytes);
        self.noted.iter_mut().for_each(Noted::authenticated);
    }

    fn limit_unread(&mut self, bytes: u64) {
        self.connection.set_receive_window(VarInt::from_u64(bytes).unwrap_or(VarInt::MAX));
    }

    /// quinn makes a table entry for each allowed lane, so the number follows the number of streams
    /// that use one.
    fn allow(&mut self, streams: usize) {
        let wanted = u32::try_from(streams.saturating_mul(2)).unwrap_or(LANES_MOST);
        let wanted = wanted.clamp(LANES, LANES_MOST).next_power_of_two();
        // The number shrinks only below a quarter, so that small changes have no effect.
        if wanted > self.allowed || wanted <= self.allowed / 4 {
            self.allowed = wanted;
            self.connection.set_max_concurrent_uni_streams(wanted.into());
        }
    }
}

impl Drop for QuicLanes {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Relaxed);
        // Nothing reads the peer's lanes from now on.
        self.connection.set_max_concurrent_uni_streams(0u32.into());
    }
}

struct QuicSendLane {
    stream: quinn::SendStream,
    shared: Arc<Shared>,
    death: Death,
    finished: bool,
}

impl SendLane for QuicSendLane {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        self.shared.check()?;
        match ready!(pipe::write(&mut self.stream, cx, frames)) {
            Ok(n) => Poll::Ready(Ok(n)),
            Err(WriteError::ConnectionLost(error)) => self.death.by(of_connection(&error)),
            Err(WriteError::Stopped(_) | WriteError::ZeroRttRejected) => {
                let text = "the peer reads this lane no more";
                self.death.by(io::Error::new(io::ErrorKind::BrokenPipe, text))
            }
            Err(WriteError::ClosedStream) => {
                self.death.by(io::Error::new(io::ErrorKind::NotConnected, "the lane has ended"))
            }
        }
    }

    fn finish(&mut self) {
        // The call fails on a stream that the peer stopped; then no byte is left to deliver.
        self.finished = self.stream.finish().is_ok();
    }
}

impl Drop for QuicSendLane {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.stream.reset(GIVEN_UP);
        }
    }
}

struct QuicRecvLane {
    stream: quinn::RecvStream,
    shared: Arc<Shared>,
    death: Death,
    ended: bool,
}

impl RecvLane for QuicRecvLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.death.check()?;
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        self.shared.check()?;
        match ready!(pipe::read(&mut self.stream, cx, buf)) {
            Ok(n) => {
                self.ended = n == 0;
                Poll::Ready(Ok(n))
            }
            Err(ReadError::ConnectionLost(error)) => self.death.by(of_connection(&error)),
            Err(
                ReadError::Reset(_)
                | ReadError::ClosedStream
                | ReadError::IllegalOrderedRead
                | ReadError::ZeroRttRejected,
            ) => {
                let text = "the peer gave this lane up";
                self.death.by(io::Error::new(io::ErrorKind::BrokenPipe, text))
            }
        }
    }
}

impl Drop for QuicRecvLane {
    fn drop(&mut self) {
        // The call fails on a stream that has ended; then no byte is left to stop.
        let _ = self.stream.stop(GIVEN_UP);
    }
}

impl fmt::Debug for QuicLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicLanes")
            .field("connection", &self.connection.stable_id())
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for QuicSendLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuicSendLane({})", self.stream.id())
    }
}

impl fmt::Debug for QuicRecvLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuicRecvLane({})", self.stream.id())
    }
}
