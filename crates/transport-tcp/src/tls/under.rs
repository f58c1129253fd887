//! What is under a session of TLS: a socket, or the lane of a carrier that is inside a stream.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use transport::{Connection, Lane};

use super::engine::RECORD;
use crate::socket::Socket;

/// The limit of plaintext sealed per call, until the link sets another limit.
pub(super) const BATCH: usize = 128 << 10;

/// The same inside of a stream: with the heads of its records and the head of a frame a batch fills
/// no more than the buffer of a frame, and the batch leaves in a single frame.
const INSIDE: usize = BATCH - RECORD;

/// An ordered pipe of ciphertext.
pub(crate) trait Under: fmt::Debug + Send + 'static {
    /// Reads at most `limit` bytes into the spare capacity of `buf`. 0 is the end.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>>;

    /// Writes bytes from the front of `bytes`, which is not empty, and removes them.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut BytesMut) -> Poll<io::Result<()>>;

    /// Writes the bytes that are taken at once. Wakes nobody.
    fn try_write(&mut self, bytes: &[u8]);

    /// Ends the sending direction.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// The connection of TCP.
    fn connection(&self) -> Option<Connection>;

    /// As [`Lane::set_send_limit`].
    fn set_send_limit(&self, bytes: usize);

    /// The plaintext that is sealed per call, where the link asks for `wanted` bytes.
    fn batch(&self, wanted: usize) -> usize;

    /// As [`Lane::held`].
    fn held(&self) -> usize;

    /// As [`Lane::detach`].
    fn detach(&mut self) -> io::Result<()>;

    /// As [`Lane::attach`].
    fn attach(&mut self) -> io::Result<()>;
}

impl Under for Socket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        Self::poll_read(self, cx, buf, limit)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut BytesMut) -> Poll<io::Result<()>> {
        Self::poll_write(self, cx, &[IoSlice::new(bytes)], bytes.len())
            .map_ok(|written| bytes.advance(written))
    }

    fn try_write(&mut self, bytes: &[u8]) {
        // The lane ends, whether the bytes leave or not.
        let _ = Self::try_write(self, bytes);
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish())
    }

    fn connection(&self) -> Option<Connection> {
        Self::connection(self)
    }

    fn set_send_limit(&self, bytes: usize) {
        Self::set_send_limit(self, bytes);
    }

    fn batch(&self, wanted: usize) -> usize {
        wanted.clamp(RECORD, 2 * BATCH)
    }

    fn held(&self) -> usize {
        0
    }

    fn detach(&mut self) -> io::Result<()> {
        Self::detach(self)
    }

    fn attach(&mut self) -> io::Result<()> {
        Self::attach(self)
    }
}

/// The lane that carries the session.
pub(crate) struct Inside(pub(crate) Box<dyn Lane>);

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inside({:?})", self.0)
    }
}

impl Under for Inside {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        // The engine has made room for `limit` bytes, and a lane reads no more than fits.
        debug_assert!(buf.capacity() - buf.len() >= limit.min(1), "there is room");
        self.0.poll_read(cx, buf)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut BytesMut) -> Poll<io::Result<()>> {
        let mut frames = VecDeque::from([std::mem::take(bytes).freeze()]);
        let outcome = self.0.poll_write(cx, &mut frames);
        if let Some(left) = frames.pop_front() {
            // The frame has no other owner, so that its buffer comes back without a copy.
            *bytes = left.into();
        }
        outcome.map_ok(|_| ())
    }

    fn try_write(&mut self, bytes: &[u8]) {
        let mut frames = VecDeque::from([bytes::Bytes::copy_from_slice(bytes)]);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = self.0.poll_write(&mut cx, &mut frames);
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_close(cx)
    }

    fn connection(&self) -> Option<Connection> {
        None
    }

    fn set_send_limit(&self, _: usize) {}

    fn batch(&self, wanted: usize) -> usize {
        wanted.clamp(RECORD, INSIDE)
    }

    fn held(&self) -> usize {
        self.0.held()
    }

    fn detach(&mut self) -> io::Result<()> {
        self.0.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        self.0.attach()
    }
}
