//! The writer of a carrier. It runs once per turn of the runtime: the first stream that sends wakes
//! the writer, and the runtime polls it after all streams that are ready. So the frames of these
//! streams leave in one system call.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use net::pages::Pages;
use proto::{Outgoing, Priority, StreamKey, frame_of_pages};

use crate::inner::Inner;
use crate::io::CarrierIo;
use crate::pages::Slot;

/// Bytes written in one turn before others may run.
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
                // Without further frames the lane flushes its bytes.
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

/// Writes the frames that wait, then the next batch. `Ok(0)`: there are no frames to write.
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
    let mut has_driven = false;
    if io.out.borrow().is_empty() && io.pages.borrow().is_empty() {
        loop {
            let now = crate::now();
            link.company.turns(now);
            let filled = {
                let (mut machine, mut out) = (link.machine.borrow_mut(), io.out.borrow_mut());
                match stream_lanes {
                    Some(stream_lanes) => stream_lanes.fill(&mut machine, now, io.number, &mut out),
                    None => {
                        let (pages, takes) = (&mut *io.pages.borrow_mut(), io.takes_pages);
                        let mut out = Frames { frames: &mut out, pages, before: 0, takes };
                        machine.poll_transmit(now, io.number, &mut out)
                    }
                }
            };
            has_driven = link.transmitted(now, filled);
            if filled > 0 || !has_driven {
                break;
            }
        }
    }
    if let Some(packets) = &io.packets {
        written += packets.write(cx, link, io)?;
    }
    if !io.pages.borrow().is_empty() {
        return write_pages(cx, io, written);
    }
    // OPEN frames are written before the bytes of their streams. Otherwise these bytes would take
    // the room that the transport gives all lanes together.
    while !io.out.borrow().is_empty() {
        match io.lane.borrow_mut().poll_write(cx, &mut io.out.borrow_mut())? {
            Poll::Ready(n) => written += n,
            Poll::Pending if written == 0 => return Poll::Pending,
            Poll::Pending => return Poll::Ready(Ok(written)),
        }
    }
    if let Some(stream_lanes) = stream_lanes {
        written += stream_lanes.write_batch(cx)?;
        if written == 0 && stream_lanes.is_blocked() {
            if has_driven {
                // Since the last batch there may be new frames for lanes that are not blocked.
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
    }
    Poll::Ready(Ok(written))
}

/// Writes the frames that wait, and the pages that follow them.
fn write_pages(
    cx: &mut Context<'_>,
    io: &CarrierIo,
    mut written: usize,
) -> Poll<io::Result<usize>> {
    let (mut lane, mut frames, mut queue) =
        (io.lane.borrow_mut(), io.out.borrow_mut(), io.pages.borrow_mut());
    let Some(lane) = lane.page_sink() else { return Poll::Ready(Ok(written)) };
    loop {
        let Some((before, pages)) = queue.front_mut() else {
            // The frames behind the last pages are written in the next turn of the caller's loop.
            return Poll::Ready(Ok(written.max(1)));
        };
        let is_head = *before > 0;
        let step = if is_head {
            let frames_before = frames.len();
            let step = lane.poll_write_before(cx, &mut frames, *before);
            *before = before.saturating_sub(frames_before - frames.len());
            step
        } else if pages.is_empty() {
            queue.pop_front();
            continue;
        } else {
            lane.poll_drain(cx, pages)
        };
        match step {
            Poll::Ready(Ok(n)) => written += n,
            // The system refuses pages: they go on as bytes.
            Poll::Ready(Err(error)) if !is_head && net::pages::is_refusal(&error) => {
                let mut rest = BytesMut::new();
                if let Some((_, pages)) = queue.pop_front() {
                    pages.copy_out(&mut rest)?;
                }
                frames.push_front(rest.freeze());
                if let Some((before, _)) = queue.front_mut() {
                    *before += 1;
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending if written == 0 => return Poll::Pending,
            Poll::Pending => return Poll::Ready(Ok(written)),
        }
    }
}

/// Takes the frames of a carrier with a single lane.
struct Frames<'a> {
    frames: &'a mut VecDeque<Bytes>,
    pages: &'a mut VecDeque<(usize, Pages)>,
    /// Frames before the last pages.
    before: usize,
    /// The lane moves pages.
    takes: bool,
}

impl Outgoing for Frames<'_> {
    const LANES: bool = false;

    fn push(&mut self, frame: Bytes) {
        self.frames.push_back(frame);
    }

    fn push_payload(&mut self, _key: StreamKey, _priority: Priority, frame: Bytes) {
        self.push(frame);
    }

    fn push_pages(
        &mut self,
        _key: StreamKey,
        _priority: Priority,
        head: Bytes,
        (payload, len): (Rc<dyn proto::Pages>, usize),
    ) {
        let slot = payload.as_any().downcast_ref::<Slot>();
        let pages = slot.filter(|_| self.takes);
        match pages.and_then(|slot| slot.to_send(len)) {
            Some(pages) => {
                self.frames.push_back(head);
                self.pages.push_back((self.frames.len() - self.before, pages));
                self.before = self.frames.len();
            }
            None => self.push(frame_of_pages(&head, &*payload, len)),
        }
    }

    fn push_fin(&mut self, _key: StreamKey, frame: Bytes) {
        self.push(frame);
    }

    fn abort(&mut self, _key: StreamKey) {}

    fn holds_back(&mut self, _key: StreamKey, _priority: Priority, _under_way: u64) -> bool {
        false
    }

    fn takes_payload(&self) -> bool {
        true
    }
}

/// Keeps the kernel's send queue at about one millisecond of the rate. Sets the limit only if it
/// changed by half.
fn set_send_limit(link: &Rc<Inner>, io: &CarrierIo, limit: &mut usize) {
    let wanted = link.machine.borrow().send_limit();
    if wanted > *limit * 3 / 2 || wanted * 3 / 2 < *limit {
        *limit = wanted;
        io.lane.borrow_mut().set_send_limit(wanted);
    }
}
