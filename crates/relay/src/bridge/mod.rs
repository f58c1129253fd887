//! Joins two streams: bytes, ends, resets and credit of one stream are forwarded to the other.
//!
//! ```text
//!   link A ──Outlet──> half of A ══> half of B ──Inlet──> link B
//!   link A <──Inlet─── half of A <══ half of B <──Outlet── link B
//! ```
//!
//! The window of A bounds the bytes that wait for room on B, because bytes are reported to A as
//! consumed only when B has taken them. The window of B bounds the bytes that B has taken. So
//! nothing is buffered beyond both windows, and a reader that pauses at one end pauses the writer
//! at the other end.
//!
//! Between two links whose carriers move pages, a bulk stream of one worker crosses as pages: they
//! pass the joint by reference, and wait in the queue as bytes do ([`send_pages`]).
//!
//! Bytes that wait for a rate of the clients stay in the same queue, bounded by the window of their
//! stream.
//!
//! | event on one stream | effect on the other stream |
//! |---|---|
//! | the peer ends its direction | this end ends its direction, after all bytes |
//! | the peer aborts the stream, or its link ends | both directions are aborted with the same code |
//! | the peer takes no more bytes | the other peer is asked to stop; the other direction continues |
//!
//! | module | the two streams |
//! |---|---|
//! | `joint` | are on one worker: a call of one link leads to a call of the other link |
//! | `span` | are on two workers: a task of each worker exchanges messages with the other task |
//! | `flows` | carry datagrams, on one worker or on two |
//! | `crossing` | the account of the joined streams: counters and limits |
//! | `lane` | one stream, whose bytes are the lane of a carrier |
//!
//! A stream whose worker is not known yet waits as one end of a `span`, and becomes a part of a
//! `joint` where its worker is this one ([`Carried::bridge`]).

mod crossing;
mod flows;
mod joint;
mod lane;
mod span;

use net::pool;
use proto::{HEAD_ROOM, ResetCode};
use transport::Inlet;

pub use crossing::Crossing;
pub use flows::{FlowSpan, bridge_flow, flow_span};
pub use joint::bridge;
pub use lane::{LaneBreaker, StreamLane, carry_lane};
pub use span::{Carried, Span, span};

use crate::pipe::Queue;

/// Sends at most `most` bytes from the front of a queue, as far as the stream has room. Returns the
/// number of bytes sent.
fn send_queued(queue: &mut Queue, inlet: &dyn Inlet, most: usize) -> usize {
    let mut sent = 0;
    loop {
        if queue.begins_with_pages() {
            match send_pages(queue, inlet, most - sent) {
                Some(0) => return sent,
                Some(size) => sent += size,
                // They are in memory now.
                None if queue.unfold().is_ok() => {}
                None => {
                    // This does not occur, because the system loses no bytes of a pipe.
                    inlet.reset(ResetCode::Internal);
                    return sent + queue.clear();
                }
            }
            continue;
        }
        let size = queue.in_memory().min(most - sent).min(inlet.room());
        if size == 0 {
            return sent;
        }
        let mut frame = pool::take(HEAD_ROOM + size);
        frame.resize(HEAD_ROOM, 0);
        queue.take_front(size, &mut frame);
        inlet.send(&mut frame);
        pool::give(frame);
        sent += size;
    }
}

/// Sends at most `most` bytes of the pages at the front of a queue, as far as the stream has room.
/// Returns the number of bytes sent. `None`: the stream takes no pages now, or there is no pipe to
/// split them.
fn send_pages(queue: &mut Queue, inlet: &dyn Inlet, most: usize) -> Option<usize> {
    let to = inlet.pages()?;
    let room = to.page_room().min(most);
    if room == 0 {
        return Some(0);
    }
    let pages = queue.take_pages(room)?;
    let size = pages.len();
    to.send_pages(pages);
    Some(size)
}
