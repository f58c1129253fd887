//! One direction between a lane and the task of its stream: a bounded queue of pieces, whose two
//! ends may be on different workers. The lock is held only while a few pointers move, except by a
//! reader, which copies bytes.

use std::collections::VecDeque;
use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use net::pool;

/// Queued bytes above which the sender waits. A piece is added as a whole, so a queue can exceed
/// this by one batch of records.
const WAITING: usize = 128 << 10;

/// Queued pieces above which the sender waits: a piece may keep a larger buffer alive.
const PIECES: usize = 64;

#[expect(
    clippy::disallowed_types,
    reason = "the lane may be on another worker than its stream, and mostly is on the same: nobody \
              waits for the lock, which is taken once per batch of records"
)]
type Lock<T> = std::sync::Mutex<T>;

#[derive(Debug, Default)]
pub(super) struct Way(Lock<Line>);

#[derive(Debug, Default)]
struct Line {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: End,
    giver: Option<Waker>,
    taker: Option<Waker>,
}

/// The state of a direction.
#[derive(Clone, Copy, Debug, Default)]
enum End {
    #[default]
    Open,
    /// Nothing follows the queued pieces.
    Ended,
    /// The stream has broken, or the receiver takes nothing more.
    Failed(io::ErrorKind),
}

/// The result of [`Way::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Pieces,
    /// The queue is empty. The receiver is woken later.
    Nothing,
    /// The direction has ended, and all its bytes were taken.
    Ended,
}

impl Way {
    fn line(&self) -> MutexGuard<'_, Line> {
        // The state is consistent after every statement, so a poisoned lock does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds pieces from the front of `frames` until the queue is full. Returns the number of bytes.
    pub(super) fn poll_push(
        &self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let mut line = self.line();
        match line.end {
            End::Open => {}
            End::Ended => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            End::Failed(why) => return Poll::Ready(Err(why.into())),
        }
        let mut added = 0;
        while line.has_room()
            && let Some(piece) = frames.pop_front()
        {
            added += piece.len();
            line.add(piece);
        }
        if added == 0 && !frames.is_empty() {
            line.giver = Some(cx.waker().clone());
            return Poll::Pending;
        }
        line.wake_taker();
        Poll::Ready(Ok(added))
    }

    /// Adds the pieces of `next` until the queue is full or there are no more. Returns the number
    /// of bytes, and whether the queue is full. The sender of a full queue is woken later. `Err`:
    /// the receiver takes nothing more.
    pub(super) fn fill(
        &self,
        cx: &mut Context<'_>,
        mut next: impl FnMut() -> Option<Bytes>,
    ) -> Result<(usize, bool), ()> {
        let mut line = self.line();
        if matches!(line.end, End::Failed(_)) {
            return Err(());
        }
        let mut added = 0;
        while line.has_room()
            && let Some(piece) = next()
        {
            added += piece.len();
            line.add(piece);
        }
        let is_full = !line.has_room();
        if is_full {
            line.giver = Some(cx.waker().clone());
        }
        if added > 0 {
            line.wake_taker();
        }
        Ok((added, is_full))
    }

    /// Ends the direction after the queued pieces.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut line = self.line();
        if let End::Failed(why) = line.end {
            return Err(why.into());
        }
        line.end = End::Ended;
        line.wake_taker();
        Ok(())
    }

    /// Breaks a direction that has not ended, for both sides, and discards its queue.
    pub(super) fn fail(&self, why: io::ErrorKind) {
        let mut line = self.line();
        if matches!(line.end, End::Open) {
            line.end = End::Failed(why);
            line.clear();
        }
        line.wake_both();
    }

    /// Breaks the direction because the receiver takes nothing more, and discards the queue.
    pub(super) fn abandon(&self) {
        let mut line = self.line();
        line.end = End::Failed(io::ErrorKind::BrokenPipe);
        line.clear();
        line.wake_both();
    }

    /// Copies queued bytes into the spare capacity of `buf`. `Ok(0)` is the end.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let mut line = self.line();
        let mut read = 0;
        let mut spare = buf.capacity() - buf.len();
        while spare > 0
            && let Some(front) = line.pieces.front_mut()
        {
            let part = front.len().min(spare);
            buf.put_slice(&front[..part]);
            front.advance(part);
            if front.is_empty() {
                line.pieces.pop_front().into_iter().for_each(pool::recycle);
            }
            read += part;
            spare -= part;
        }
        if read > 0 {
            line.take_away(read);
            return Poll::Ready(Ok(read));
        }
        match line.end {
            End::Open => {
                line.taker = Some(cx.waker().clone());
                Poll::Pending
            }
            End::Ended => Poll::Ready(Ok(0)),
            End::Failed(why) => Poll::Ready(Err(why.into())),
        }
    }

    /// Moves queued pieces with a total of at most `most` bytes to `taken`.
    pub(super) fn take(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        taken: &mut VecDeque<Bytes>,
    ) -> Taken {
        let mut line = self.line();
        let mut left = most;
        while left > 0
            && let Some(front) = line.pieces.front_mut()
        {
            if front.len() > left {
                taken.push_back(front.split_to(left));
                left = 0;
            } else {
                left -= front.len();
                taken.extend(line.pieces.pop_front());
            }
        }
        if left < most {
            line.take_away(most - left);
            return Taken::Pieces;
        }
        if matches!(line.end, End::Open) || !line.pieces.is_empty() {
            line.taker = Some(cx.waker().clone());
            return Taken::Nothing;
        }
        Taken::Ended
    }

    /// The number of queued bytes.
    pub(super) fn held(&self) -> usize {
        self.line().bytes
    }
}

impl Line {
    fn has_room(&self) -> bool {
        self.bytes < WAITING && self.pieces.len() < PIECES
    }

    fn add(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    /// Subtracts `bytes` that the receiver took. The sender is woken only when half of the queue is
    /// free, so that a wake-up serves more than one piece.
    fn take_away(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if self.bytes <= WAITING / 2 && self.pieces.len() <= PIECES / 2 {
            self.giver.take().into_iter().for_each(Waker::wake);
        }
    }

    fn clear(&mut self) {
        self.pieces = VecDeque::new();
        self.bytes = 0;
    }

    fn wake_taker(&mut self) {
        self.taker.take().into_iter().for_each(Waker::wake);
    }

    fn wake_both(&mut self) {
        self.wake_taker();
        self.giver.take().into_iter().for_each(Waker::wake);
    }
}
