//! A terminated connection.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// The protocol inside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/2.
    H2,
    /// HTTP/1.1, also for visitors that offer no protocol.
    Http1,
}

/// A connection whose TLS ends here: plaintext in and out. An idle connection costs about 7 KB of
/// the heap (`tests/memory.rs`), of which 4 KB are the buffer for the next read.
///
/// A visitor that closes without an alert of TLS (`close_notify`) becomes
/// [`io::ErrorKind::UnexpectedEof`] at a read, because an attacker may have truncated the bytes
/// (RFC 8446 section 6.1). Browsers close in this way after a complete response; the caller decides
/// what counts as truncated in its protocol.
pub struct TlsIo<IO>(TlsStream<IO>);

impl<IO> TlsIo<IO> {
    pub(crate) const fn new(stream: TlsStream<IO>) -> Self {
        Self(stream)
    }

    /// The protocol that the handshake chose.
    #[must_use]
    pub fn alpn(&self) -> Alpn {
        if self.0.get_ref().1.alpn_protocol() == Some(b"h2") { Alpn::H2 } else { Alpn::Http1 }
    }

    /// Whether the visitor resumed an earlier session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        let kind = self.0.get_ref().1.handshake_kind();
        matches!(kind, Some(rustls::HandshakeKind::Resumed))
    }

    /// The connection below TLS.
    #[must_use]
    pub fn io(&self) -> &IO {
        self.0.get_ref().0
    }
}

impl<IO> fmt::Debug for TlsIo<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIo").field("alpn", &self.alpn()).finish_non_exhaustive()
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsIo<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
