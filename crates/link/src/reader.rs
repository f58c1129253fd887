//! The reader of a carrier: one large read, frames cut out of it without copying, payload handed
//! to its target inline.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use proto::{Event, StreamKey, Violation};
use transport::{gather, pool};

use crate::carrier::Io;
use crate::handle::Inner;
use crate::owner::End;

/// Read sizes: what a busy carrier gets, and what one gets whose reads come back full.
const BUSY: usize = 64 << 10;
const BULK: usize = 512 << 10;

/// A read that leaves no more of its room than this was full: a lane may need some for heads.
const FULL: usize = 1 << 10;

/// Bytes read in one turn before others may run.
const BUDGET: usize = 256 << 10;

/// Least spare capacity worth a system call.
const SPARE: usize = 16 << 10;

/// Why reading ended.
pub(crate) enum Outcome {
    Lost(io::Error),
    Violation(Violation),
}

/// Reads until the carrier or the link ends.
pub(crate) async fn run(link: &Rc<Inner>, io: &Io, leftover: BytesMut) -> Outcome {
    let mut buf = leftover;
    let mut size = BUSY;
    if let Err(violation) = process(link, io, &mut buf) {
        return Outcome::Violation(violation);
    }
    poll_fn(|cx| {
        let polled = poll(cx, link, io, &mut buf, &mut size);
        io.reading.set(buf.capacity());
        io.account();
        polled
    })
    .await
}

fn poll(
    cx: &mut Context<'_>,
    link: &Rc<Inner>,
    io: &Io,
    buf: &mut BytesMut,
    size: &mut usize,
) -> Poll<Outcome> {
    let mut budget = BUDGET;
    loop {
        make_room(buf, *size);
        let room = buf.capacity() - buf.len();
        let polled = io.lane.borrow_mut().poll_read(cx, buf);
        let n = match polled {
            Poll::Pending => {
                if buf.is_empty() {
                    // An idle carrier holds no buffer.
                    pool::give(std::mem::take(buf));
                }
                return Poll::Pending;
            }
            Poll::Ready(Ok(0)) => {
                return Poll::Ready(Outcome::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(e)) => return Poll::Ready(Outcome::Lost(e)),
        };
        *size = if n < SPARE || is_tight(link) {
            BUSY
        } else if n + FULL > room {
            BULK
        } else {
            *size
        };
        if let Err(violation) = process(link, io, buf) {
            return Poll::Ready(Outcome::Violation(violation));
        }
        if n >= budget {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        budget -= n;
    }
}

/// Whether half of the memory budget is in use. A slice that its target did not take pins the whole
/// buffer it was cut from, where several streams share one: then small ones.
fn is_tight(link: &Inner) -> bool {
    link.budget.left() < link.budget.total() / 2
}

/// Makes sure that a read is worth its system call: takes the buffer back whole if nobody holds a
/// part of it, else another one.
fn make_room(buf: &mut BytesMut, size: usize) {
    if buf.is_empty() {
        if buf.capacity() < size && !buf.try_reclaim(size) {
            pool::give(std::mem::replace(buf, pool::take(size)));
        }
    } else if buf.capacity() - buf.len() < SPARE {
        let mut larger = pool::take(size.max(buf.len() + SPARE));
        larger.extend_from_slice(buf);
        pool::give(std::mem::replace(buf, larger));
    }
}

/// Hands everything in `buf` to the machine, and what it gives to who it is for.
fn process(link: &Rc<Inner>, io: &Io, buf: &mut BytesMut) -> Result<(), Violation> {
    if !buf.has_remaining() {
        return Ok(());
    }
    let now = crate::now();
    let mut run = io.run.take();
    let outcome = loop {
        let event = link.machine.borrow_mut().handle_input(now, io.number, buf);
        match event {
            Ok(Some(Event::Data { key, bytes })) => run.push(link, now, key, bytes),
            Ok(Some(event)) => {
                run.end(link, now);
                link.dispatch(now, event);
            }
            Ok(None) => break Ok(()),
            Err(violation) => break Err(violation),
        }
    };
    run.end(link, now);
    io.run.set(run);
    if outcome.is_ok() {
        link.settle(now);
    }
    outcome
}

/// Payloads of one stream that came one behind the other: they leave in one gathered write.
#[derive(Debug, Default)]
pub(crate) struct Run {
    of: Option<StreamKey>,
    pieces: VecDeque<Bytes>,
}

impl Run {
    fn push(&mut self, link: &Inner, now: Instant, key: StreamKey, bytes: Bytes) {
        if self.of != Some(key) || self.pieces.len() >= gather::MOST {
            self.end(link, now);
            self.of = Some(key);
        }
        self.pieces.push_back(bytes);
    }

    fn end(&mut self, link: &Inner, now: Instant) {
        if let Some(key) = self.of.take()
            && link.ended.get().is_none()
        {
            link.deliver(now, key, &mut self.pieces);
        }
        self.pieces.clear();
    }
}

/// Tells the link how reading ended.
pub(crate) fn report(link: &Rc<Inner>, io: &Io, outcome: Outcome) {
    match outcome {
        Outcome::Lost(error) => {
            tracing::debug!(link = link.serial, carrier = io.number.0, %error, "carrier lost");
            link.carrier_ended(io.number);
        }
        Outcome::Violation(violation) => {
            tracing::warn!(link = link.serial, %violation, "the peer broke the protocol");
            link.end(End::Violation(violation));
        }
    }
}
