//! The lane of `tcp://`: the bare socket. The lane holds no byte and no buffer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use net::gather;
use net::pages::Pages;
use transport::{Carrier, Lane, PageSink, PageSource, Peer};

use crate::NOWHERE;
use crate::socket::Socket;

#[derive(Debug)]
pub(crate) struct TcpLane {
    socket: Socket,
    finished: bool,
}

/// Makes the carrier of a socket without TLS.
pub(crate) fn bare(socket: Socket, address: SocketAddr) -> Carrier {
    let transport = crate::TCP;
    let connection = socket.connection();
    let peer = Peer {
        address,
        transport,
        connection,
        watch: None,
        exporter: None,
        certificate_name: None,
        cipher: None,
        via: None,
    };
    Carrier::single(peer, Box::new(TcpLane { socket, finished: false }))
}

/// Makes the carrier of a lane without TLS.
pub(crate) fn bare_inside(lane: Box<dyn Lane>) -> Carrier {
    let peer = Peer {
        address: NOWHERE,
        transport: crate::TCP,
        connection: None,
        watch: None,
        exporter: None,
        certificate_name: None,
        cipher: None,
        via: None,
    };
    Carrier::single(peer, lane)
}

impl Lane for TcpLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.socket.poll_read(cx, buf, usize::MAX)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let empty = drop_empty(frames);
        if frames.is_empty() {
            return Poll::Ready(Ok(empty));
        }
        let mut slices = [IoSlice::new(&[]); gather::MOST];
        let (filled, total) = gather::gather(frames.iter().map(|frame| &frame[..]), &mut slices);
        let written = ready!(self.socket.poll_write(cx, &slices[..filled], total))?;
        gather::advance(frames, written, drop);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.finished {
            self.socket.finish()?;
            self.finished = true;
        }
        Poll::Ready(Ok(()))
    }

    fn page_source(&mut self) -> Option<&mut dyn PageSource> {
        Some(self)
    }

    fn page_sink(&mut self) -> Option<&mut dyn PageSink> {
        Some(self)
    }

    fn set_send_limit(&mut self, bytes: usize) {
        self.socket.set_send_limit(bytes);
    }

    fn detach(&mut self) -> io::Result<()> {
        self.socket.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        self.socket.attach()
    }
}

impl PageSource for TcpLane {
    fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_read(cx, buf, limit)
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        pages: &mut Pages,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_fill(cx, pages, limit)
    }
}

impl PageSink for TcpLane {
    fn poll_write_before(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); gather::MOST];
        let (filled, total) = gather::gather(frames.iter().map(|frame| &frame[..]), &mut slices);
        let written = ready!(self.socket.poll_write_more(cx, &slices[..filled], total))?;
        gather::advance(frames, written, drop);
        Poll::Ready(Ok(written))
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, pages: &mut Pages) -> Poll<io::Result<usize>> {
        self.socket.poll_drain(cx, pages)
    }
}

/// Removes empty frames from the front. Returns 0, the number of bytes in them.
fn drop_empty(frames: &mut VecDeque<Bytes>) -> usize {
    while frames.front().is_some_and(Bytes::is_empty) {
        frames.pop_front();
    }
    0
}
