//! The lane over a data channel: bytes as messages, and a mark as the end of a direction.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use transport::{Death, Lane};

use crate::connection::Hold;
use crate::shared::{MESSAGE, OUTGOING, Shared};

/// The memory of an idle connection, in bytes: keys, queues, tables, socket buffers.
const MEMORY: usize = 460_000;

/// Closes its channel when it is dropped; the last lane closes the connection.
pub(crate) struct ChannelLane {
    shared: Arc<Shared>,
    _hold: Arc<Hold>,
    /// The maximum number of bytes that wait for the sending task.
    limit: usize,
    /// Whether the memory of the connection is counted here.
    is_carrier: bool,
    death: Death,
}

impl ChannelLane {
    pub(crate) fn new(shared: Arc<Shared>, hold: Arc<Hold>, is_carrier: bool) -> Self {
        Self { shared, _hold: hold, limit: OUTGOING, is_carrier, death: Death::default() }
    }
}

impl Drop for ChannelLane {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl Lane for ChannelLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let mut state = self.shared.lock();
        let (read, has_room) = state.read(buf);
        if read > 0 {
            drop(state);
            if has_room {
                self.shared.room.notify_one();
            }
            return Poll::Ready(Ok(read));
        }
        let (has_ended, is_first) = state.read_end();
        if has_ended {
            drop(state);
            if is_first {
                self.shared.work.notify_one();
            }
            return Poll::Ready(Ok(0));
        }
        if let Some(end) = state.end() {
            drop(state);
            return self.death.by(end.error());
        }
        state.wait_to_read(cx.waker());
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let mut state = self.shared.lock();
        if let Some(end) = state.end() {
            drop(state);
            return self.death.by(end.error());
        }
        if state.is_finishing() {
            drop(state);
            let error = io::Error::new(io::ErrorKind::NotConnected, "the lane has ended");
            return self.death.by(error);
        }
        let taken = state.write(frames, self.limit);
        if taken > 0 {
            drop(state);
            self.shared.work.notify_one();
            return Poll::Ready(Ok(taken));
        }
        if frames.is_empty() {
            return Poll::Ready(Ok(0));
        }
        state.wait_to_write(cx.waker());
        Poll::Pending
    }

    /// Ready when the library has all bytes. The library sends them as congestion control allows.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        let mut state = self.shared.lock();
        if let Some(end) = state.end() {
            drop(state);
            return self.death.by(end.error());
        }
        if state.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        state.wait_to_write(cx.waker());
        Poll::Pending
    }

    /// Ready when the library has all bytes and the end mark. A lane that is dropped then delivers
    /// them in the background, as a TCP socket does.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        let mut state = self.shared.lock();
        if state.is_finished() {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = state.end() {
            drop(state);
            return self.death.by(end.error());
        }
        let is_new = !state.is_finishing();
        state.finish();
        state.wait_to_write(cx.waker());
        drop(state);
        if is_new {
            self.shared.work.notify_one();
        }
        Poll::Pending
    }

    fn authenticated(&mut self) {
        self.shared.lock().authenticated();
    }

    fn set_send_limit(&mut self, bytes: usize) {
        self.limit = bytes.clamp(MESSAGE, OUTGOING);
    }

    fn held(&self) -> usize {
        let connection = if self.is_carrier { MEMORY } else { 0 };
        connection + self.shared.lock().held()
    }

    /// Nothing to do: the state works from any thread, and the runtime that made the connection
    /// drives it.
    fn detach(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ChannelLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelLane").field("is_carrier", &self.is_carrier).finish_non_exhaustive()
    }
}
