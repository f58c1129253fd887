//! A stream as the lane of a carrier: the link between two clients runs inside a stream that the
//! server joins ([`super::bridge`]).
//!
//! The stream stays on its worker, and the lane may move to another worker: a task of the worker of
//! the stream moves the bytes. The task and the lane share a pipe in memory of [`PIPE`] bytes per
//! direction.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use proto::ResetCode;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use transport::{Death, Lane};

use crate::{Duplex, Layered};

/// Bytes that may wait between the lane and its stream in each direction: the size of a frame of
/// bulk, so that a frame needs one wake-up of the other side.
const PIPE: usize = 64 << 10;

/// The memory of a lane: two pipes. The pump holds a buffer only while it reads.
const MEMORY: usize = 2 * PIPE;

/// The lane of a carrier whose bytes travel in a stream.
#[derive(Debug)]
pub struct StreamLane {
    pipe: DuplexStream,
    death: Death,
}

impl StreamLane {
    /// Makes the lane of a stream. A task of the present worker moves the bytes. The task aborts
    /// the stream when the lane is dropped before both directions have ended.
    #[must_use]
    pub fn new(stream: Duplex) -> Self {
        Self::watched(stream).0
    }

    /// The same. The receiver gets the reason for which the far side reset the stream, when the
    /// stream has ended.
    #[must_use]
    pub fn watched(stream: Duplex) -> (Self, oneshot::Receiver<Option<ResetCode>>) {
        let (pipe, other) = duplex(PIPE);
        let (told, reason) = oneshot::channel();
        let watched = Rc::clone(stream.pipe());
        spawn_local(async move {
            stream.carry(Layered::new(other, Bytes::new())).await;
            // The lane may be gone, and nobody waits.
            let _ = told.send(watched.reset_code());
        });
        (Self { pipe, death: Death::default() }, reason)
    }
}

impl Lane for StreamLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let spare = buf.capacity() - buf.len();
        let mut piece = [0; 8 << 10];
        let mut read = 0;
        // The pipe is memory: a further read is cheaper than a further turn of the reader.
        while read < spare {
            let most = piece.len().min(spare - read);
            let mut part = ReadBuf::new(&mut piece[..most]);
            match Pin::new(&mut self.pipe).poll_read(cx, &mut part) {
                Poll::Ready(Ok(())) if part.filled().is_empty() => break,
                Poll::Ready(Ok(())) => {
                    read += part.filled().len();
                    buf.put_slice(part.filled());
                }
                Poll::Ready(Err(error)) => return self.death.by(error),
                Poll::Pending if read == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(read))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let mut written = 0;
        while let Some(front) = frames.front_mut() {
            match Pin::new(&mut self.pipe).poll_write(cx, front) {
                Poll::Ready(Ok(n)) => {
                    written += n;
                    front.advance(n);
                    if front.is_empty() {
                        frames.pop_front();
                    }
                }
                Poll::Ready(Err(error)) => return self.death.by(error),
                Poll::Pending if written == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The task sends by itself.
        Poll::Ready(self.death.check())
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        match ready!(Pin::new(&mut self.pipe).poll_shutdown(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => self.death.by(error),
        }
    }

    fn held(&self) -> usize {
        MEMORY
    }

    fn detach(&mut self) -> io::Result<()> {
        // Memory belongs to no runtime.
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        Ok(())
    }
}
