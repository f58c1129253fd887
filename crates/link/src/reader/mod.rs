//! Reads a carrier's first lane, or a lane of a single stream. A reader makes one large read,
//! slices frames out of the buffer without copying, and delivers payload to its outlet inline.
//! `bulk` contains the reads of a lane whose large payloads are read as pages.

mod bulk;

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use net::pool;
use proto::{CarrierNumber, Event, Violation};

use crate::inner::Inner;
use crate::io::CarrierIo;
use crate::pages::{Bulk, Reading};
use crate::read_end::ReadEnd;

/// Read sizes in bytes: for a busy carrier, and for a carrier whose reads fill the buffer.
const BUSY: usize = 64 << 10;
const BULK: usize = 512 << 10;

/// A read that leaves at most this room, in bytes, counts as full. A lane may need some room for
/// headers.
const FULL: usize = 1 << 10;

/// The number of bytes read in one turn before other tasks run.
const BUDGET: usize = 256 << 10;

/// The minimum number of bytes for which a payload counts against the budget, because even a small
/// payload costs a call. (512 KiB of frames of one byte kept a worker busy for 0.2 s.) Reads of
/// such frames stay small.
const SMALL: usize = 1 << 10;

/// The minimum spare capacity in bytes that is worth a system call.
const SPARE: usize = 16 << 10;

/// A source of bytes, and the input function of the state machine that takes them.
pub(crate) trait Input {
    /// The size of the first read, in bytes.
    const FIRST: usize;

    /// The read size when memory is short.
    const TIGHT: usize;

    /// Whether the turns of this input count as turns of the carrier, which end with
    /// [`CarrierIo::look`].
    const IS_FIRST: bool = false;

    /// Whether the read bytes must wait for a frame on the first lane.
    fn is_early(&self) -> bool {
        false
    }

    /// Wakes the task of `cx` when the bytes need not wait any more.
    fn wait(&self, _cx: &Context<'_>) {}

    /// As [`transport::Lane::poll_read`]. `None`: the lane ended and the carrier continues.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        io: &CarrierIo,
        buf: &mut BytesMut,
    ) -> Poll<io::Result<Option<usize>>>;

    /// Passes bytes to the state machine.
    fn handle(
        &mut self,
        machine: &mut proto::Link,
        now: Instant,
        number: CarrierNumber,
        buf: &mut BytesMut,
    ) -> Result<Option<Event>, Violation>;

    /// Called after the state machine took all bytes of a read.
    fn handled(&self, _link: &Inner, _io: &CarrierIo) {}
}

/// The first lane, which each carrier has.
pub(crate) struct First;

impl Input for First {
    const FIRST: usize = BUSY;
    const TIGHT: usize = BUSY;
    const IS_FIRST: bool = true;

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        io: &CarrierIo,
        buf: &mut BytesMut,
    ) -> Poll<io::Result<Option<usize>>> {
        Poll::Ready(match ready!(io.lane.borrow_mut().poll_read(cx, buf)) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => Ok(Some(n)),
            Err(error) => Err(error),
        })
    }

    fn handle(
        &mut self,
        machine: &mut proto::Link,
        now: Instant,
        number: CarrierNumber,
        buf: &mut BytesMut,
    ) -> Result<Option<Event>, Violation> {
        machine.handle_input(now, number, buf)
    }

    fn handled(&self, link: &Inner, io: &CarrierIo) {
        if let Some(stream_lanes) = &io.stream_lanes {
            stream_lanes.go_on(&link.machine.borrow(), io.number);
        }
    }
}

/// Reads until the lane, the carrier or the link ends.
pub(crate) async fn run<S: Input>(
    link: &Rc<Inner>,
    io: &CarrierIo,
    source: &mut S,
    leftover: BytesMut,
) -> ReadEnd {
    let mut reader = LaneReader {
        link,
        io,
        source,
        held: Held { io, bytes: 0 },
        buf: leftover,
        size: S::FIRST.min(if is_tight(link) { S::TIGHT } else { BUSY }),
        is_amid: true,
        reading: Reading::new(S::IS_FIRST && io.gives_pages),
    };
    poll_fn(|cx| {
        let polled = reader.poll(cx);
        reader.held.set(reader.buf.capacity());
        if S::IS_FIRST && io.look(link) {
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await
}

/// A reader, with the state that lasts from one turn to the next.
struct LaneReader<'a, S> {
    link: &'a Rc<Inner>,
    io: &'a CarrierIo,
    source: &'a mut S,
    held: Held<'a>,
    buf: BytesMut,
    /// The size of the next read, in bytes.
    size: usize,
    /// Whether the last turn ended before the state machine took all bytes that were read.
    is_amid: bool,
    reading: Reading,
}

/// The size of a reader's buffer, as part of the buffers of its carrier.
struct Held<'a> {
    io: &'a CarrierIo,
    bytes: usize,
}

impl Held<'_> {
    fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.io.reading.set(self.io.reading.get() - before + bytes);
        self.io.account();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl<S: Input> LaneReader<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ReadEnd> {
        let mut budget = BUDGET;
        loop {
            let step = if self.is_amid || self.source.is_early() {
                self.go_on(cx, budget)
            } else {
                match self.reading {
                    Reading::Mixed(_) => self.read_mixed(cx, budget),
                    Reading::Bulk(_) => self.read_bulk(cx, budget),
                }
            };
            let cost = match ready!(step) {
                Ok(cost) => cost,
                Err(end) => return Poll::Ready(end),
            };
            if cost >= budget || self.is_amid {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            budget -= cost;
        }
    }

    /// Processes bytes that an earlier turn has read. An early frame may be processable now. Like
    /// each step, returns the cost: a part of the turn's budget, in bytes.
    fn go_on(&mut self, cx: &Context<'_>, budget: usize) -> Poll<Result<usize, ReadEnd>> {
        let payloads = self.process(budget)?;
        if self.source.is_early() {
            self.source.wait(cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(payloads * SMALL))
    }

    /// Reads the arrived bytes as bytes, not as pages.
    fn read_mixed(&mut self, cx: &mut Context<'_>, budget: usize) -> Poll<Result<usize, ReadEnd>> {
        make_room(&mut self.buf, self.size);
        let room = self.buf.capacity() - self.buf.len();
        let polled = self.source.poll_read(cx, self.io, &mut self.buf);
        let n = ready!(self.arrived(polled))?;
        let payloads = self.take_in(n, budget)?;
        let cost = n.max(payloads * SMALL);
        self.size = if is_tight(self.link) {
            S::TIGHT
        } else if n < SPARE || n < cost {
            BUSY
        } else if n + FULL > room {
            BULK
        } else {
            self.size
        };
        let left = || left_of_payload(self.link, self.io, &self.buf);
        if let Reading::Mixed(mixed) = &mut self.reading
            && mixed.shows_bulk(n, payloads, left)
        {
            self.reading = Reading::Bulk(Bulk::default());
        }
        Poll::Ready(Ok(cost))
    }

    /// Returns the number of bytes of a read, or the end of reading.
    fn arrived(&mut self, polled: Poll<io::Result<Option<usize>>>) -> Poll<Result<usize, ReadEnd>> {
        Poll::Ready(match polled {
            Poll::Ready(Ok(Some(n))) => Ok(n),
            Poll::Ready(Ok(None)) => Err(ReadEnd::Over),
            Poll::Ready(Err(error)) => Err(ReadEnd::Lost(error)),
            Poll::Pending => {
                if self.buf.is_empty() {
                    // An idle carrier holds no buffer.
                    pool::give(std::mem::take(&mut self.buf));
                }
                return Poll::Pending;
            }
        })
    }

    /// Passes a read of `n` bytes to the state machine. Returns the number of payloads.
    fn take_in(&mut self, n: usize, budget: usize) -> Result<usize, ReadEnd> {
        let (link, stream_lanes) = (self.link, self.io.stream_lanes.as_ref());
        link.heard.set(link.heard.get() + 1);
        if let Some(stream_lanes) = stream_lanes {
            stream_lanes.has_read(n, &link.machine.borrow());
        }
        let payloads = self.process(budget)?;
        if is_tight(link) && stream_lanes.is_some_and(|stream_lanes| stream_lanes.is_hoarding()) {
            // No byte is lost: the link continues over the next carrier, which gets little credit.
            let text = "memory that was promised to it is wanted elsewhere";
            return Err(ReadEnd::Lost(io::Error::new(io::ErrorKind::OutOfMemory, text)));
        }
        Ok(payloads)
    }

    /// Passes bytes to the state machine, as many payloads as the budget covers. Returns their
    /// number.
    fn process(&mut self, budget: usize) -> Result<usize, ReadEnd> {
        let most = budget / SMALL;
        let payloads = process(self.link, self.io, self.source, &mut self.buf, most)
            .map_err(ReadEnd::Violation)?;
        self.is_amid = payloads >= most;
        Ok(payloads)
    }
}

/// Returns the number of outstanding bytes of the payload that was read last in part; 0 unless the
/// state machine has taken all read bytes.
fn left_of_payload(link: &Inner, io: &CarrierIo, buf: &BytesMut) -> usize {
    if !buf.is_empty() {
        return 0;
    }
    link.machine.borrow_mut().expected(io.number).map_or(0, |(_, left)| left)
}

/// Whether half of the memory budget is in use. A payload that its target did not take keeps the
/// whole buffer alive of which it is a slice. So a reader uses small buffers while memory is short.
fn is_tight(link: &Inner) -> bool {
    link.budget.left() < link.budget.total() / 2
}

/// Ensures that a read is worth its system call: reclaims the whole buffer if no payload refers to
/// a part of it, otherwise takes another buffer.
fn make_room(buf: &mut BytesMut, size: usize) {
    if buf.is_empty() {
        if buf.capacity() < size && !buf.try_reclaim(size) {
            // The first buffer of a stream's own lane is smaller than the buffers of the pool.
            let fresh = if size < SPARE { BytesMut::with_capacity(size) } else { pool::take(size) };
            pool::give(std::mem::replace(buf, fresh));
        }
    } else if buf.capacity() - buf.len() < SPARE {
        let mut larger = pool::take(size.max(buf.len() + SPARE));
        larger.extend_from_slice(buf);
        pool::give(std::mem::replace(buf, larger));
    }
}

/// Passes the bytes of `buf` to the state machine and dispatches its events, until `buf` is empty
/// or `most` payloads were delivered. Returns the number of payloads.
fn process(
    link: &Rc<Inner>,
    io: &CarrierIo,
    source: &mut impl Input,
    buf: &mut BytesMut,
    most: usize,
) -> Result<usize, Violation> {
    let now = crate::now();
    link.recent_small.begin_turn(now);
    let turn = link.begin_turn();
    let mut run = io.run.take();
    let mut payloads = 0;
    let outcome = loop {
        let event = source.handle(&mut link.machine.borrow_mut(), now, io.number, buf);
        match event {
            Ok(Some(Event::Data { key, bytes })) => {
                payloads += 1;
                run.push(link, now, key, bytes);
                if payloads >= most {
                    break Ok(payloads);
                }
            }
            Ok(Some(Event::Datagram { key, bytes })) => {
                payloads += 1;
                link.deliver_datagram(key, bytes);
                if payloads >= most {
                    break Ok(payloads);
                }
            }
            Ok(Some(event)) => {
                run.end(link, now);
                link.dispatch(now, event);
            }
            Ok(None) => break Ok(payloads),
            Err(violation) => break Err(violation),
        }
    };
    run.end(link, now);
    io.run.set(run);
    if outcome.is_ok() {
        turn.end(now);
        source.handled(link, io);
    }
    outcome
}
