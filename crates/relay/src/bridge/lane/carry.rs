//! Two lanes that carry the bytes of each other: a client's carrier, which reached one node of a
//! cluster, and the stream to the node that has the link of the client.
//!
//! One task moves both directions, with at most one buffer of bytes in each. So it has no queue and
//! no lock of its own, and a slow side stops the other side.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use net::pool;
use tokio::time::timeout;
use transport::Lane;

/// Bytes that are read at once, and wait for the other lane at most, in each direction.
const PIECE: usize = 64 << 10;

/// Bytes per direction and poll, as for the pump.
const BUDGET: usize = 256 << 10;

/// How long the second direction may last when the first has ended. A carrier needs both.
const LINGER: Duration = Duration::from_secs(5);

/// One direction.
struct LaneHalf {
    frames: VecDeque<Bytes>,
    stage: LaneStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneStage {
    Open,
    /// The sender has ended its direction. The end is passed on after the bytes.
    Ending,
    Ended,
}

/// The state of a direction after a poll.
enum LaneTurn {
    Waits,
    /// The budget is spent.
    Again,
    Ended,
}

impl LaneHalf {
    fn new(first: BytesMut) -> Self {
        let frames = if first.is_empty() { VecDeque::new() } else { [first.freeze()].into() };
        Self { frames, stage: LaneStage::Open }
    }

    /// Moves bytes, and then the end of the direction.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn Lane,
        to: &mut dyn Lane,
    ) -> io::Result<LaneTurn> {
        let mut moved = 0;
        while moved < BUDGET {
            if !self.frames.is_empty() {
                match to.poll_write(cx, &mut self.frames)? {
                    Poll::Ready(_) => continue,
                    Poll::Pending => return Ok(LaneTurn::Waits),
                }
            }
            match self.stage {
                LaneStage::Ended => return Ok(LaneTurn::Ended),
                LaneStage::Ending => {
                    if to.poll_close(cx)?.is_pending() {
                        return Ok(LaneTurn::Waits);
                    }
                    self.stage = LaneStage::Ended;
                    return Ok(LaneTurn::Ended);
                }
                LaneStage::Open => {}
            }
            let mut bytes = pool::take(PIECE);
            match from.poll_read(cx, &mut bytes)? {
                Poll::Ready(0) => self.stage = LaneStage::Ending,
                Poll::Ready(read) => {
                    moved += read;
                    self.frames.push_back(piece(bytes));
                }
                Poll::Pending => {
                    pool::give(bytes);
                    // What was taken may wait for a flush. The lane keeps the waker.
                    // Pending or not, this direction waits.
                    let _ = to.poll_flush(cx)?;
                    return Ok(LaneTurn::Waits);
                }
            }
        }
        Ok(LaneTurn::Again)
    }
}

/// The bytes of a read. A few bytes would keep a large buffer alive while they wait.
fn piece(bytes: BytesMut) -> Bytes {
    if bytes.len() > PIECE / 4 {
        return bytes.freeze();
    }
    let few = Bytes::copy_from_slice(&bytes);
    pool::give(bytes);
    few
}

/// Both directions.
struct Carry {
    near: Box<dyn Lane>,
    far: Box<dyn Lane>,
    up: LaneHalf,
    down: LaneHalf,
}

impl Carry {
    /// Ready when this number of directions has ended, or a lane has failed.
    fn poll(&mut self, cx: &mut Context<'_>, ends: usize) -> Poll<io::Result<()>> {
        let Self { near, far, up, down } = self;
        let turns =
            [up.poll(cx, &mut **near, &mut **far)?, down.poll(cx, &mut **far, &mut **near)?];
        if turns.iter().filter(|turn| matches!(turn, LaneTurn::Ended)).count() >= ends {
            return Poll::Ready(Ok(()));
        }
        if turns.iter().any(|turn| matches!(turn, LaneTurn::Again)) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Carries the bytes between two lanes until both directions have ended, one of the lanes fails, or
/// one direction has ended and the other lasts for 5 s more. `first` are bytes of `far`, which
/// `near` gets first. Both lanes are dropped at the end, so each side learns of the end of the
/// other.
pub async fn carry_lane(near: Box<dyn Lane>, far: Box<dyn Lane>, first: BytesMut) {
    let (up, down) = (LaneHalf::new(BytesMut::new()), LaneHalf::new(first));
    let mut carry = Carry { near, far, up, down };
    let carried = async {
        poll_fn(|cx| carry.poll(cx, 1)).await?;
        let both = poll_fn(|cx| carry.poll(cx, 2));
        timeout(LINGER, both).await.unwrap_or(Ok(()))
    };
    let ended: io::Result<()> = carried.await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a carrier between two nodes has broken: {error}");
    }
}
