//! A socket stays open for a while after its last answer was written, and bytes that it still sends
//! are discarded.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use net::pool;
use tokio::time::sleep;

use super::pump::{BUDGET, Pause, Reading, Writing};
use super::{ByteEnd, MOVED, Pump};

/// The time for which a socket stays open after the last answer was written, when the peer takes no
/// more of its bytes. Closing at once would send RST, on which the client's system drops an answer
/// that it has not acknowledged (RFC 9112 section 9.6). nginx lingers for the same time.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// The number of bytes that the pump reads and discards meanwhile, to see the end of a socket that
/// ends soon. A socket that sends more fills its window and stops: an aborted download costs no
/// additional work.
const DISCARD: usize = 256 << 10;

/// The maximum time for which the upload of an answered HTTP visitor is read and discarded, as in
/// nginx: many programs read no answer before they have sent the whole body.
const LINGER_ALL: Duration = Duration::from_secs(30);

impl Pump {
    pub(super) fn lingering(&self) -> bool {
        self.reading == Reading::Stopped && self.writing == Writing::Ended
    }

    /// Whether an HTTP visitor has its answer, and the service takes no more of its bytes.
    pub(super) fn is_answered(&self) -> bool {
        self.reading == Reading::Stopped
            && self.pipe.guard.get().is_some_and(|guard| guard.is_answered())
    }

    /// Reads and discards at most [`DISCARD`] bytes and one buffer, to see the end of the socket.
    /// All bytes of an HTTP visitor are read as long as the linger lasts.
    pub(super) fn discard(&mut self, end: &ByteEnd, cx: &mut Context<'_>) -> Pause {
        let is_http = self.pipe.guard.get().is_some();
        let (mut buffer, mut turn) = (BytesMut::new(), 0);
        let pause = loop {
            if !is_http && self.discarded as usize >= DISCARD {
                break Pause::Stalled;
            }
            if turn >= BUDGET {
                break Pause::Budget;
            }
            match end.poll_read_ready(cx) {
                Poll::Pending => break Pause::Empty,
                Poll::Ready(Err(_)) => break Pause::Ended,
                Poll::Ready(Ok(())) => {}
            }
            if buffer.capacity() == 0 {
                buffer = pool::take(self.size.wanted(usize::MAX));
            }
            buffer.clear();
            match end.poll_read(cx, &mut buffer, DISCARD) {
                Poll::Pending => break Pause::Empty,
                Poll::Ready(Ok(Some(0)) | Err(_)) => break Pause::Ended,
                // A read has at most the limit plus one buffer, far below `u32::MAX`.
                Poll::Ready(Ok(n)) => {
                    let n = n.unwrap_or(0);
                    turn += n;
                    self.discarded = self.discarded.saturating_add(n as u32);
                    if is_http {
                        // Each byte restarts the time of the linger.
                        self.pipe.note_active(MOVED);
                    }
                }
            }
        };
        pool::give(buffer);
        pause
    }

    /// Whether the visitor has sent bytes after its answer for the maximum time.
    pub(super) fn has_lingered(&mut self, cx: &mut Context<'_>) -> bool {
        if self.pipe.guard.get().is_none() {
            return false;
        }
        let timers = self.timers.get_or_insert_default();
        let linger = timers.linger.get_or_insert_with(|| Box::pin(sleep(LINGER_ALL)));
        linger.as_mut().poll(cx).is_ready()
    }
}
