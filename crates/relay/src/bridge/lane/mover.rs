//! The only task of a stream that is a lane. It serves the lane as the pump serves a socket.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use net::pool;
use proto::{HEAD_ROOM, ResetCode};
use transport::Inlet;

use super::Ways;
use super::way::Taken;
use crate::duplex::Parts;
use crate::pipe::{MOVED, Pipe, Watchdog};
use crate::{End, Permit};

/// Bytes per direction and poll, as for the pump.
const BUDGET: usize = 256 << 10;

/// The largest payload of a frame, in bytes: with its header it fills a buffer of the pool, and a
/// batch of records fits. A longer frame would be evicted from the core's cache before the link to
/// the server encrypts it.
const FRAME: usize = (128 << 10) - HEAD_ROOM;

/// Moves the bytes between a stream and its lane until both directions have ended, and returns the
/// reason for which the far side reset the stream. A task that is dropped earlier breaks both
/// directions.
///
/// Of the time-outs of a stream only `half_close` can apply, because the stream of a lane has no
/// service's settings.
pub(super) struct Mover {
    pipe: Rc<Pipe>,
    inlet: Box<dyn Inlet>,
    ways: Arc<Ways>,
    _permit: Option<Permit>,
    /// The lane has ended its direction, or the far side takes nothing more.
    is_sent: bool,
    /// The far side has ended its direction, or the lane takes nothing more.
    is_received: bool,
    dog: Option<Watchdog>,
}

/// The state of a direction after a poll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It waits for a wake-up.
    Waits,
    /// The budget is spent.
    Again,
    Ended,
    /// Bytes of the far side have arrived that the lane no longer takes.
    Unwanted,
}

impl Mover {
    pub(super) fn new((pipe, inlet, permit): Parts, ways: Arc<Ways>) -> Self {
        let (is_sent, is_received, dog) = Default::default();
        Self { pipe, inlet, ways, _permit: permit, is_sent, is_received, dog }
    }

    /// Sends the bytes that the lane has written.
    fn send(&mut self, cx: &mut Context<'_>) -> Turn {
        if self.pipe.is_stopped() {
            self.ways.out.abandon();
            self.inlet.reset(ResetCode::Aborted);
            return Turn::Ended;
        }
        let mut pieces = VecDeque::new();
        let mut sent = 0;
        while sent < BUDGET {
            let most = self.inlet.room().min(FRAME);
            if most == 0 {
                return Turn::Waits;
            }
            match self.ways.out.take(cx, most, &mut pieces) {
                Taken::Pieces => {}
                Taken::Nothing => return Turn::Waits,
                Taken::Ended => {
                    self.inlet.finish();
                    return Turn::Ended;
                }
            }
            let size = pieces.iter().map(Bytes::len).sum();
            let mut frame = pool::take(HEAD_ROOM + size);
            frame.resize(HEAD_ROOM, 0);
            for piece in pieces.drain(..) {
                frame.extend_from_slice(&piece);
                pool::recycle(piece);
            }
            sent += size;
            self.pipe.note_active(MOVED);
            self.pipe.count_in(size);
            self.inlet.send(&mut frame);
            pool::give(frame);
        }
        Turn::Again
    }

    /// Passes the bytes of the far side to the lane.
    fn receive(&self, cx: &mut Context<'_>) -> Turn {
        let Ok((taken, is_full)) = self.ways.back.fill(cx, || self.pipe.pop()) else {
            return self.receive_for_nobody();
        };
        if taken > 0 {
            self.pipe.note_active(MOVED);
            self.pipe.count_out(taken);
            self.inlet.consumed(taken);
        }
        if is_full || !self.pipe.is_finished() {
            return Turn::Waits;
        }
        // A lane that was dropped meanwhile takes no end.
        let _ = self.ways.back.end();
        Turn::Ended
    }

    /// The lane was dropped. As over TCP, the next bytes of the far side are answered with a stop:
    /// an immediate stop would overtake the last bytes of the lane, such as the reason of a
    /// refusal.
    fn receive_for_nobody(&self) -> Turn {
        if self.pipe.is_finished() {
            Turn::Ended
        } else if self.pipe.has_bytes() {
            Turn::Unwanted
        } else {
            Turn::Waits
        }
    }

    fn close(&self, end: End) -> Poll<Option<ResetCode>> {
        self.pipe.note_end(end);
        let reason = self.pipe.reset_code();
        self.pipe.close(false);
        Poll::Ready(reason)
    }

    /// Stops the far side, whose bytes nothing takes any more.
    fn stop(&mut self) {
        self.is_received = true;
        self.pipe.note_end(End::Socket);
        let thrown = self.pipe.take_no_more();
        if thrown > 0 {
            self.inlet.consumed(thrown);
        }
        self.inlet.stop(ResetCode::Aborted);
    }

    /// Ends a stream in which no byte moved for too long after one direction ended.
    fn forget(&mut self) -> Poll<Option<ResetCode>> {
        self.ways.break_both(io::ErrorKind::TimedOut);
        if !self.is_sent {
            self.inlet.reset(ResetCode::Aborted);
        }
        if !self.is_received {
            self.inlet.stop(ResetCode::Aborted);
        }
        self.close(End::IDLE)
    }

    /// Whether a direction has ended, and no byte moved in the other direction for `half_close`.
    fn is_forgotten(&mut self, cx: &mut Context<'_>) -> bool {
        let period = self.pipe.settings().timeouts.half_close;
        if !(self.is_sent || self.is_received) || period.is_zero() {
            return false;
        }
        let dog = self.dog.get_or_insert_with(|| Watchdog::new(period));
        dog.poll(cx, || self.pipe.take_active(MOVED)).is_ready()
    }
}

impl Future for Mover {
    type Output = Option<ResetCode>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.pipe.park(cx.waker());
        if let Some(code) = this.pipe.reset_code() {
            this.ways.break_both(io::ErrorKind::ConnectionReset);
            return this.close(End::FarSide(code));
        }
        let sent = if this.is_sent { Turn::Ended } else { this.send(cx) };
        this.is_sent = sent == Turn::Ended;
        let received = if this.is_received { Turn::Ended } else { this.receive(cx) };
        this.is_received = received == Turn::Ended;
        if received == Turn::Unwanted {
            this.stop();
        }
        if this.is_sent && this.is_received {
            return this.close(End::Finished);
        }
        if this.is_forgotten(cx) {
            return this.forget();
        }
        if sent == Turn::Again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        // After a regular end this changes nothing: a direction that has ended stays as it is.
        self.ways.break_both(io::ErrorKind::BrokenPipe);
        self.pipe.close(true);
    }
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover")
            .field("is_sent", &self.is_sent)
            .field("is_received", &self.is_received)
            .finish_non_exhaustive()
    }
}
