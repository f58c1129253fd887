//! A channel as a Tokio stream, for code that transfers bytes of sockets.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::Lane;

/// The size of a read, in bytes: one message.
const READ: usize = 16 << 10;

/// A channel whose end is a shutdown. Dropping it before the shutdown is a reset.
#[derive(Debug)]
pub struct ChannelStream {
    lane: Box<dyn Lane>,
    arrived: BytesMut,
}

impl ChannelStream {
    pub(crate) fn new(lane: Box<dyn Lane>) -> Self {
        Self { lane, arrived: BytesMut::new() }
    }
}

impl AsyncRead for ChannelStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { lane, arrived } = self.get_mut();
        if arrived.is_empty() {
            arrived.reserve(READ);
            if ready!(lane.poll_read(cx, arrived))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let length = arrived.len().min(buf.remaining());
        buf.put_slice(&arrived[..length]);
        arrived.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ChannelStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // The lane accepts whole frames or parts of them, and copies the accepted bytes.
        let piece = &buf[..buf.len().min(READ)];
        let mut frames = VecDeque::from([Bytes::copy_from_slice(piece)]);
        self.get_mut().lane.poll_write(cx, &mut frames)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().lane.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().lane.poll_close(cx)
    }
}
