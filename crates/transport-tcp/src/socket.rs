//! A TCP socket of a carrier: its options, and its moves from one runtime to another.

use std::cell::Cell;
use std::io;
use std::net::{Shutdown, TcpStream as StdStream};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use net::options::{SocketOptions, limit_unsent};
use net::pages::{self, Pages};
use socket2::SockRef;
use tokio::net::TcpStream;
use transport::Connection;

/// The socket belongs to a runtime, or moves between two runtimes.
#[derive(Debug)]
enum Attachment {
    Attached(TcpStream),
    Detached(StdStream),
    /// The move failed, and the socket is closed.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Socket {
    place: Attachment,
    /// The kernel reports a reset once and a clean end afterwards. This field keeps the reset.
    fault: Cell<Option<io::ErrorKind>>,
}

impl Socket {
    /// Takes a connection that was dialled with these options.
    pub(crate) fn dialled(stream: TcpStream, options: &SocketOptions) -> io::Result<Self> {
        options.established(&stream)?;
        Ok(Self { place: Attachment::Attached(stream), fault: Cell::new(None) })
    }

    /// Takes a connection of a listener, whose mark it keeps.
    pub(crate) fn accepted(stream: TcpStream) -> io::Result<Self> {
        SocketOptions::CARRIER.apply_to(&stream, Some(&SocketOptions::DEFAULT))?;
        Self::dialled(stream, &SocketOptions::CARRIER)
    }

    /// Reads at most `limit` bytes into the spare capacity of `buf`, in one call.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let done = net::socket::read(stream, buf, limit).map_err(|error| self.failed(error))?;
            if let Some(n) = done {
                return Poll::Ready(Ok(n));
            }
        }
    }

    /// Writes `total` bytes from several slices, in one call.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
        total: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let done =
                net::socket::write(stream, slices, total).map_err(|error| self.failed(error))?;
            if let Some(n) = done {
                return Poll::Ready(Ok(n));
            }
        }
    }

    /// As [`Self::poll_write`], before further bytes.
    pub(crate) fn poll_write_more(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
        total: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let done = net::socket::write_more(stream, slices, total)
                .map_err(|error| self.failed(error))?;
            if let Some(n) = done {
                return Poll::Ready(Ok(n));
            }
        }
    }

    /// Fills an empty pipe with at most `limit` bytes.
    pub(crate) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pages: &mut Pages,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            ready!(stream.poll_read_ready(cx))?;
            if let Some(n) = pages.fill(stream, limit).map_err(|error| self.broke(error))? {
                return Poll::Ready(Ok(n));
            }
        }
    }

    /// Writes bytes of a pipe.
    pub(crate) fn poll_drain(
        &self,
        cx: &mut Context<'_>,
        pages: &mut Pages,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let n = pages.drain(stream, usize::MAX).map_err(|error| self.broke(error))?;
            if n > 0 {
                return Poll::Ready(Ok(n));
            }
        }
    }

    /// A socket that moves no pages takes bytes.
    fn broke(&self, error: io::Error) -> io::Error {
        if pages::is_refusal(&error) { error } else { self.failed(error) }
    }

    /// Writes the bytes that the socket takes at once.
    pub(crate) fn try_write(&self, data: &[u8]) -> io::Result<Option<usize>> {
        net::socket::write(self.stream()?, &[io::IoSlice::new(data)], data.len())
    }

    /// The addresses of both ends; `None` when the socket is closed.
    pub(crate) fn connection(&self) -> Option<Connection> {
        let stream = self.stream().ok()?;
        Some(Connection { local: stream.local_addr().ok()?, remote: stream.peer_addr().ok()? })
    }

    /// Ends our direction (FIN).
    pub(crate) fn finish(&self) -> io::Result<()> {
        SockRef::from(self.stream()?).shutdown(Shutdown::Write)
    }

    pub(crate) fn set_send_limit(&self, bytes: usize) {
        let Ok(stream) = self.stream() else { return };
        let limit = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Err(error) = limit_unsent(stream, limit) {
            tracing::debug!(%error, "TCP_NOTSENT_LOWAT");
        }
    }

    pub(crate) fn detach(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.place, Attachment::Lost) {
            Attachment::Attached(stream) => self.place = Attachment::Detached(stream.into_std()?),
            place @ (Attachment::Detached(_) | Attachment::Lost) => self.place = place,
        }
        Ok(())
    }

    pub(crate) fn attach(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.place, Attachment::Lost) {
            Attachment::Detached(stream) => {
                self.place = Attachment::Attached(TcpStream::from_std(stream)?)
            }
            place @ (Attachment::Attached(_) | Attachment::Lost) => self.place = place,
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> io::Error {
        self.fault.set(Some(error.kind()));
        error
    }

    fn stream(&self) -> io::Result<&TcpStream> {
        if let Some(kind) = self.fault.get() {
            return Err(kind.into());
        }
        match &self.place {
            Attachment::Attached(stream) => Ok(stream),
            Attachment::Detached(_) | Attachment::Lost => {
                Err(io::Error::new(io::ErrorKind::NotConnected, "the lane is detached"))
            }
        }
    }
}
