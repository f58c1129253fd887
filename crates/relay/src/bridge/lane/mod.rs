//! A stream as the lane of a carrier: the link between two clients runs inside a stream that the
//! server joins ([`super::bridge`]).
//!
//! ```text
//!   lane ──frames by reference──> way ──copied after a header─> Inlet  ──> link to the server
//!   lane <──copied to the reader── way <──pieces by reference── Outlet <── link to the server
//! ```
//!
//! The stream stays on its worker, and the lane may move to another worker. So a task of the worker
//! of the stream (`mover`) serves the stream, and two queues of pieces (`way`) are between the task
//! and the lane. A piece passes a queue by reference.

mod carry;
mod mover;
mod way;

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use proto::ResetCode;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use transport::{Death, Lane};

pub use self::carry::carry_lane;
use self::mover::Mover;
use self::way::Way;
use crate::Duplex;

/// The lane of a carrier whose bytes travel in a stream.
pub struct StreamLane {
    ways: Arc<Ways>,
    death: Death,
    /// Dropped with the lane.
    companion: Option<Box<dyn Debug + Send>>,
}

/// Breaks a lane whose stream moves no bytes any more, so that its carrier ends.
#[derive(Clone, Debug, Default)]
pub struct LaneBreaker(Weak<Ways>);

impl LaneBreaker {
    /// Breaks the lane. Its reader and its writer get an error, and queued bytes are lost. A lane
    /// that was dropped stays as it is.
    pub fn break_lane(&self) {
        if let Some(ways) = self.0.upgrade() {
            ways.break_both(io::ErrorKind::TimedOut);
        }
    }
}

/// The two queues between a lane and the task of its stream.
#[derive(Debug, Default)]
struct Ways {
    /// From the lane to the stream.
    out: Way,
    /// From the stream to the lane.
    back: Way,
}

impl StreamLane {
    /// Makes the lane of a stream. A task of the current worker moves the bytes. Dropping a lane is
    /// like closing a socket: its last bytes are sent, such as the reason of a refusal, its
    /// direction ends, and the next bytes of the far side are answered with a stop.
    #[must_use]
    pub fn new(stream: Duplex) -> Self {
        Self::watched(stream).0
    }

    /// As [`Self::new`]. When the stream has ended, the receiver gets the reason for which the far
    /// side reset it.
    #[must_use]
    pub fn watched(stream: Duplex) -> (Self, oneshot::Receiver<Option<ResetCode>>) {
        let ways = Arc::<Ways>::default();
        let (ended, reason) = oneshot::channel();
        match stream.into_parts() {
            Some(parts) => {
                let mover = Mover::new(parts, Arc::clone(&ways));
                spawn_local(async move {
                    // The receiver may have been dropped.
                    let _ = ended.send(mover.await);
                });
            }
            // The owner of the stream has ended a direction, and a carrier needs both.
            None => ways.break_both(io::ErrorKind::BrokenPipe),
        }
        (Self { ways, death: Death::default(), companion: None }, reason)
    }

    /// The same lane, which drops `companion` when it is dropped.
    #[must_use]
    pub fn accompanied(mut self, companion: Box<dyn Debug + Send>) -> Self {
        self.companion = Some(companion);
        self
    }

    /// A handle that breaks the lane, from any thread.
    #[must_use]
    pub fn breaker(&self) -> LaneBreaker {
        LaneBreaker(Arc::downgrade(&self.ways))
    }

    /// Stores an error: the lane has failed.
    fn or_death<T>(&mut self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Ready(Err(error)) => self.death.by(error),
            Poll::Ready(Ok(_)) | Poll::Pending => outcome,
        }
    }
}

impl Ways {
    /// Breaks both directions. Queued bytes are lost.
    fn break_both(&self, why: io::ErrorKind) {
        self.out.fail(why);
        self.back.fail(why);
    }
}

impl Lane for StreamLane {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let read = self.ways.back.poll_read(cx, buf);
        self.or_death(read)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        let taken = self.ways.out.poll_push(cx, frames);
        self.or_death(taken)
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The task sends without a flush.
        Poll::Ready(self.death.check())
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        let ended = self.ways.out.end();
        self.or_death(Poll::Ready(ended))
    }

    fn held(&self) -> usize {
        self.ways.out.held() + self.ways.back.held()
    }

    fn detach(&mut self) -> io::Result<()> {
        // A queue in memory belongs to no runtime.
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for StreamLane {
    fn drop(&mut self) {
        // The stream may have broken before.
        let _ = self.ways.out.end();
        self.ways.back.abandon();
    }
}

impl Debug for StreamLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamLane").field("ways", &self.ways).finish_non_exhaustive()
    }
}
