//! The stream of an HTTP/2 visitor that has switched to another protocol (RFC 8441).

use std::{
    fmt, io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use h2::{Reason, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Upload, chunk::Chunk};
use crate::account::Share;

/// The maximum size of a piece handed to h2, in bytes: one frame.
const PIECE: usize = 16 * 1024;

/// A pair of byte streams.
pub(crate) struct Tunnel {
    upload: Upload,
    /// Bytes that were taken from `upload` but not read.
    first: Bytes,
    stream: SendStream<Chunk>,
    share: Rc<Share>,
    is_shut: bool,
}

impl Tunnel {
    pub(super) const fn new(upload: Upload, stream: SendStream<Chunk>, share: Rc<Share>) -> Self {
        Self { upload, first: Bytes::new(), stream, share, is_shut: false }
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.first.is_empty() {
            match ready!(self.upload.poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.first = bytes,
                    Err(_trailers) => return Poll::Ready(Ok(())),
                },
                Some(Err(broken)) => return Poll::Ready(Err(io::Error::other(broken))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..length]);
        self.first.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if let Poll::Ready(reset) = self.stream.poll_reset(cx) {
            return Poll::Ready(Err(broken(reset)));
        }
        if !self.share.may_take(PIECE as u64, cx) {
            return Poll::Pending;
        }
        self.stream.reserve_capacity(bytes.len().min(PIECE));
        let capacity = loop {
            match self.stream.capacity() {
                0 => match ready!(self.stream.poll_capacity(cx)) {
                    Some(capacity) => drop(capacity.map_err(io::Error::other)?),
                    None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                },
                capacity => break capacity,
            }
        };
        let piece = Bytes::copy_from_slice(&bytes[..bytes.len().min(PIECE).min(capacity)]);
        let length = piece.len();
        let piece = self.share.charge(piece, 0);
        self.stream.send_data(Chunk::Piece(piece), false).map_err(io::Error::other)?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_shut, true) {
            self.stream.reserve_capacity(0);
            self.stream.send_data(Chunk::Empty, true).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}

fn broken(reset: Result<Reason, h2::Error>) -> io::Error {
    io::Error::other(reset.map_or_else(|error| error, h2::Error::from))
}
