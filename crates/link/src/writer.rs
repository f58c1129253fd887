//! The writer of a carrier. It runs once per turn of the runtime: the first stream that sends wakes
//! the writer, and the runtime polls it after all streams that are ready. So the frames of these
//! streams are sent in one system call.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::inner::Inner;
use crate::io::CarrierIo;

/// The number of bytes written in one turn before other tasks run.
const BUDGET: usize = 1 << 20;

/// Writes until the carrier fails.
pub(crate) async fn run(link: &Rc<Inner>, io: &CarrierIo) -> io::Error {
    let mut limit = 0;
    poll_fn(|cx| {
        link.wakers.enter(io.number, cx);
        let polled = turn(cx, link, io, &mut limit);
        link.wakers.leave(io.number);
        io.account();
        if io.look(link) {
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await
}

fn turn(
    cx: &mut Context<'_>,
    link: &Rc<Inner>,
    io: &CarrierIo,
    limit: &mut usize,
) -> Poll<io::Error> {
    let mut budget = BUDGET;
    loop {
        match fill_and_write(cx, link, io) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(e)) => return Poll::Ready(e),
            Poll::Ready(Ok(0)) => {
                // Without more frames the lane flushes its bytes.
                let flushed = io.lane.borrow_mut().poll_flush(cx);
                return match flushed {
                    Poll::Ready(Err(e)) => Poll::Ready(e),
                    Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                };
            }
            Poll::Ready(Ok(n)) if n >= budget => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(Ok(n)) => budget -= n,
        }
        set_send_limit(link, io, limit);
    }
}

/// Sends all frames that the state machine has for this carrier, then ends the sending direction.
pub(crate) async fn drain(link: &Rc<Inner>, io: &CarrierIo) {
    poll_fn(|cx| {
        loop {
            match fill_and_write(cx, link, io) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(0)) => return io.lane.borrow_mut().poll_close(cx).map(drop),
                Poll::Ready(Ok(_)) => {}
            }
        }
    })
    .await;
}

/// Writes the queued frames, then the next batch. `Ok(0)`: there are no frames to write.
fn fill_and_write(
    cx: &mut Context<'_>,
    link: &Rc<Inner>,
    io: &CarrierIo,
) -> Poll<io::Result<usize>> {
    let stream_lanes = io.stream_lanes.as_deref();
    let mut written = match stream_lanes {
        Some(stream_lanes) => stream_lanes.retry(cx)?,
        None => 0,
    };
    let has_driven = io.outbox.borrow().is_empty() && fill(link, io);
    if let Some(packets) = &io.packets {
        written += packets.write(cx, link, io.number)?;
    }
    // OPEN frames are written before the bytes of their streams. Otherwise these bytes would use up
    // the room that all lanes of the transport share.
    while !io.outbox.borrow().is_empty() {
        match io.outbox.borrow_mut().poll_write(cx, &mut **io.lane.borrow_mut())? {
            Poll::Ready(n) => written += n,
            Poll::Pending if written == 0 => return Poll::Pending,
            Poll::Pending => return Poll::Ready(Ok(written)),
        }
    }
    if let Some(stream_lanes) = stream_lanes {
        written += stream_lanes.write_batch(cx)?;
        if written == 0 && stream_lanes.is_blocked() {
            if has_driven {
                // There may be new frames since the last batch for lanes that are not blocked.
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
    }
    Poll::Ready(Ok(written))
}

/// Takes the next batch of frames from the state machine. Returns whether the link was driven after
/// it.
fn fill(link: &Rc<Inner>, io: &CarrierIo) -> bool {
    loop {
        let now = crate::now();
        link.recent_small.begin_turn(now);
        let filled = {
            let (mut machine, mut outbox) = (link.machine.borrow_mut(), io.outbox.borrow_mut());
            match io.stream_lanes.as_deref() {
                Some(lanes) => lanes.fill(&mut machine, now, io.number, outbox.bytes()),
                None => {
                    let retained = io.takes_pages.then_some(&link.retained);
                    machine.poll_transmit(now, io.number, &mut outbox.filling(retained))
                }
            }
        };
        let has_driven = link.transmitted(now, filled);
        if filled > 0 || !has_driven {
            return has_driven;
        }
    }
}

/// Limits the kernel's send queue to about one millisecond at the current rate. Sets the limit only
/// if it changed by half.
fn set_send_limit(link: &Rc<Inner>, io: &CarrierIo, limit: &mut usize) {
    let wanted = link.machine.borrow().send_limit();
    if wanted > *limit * 3 / 2 || wanted * 3 / 2 < *limit {
        *limit = wanted;
        io.lane.borrow_mut().set_send_limit(wanted);
    }
}
