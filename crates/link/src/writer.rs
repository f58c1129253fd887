//! The writer of a carrier. It runs once per turn of the runtime: woken by the first stream that
//! sends, it stands behind all others that are ready, so their frames leave in one system call.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::carrier::Io;
use crate::handle::Inner;

/// Bytes written in one turn before others may run.
const BUDGET: usize = 1 << 20;

/// Writes until the carrier fails.
pub(crate) async fn run(link: &Rc<Inner>, io: &Io) -> io::Error {
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

fn turn(cx: &mut Context<'_>, link: &Rc<Inner>, io: &Io, limit: &mut usize) -> Poll<io::Error> {
    let mut budget = BUDGET;
    loop {
        match fill_and_write(cx, link, io) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(e)) => return Poll::Ready(e),
            Poll::Ready(Ok(0)) => {
                // Nothing to send: nothing may stay behind either.
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

/// Sends all that the machine has for this carrier, then ends our direction.
pub(crate) async fn drain(link: &Rc<Inner>, io: &Io) {
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

/// One write; `Ok(0)` when there is nothing to write.
fn fill_and_write(cx: &mut Context<'_>, link: &Rc<Inner>, io: &Io) -> Poll<io::Result<usize>> {
    if let Some(beside) = &io.beside {
        return beside.fill_and_write(cx, link, io);
    }
    if io.out.borrow().is_empty() {
        let now = crate::now();
        let filled = {
            let mut out = io.out.borrow_mut();
            link.machine.borrow_mut().poll_transmit(now, io.number, &mut *out)
        };
        link.transmitted(now, filled);
        if filled == 0 {
            return Poll::Ready(Ok(0));
        }
    }
    io.lane.borrow_mut().poll_write(cx, &mut io.out.borrow_mut())
}

/// Keeps the kernel's queue at about a millisecond of the rate. Set only when it changed by half.
fn set_send_limit(link: &Rc<Inner>, io: &Io, limit: &mut usize) {
    let wanted = link.machine.borrow().send_limit();
    if wanted > *limit * 3 / 2 || wanted * 3 / 2 < *limit {
        *limit = wanted;
        io.lane.borrow_mut().set_send_limit(wanted);
    }
}
