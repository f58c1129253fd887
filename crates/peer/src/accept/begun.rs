//! A lane whose first byte was read already.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use transport::Lane;

/// Returns the byte before all others.
#[derive(Debug)]
pub(super) struct StartedLane {
    first: Option<u8>,
    lane: Box<dyn Lane>,
}

impl StartedLane {
    pub(super) fn new(first: u8, lane: Box<dyn Lane>) -> Self {
        Self { first: Some(first), lane }
    }
}

impl Lane for StartedLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self.first.take() {
            Some(first) => {
                buf.put_u8(first);
                Poll::Ready(Ok(1))
            }
            None => self.lane.poll_read(cx, buf),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.lane.poll_write(cx, frames)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lane.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lane.poll_close(cx)
    }

    fn authenticated(&mut self) {
        self.lane.authenticated();
    }

    fn set_send_limit(&mut self, bytes: usize) {
        self.lane.set_send_limit(bytes);
    }

    fn held(&self) -> usize {
        self.lane.held()
    }

    fn detach(&mut self) -> io::Result<()> {
        self.lane.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        self.lane.attach()
    }
}
