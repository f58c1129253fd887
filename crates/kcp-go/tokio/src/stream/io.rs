//! The traits of tokio. They copy once in each direction; [`Stream::read_bytes`] and
//! [`Stream::write_bytes`] do not.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;
use crate::driver::now;

impl Stream {
    fn poll_read_into(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let bytes = ready!(self.poll_read_some(cx, buf.remaining()))?;
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }

    fn poll_write_from(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.write_with(cx, |state, room| {
            let bytes = &bytes[..bytes.len().min(room)];
            state.session.write(now(), &mut Bytes::copy_from_slice(bytes))
        })
    }

    fn poll_write_gathered(&self, cx: &Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        self.write_with(cx, |state, room| {
            let mut gathered = BytesMut::with_capacity(length.min(room));
            for buf in bufs {
                let left = room - gathered.len();
                gathered.extend_from_slice(&buf[..buf.len().min(left)]);
            }
            state.session.write(now(), &mut gathered.freeze())
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        self.poll_read_into(cx, buf)
    }
}

impl AsyncRead for &Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        self.poll_read_into(cx, buf)
    }
}

/// A flush does nothing: what was written leaves as soon as it may. `shutdown` waits until it is
/// acknowledged.
impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_from(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.poll_write_gathered(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Self::poll_shutdown(&self, cx)
    }
}

impl AsyncWrite for &Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_from(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.poll_write_gathered(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Stream::poll_shutdown(&self, cx)
    }
}
