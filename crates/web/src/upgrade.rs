//! The byte streams of a visitor and of a target that have switched to another protocol. The
//! implementation of the target's stream carries their bytes ([`Stream::carry`]).

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{ByteStream, Stream, wire::WireState};

/// The stream to a target that has switched to another protocol.
pub(crate) struct Switched {
    pub(crate) stream: Box<dyn Stream>,
    /// The bytes of the target that were read together with its response header.
    pub(crate) first: Bytes,
    /// The memory charge of the stream.
    pub(crate) wire: Rc<WireState>,
}

impl Switched {
    /// Carries bytes both ways until both directions have ended.
    pub(crate) async fn carry(self, visitor: impl ByteStream + 'static) {
        let Self { stream, first, wire: _held } = self;
        stream.carry(first, Box::new(visitor)).await;
    }
}

/// A stream whose first bytes have already been read.
#[derive(Debug)]
pub struct Replayed<T> {
    first: Bytes,
    io: T,
}

impl<T> Replayed<T> {
    /// A stream that begins with the bytes `first`.
    #[must_use]
    pub const fn new(first: Bytes, io: T) -> Self {
        Self { first, io }
    }

    /// The underlying stream, from which the remaining bytes are read.
    #[must_use]
    pub const fn io(&self) -> &T {
        &self.io
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Replayed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..length]);
        self.first.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Replayed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Without vectored writes, hyper copies the body of each response behind its header.
    #[tokio::test]
    async fn slices_are_written_in_one_call() {
        let (near, mut far) = duplex(64);
        let mut replayed = Replayed::new(Bytes::from_static(b"first "), near);
        assert!(replayed.is_write_vectored());
        let slices = [io::IoSlice::new(b"head "), io::IoSlice::new(b"body")];
        assert_eq!(replayed.write_vectored(&slices).await.unwrap(), 9);
        far.write_all(b"then").await.unwrap();
        far.shutdown().await.unwrap();
        let mut read = String::new();
        replayed.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "first then");
        drop(replayed);
        let mut written = String::new();
        far.read_to_string(&mut written).await.unwrap();
        assert_eq!(written, "head body");
    }
}
