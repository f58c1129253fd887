//! A TCP socket that can leave one runtime and join another, and its settings as a carrier.

use std::io;
use std::net::{Shutdown, TcpStream as StdStream};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The link pings after 15 s of silence and notices death itself; the kernel's probes are for a
/// carrier whose greeting never came and for state tables on the way.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Unacknowledged this long, the connection is dead to the kernel: above the link's own 5 s, far
/// below the quarter of an hour that is the default.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Unsent bytes in the kernel until the link says otherwise.
const SEND_LIMIT: u32 = 128 << 10;

/// On a runtime, or between two.
#[derive(Debug)]
enum Place {
    Attached(TcpStream),
    Detached(StdStream),
    /// Moving between them failed; the socket is closed.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Socket(Place);

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let options = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
        options.set_tcp_keepalive(&keepalive)?;
        options.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        options.set_tcp_notsent_lowat(SEND_LIMIT)?;
        Ok(Self(Place::Attached(stream)))
    }

    /// One read of at most `limit` bytes into the spare capacity of `buf`.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            ready!(stream.poll_read_ready(cx))?;
            if let Some(n) = transport::socket::read(stream, buf, limit)? {
                return Poll::Ready(Ok(n));
            }
        }
    }

    /// One gathered write of `total` bytes.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
        total: usize,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            ready!(stream.poll_write_ready(cx))?;
            if let Some(n) = transport::socket::write(stream, slices, total)? {
                return Poll::Ready(Ok(n));
            }
        }
    }

    /// Writes what the socket takes right now.
    pub(crate) fn try_write(&self, data: &[u8]) -> io::Result<Option<usize>> {
        transport::socket::write(self.stream()?, &[io::IoSlice::new(data)], data.len())
    }

    /// Ends our direction (FIN).
    pub(crate) fn finish(&self) -> io::Result<()> {
        SockRef::from(self.stream()?).shutdown(Shutdown::Write)
    }

    pub(crate) fn set_send_limit(&self, bytes: usize) {
        let Ok(stream) = self.stream() else { return };
        let limit = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Err(error) = SockRef::from(stream).set_tcp_notsent_lowat(limit) {
            tracing::debug!(%error, "TCP_NOTSENT_LOWAT");
        }
    }

    pub(crate) fn detach(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, Place::Lost) {
            Place::Attached(stream) => self.0 = Place::Detached(stream.into_std()?),
            place @ (Place::Detached(_) | Place::Lost) => self.0 = place,
        }
        Ok(())
    }

    pub(crate) fn attach(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, Place::Lost) {
            Place::Detached(stream) => self.0 = Place::Attached(TcpStream::from_std(stream)?),
            place @ (Place::Attached(_) | Place::Lost) => self.0 = place,
        }
        Ok(())
    }

    fn stream(&self) -> io::Result<&TcpStream> {
        match &self.0 {
            Place::Attached(stream) => Ok(stream),
            Place::Detached(_) | Place::Lost => {
                Err(io::Error::new(io::ErrorKind::NotConnected, "the lane is detached"))
            }
        }
    }
}
