//! Reads a carrier's first lane, or a lane of a single stream. A reader makes one large read, cuts
//! frames out of the buffer without copying, and delivers payload to its outlet inline.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::BytesMut;
use net::pages::Pages;
use net::pool;
use proto::{CarrierNumber, Event, Violation};

use crate::inner::Inner;
use crate::io::CarrierIo;
use crate::pages::Reading;
use crate::state::End;

/// Read sizes in bytes: for a busy carrier, and for a carrier whose reads fill the buffer.
const BUSY: usize = 64 << 10;
const BULK: usize = 512 << 10;

/// A read that leaves at most this room counts as full. A lane may need some room for heads.
const FULL: usize = 1 << 10;

/// Bytes read in one turn before others may run.
const BUDGET: usize = 256 << 10;

/// A payload counts as at least this many bytes of the budget, because a smaller payload costs a
/// call. (512 KiB of frames of one byte kept a worker busy for 0.2 s.) Reads of such frames stay
/// small.
const SMALL: usize = 1 << 10;

/// The least spare capacity that is worth a system call.
const SPARE: usize = 16 << 10;

/// Why a reader ended.
pub(crate) enum ReadEnd {
    /// The carrier is lost.
    Lost(io::Error),
    Violation(Violation),
    /// The lane of a single stream ended. The carrier goes on.
    Over,
}

/// A source of bytes, and the input of the state machine that takes them.
pub(crate) trait Input {
    /// Size of the first read.
    const FIRST: usize;

    /// Read size where memory is tight.
    const TIGHT: usize;

    /// Whether its turns count as turns of the carrier, which end with [`CarrierIo::look`].
    const IS_FIRST: bool = false;

    /// Whether the bytes that were read have to wait for a frame on the first lane.
    fn is_early(&self) -> bool {
        false
    }

    /// Wakes the task of `cx` when the bytes no longer have to wait.
    fn wait(&self, _cx: &Context<'_>) {}

    /// As [`transport::Lane::poll_read`]. `None`: the lane ended and the carrier goes on.
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
    let mut held = Held { io, bytes: 0 };
    let mut buf = leftover;
    let size = S::FIRST.min(if is_tight(link) { S::TIGHT } else { BUSY });
    let mut pace = ReadPace { size, pages: Reading::default(), is_amid: true };
    poll_fn(|cx| {
        let polled = poll(cx, link, io, source, &mut buf, &mut pace);
        held.set(buf.capacity());
        if S::IS_FIRST && io.look(link) {
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await
}

/// What a reader remembers for its next turn.
struct ReadPace {
    /// Size of the next read, bytes.
    size: usize,
    pages: Reading,
    /// Whether the last turn ended before the state machine took all bytes that were read.
    is_amid: bool,
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

fn poll<S: Input>(
    cx: &mut Context<'_>,
    link: &Rc<Inner>,
    io: &CarrierIo,
    source: &mut S,
    buf: &mut BytesMut,
    pace: &mut ReadPace,
) -> Poll<ReadEnd> {
    let mut budget = BUDGET;
    loop {
        // The turn of an early frame may have come meanwhile.
        if pace.is_amid || source.is_early() {
            let payloads = match process(link, io, source, buf, budget / SMALL) {
                Ok(payloads) => payloads,
                Err(violation) => return Poll::Ready(ReadEnd::Violation(violation)),
            };
            pace.is_amid = payloads >= budget / SMALL;
            if source.is_early() {
                source.wait(cx);
                return Poll::Pending;
            }
            if pace.is_amid {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            budget -= payloads * SMALL;
        }
        let mut most = None;
        if S::IS_FIRST && io.gives_pages && pace.pages.is_on() {
            match poll_pages(cx, link, io, buf, &mut pace.pages) {
                Next::Moved(n) if n >= budget => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Next::Moved(n) => {
                    budget -= n;
                    continue;
                }
                Next::Nothing => {
                    pool::give(std::mem::take(buf));
                    return Poll::Pending;
                }
                Next::Lost(error) => return Poll::Ready(ReadEnd::Lost(error)),
                Next::AtMost(bytes) => most = Some(bytes),
                Next::Bytes => {}
            }
        }
        make_room(buf, most.map_or(pace.size, |most| pace.size.min(most.max(BUSY))));
        let room = buf.capacity() - buf.len();
        let polled = match most {
            Some(most) => poll_at_most(cx, io, buf, most),
            None => source.poll_read(cx, io, buf),
        };
        let n = match polled {
            Poll::Pending => {
                if buf.is_empty() {
                    // An idle carrier holds no buffer.
                    pool::give(std::mem::take(buf));
                }
                return Poll::Pending;
            }
            Poll::Ready(Ok(None)) => return Poll::Ready(ReadEnd::Over),
            Poll::Ready(Ok(Some(n))) => n,
            Poll::Ready(Err(e)) => return Poll::Ready(ReadEnd::Lost(e)),
        };
        link.heard.set(link.heard.get() + 1);
        if let Some(stream_lanes) = &io.stream_lanes {
            stream_lanes.has_read(n, &link.machine.borrow());
        }
        let payloads = match process(link, io, source, buf, budget / SMALL) {
            Ok(payloads) => payloads,
            Err(violation) => return Poll::Ready(ReadEnd::Violation(violation)),
        };
        if is_tight(link)
            && io.stream_lanes.as_ref().is_some_and(|stream_lanes| stream_lanes.is_hoarding())
        {
            // No byte is lost: the link goes on over the next carrier, which gets little credit.
            let text = "memory that was promised to it is wanted elsewhere";
            return Poll::Ready(ReadEnd::Lost(io::Error::new(io::ErrorKind::OutOfMemory, text)));
        }
        if S::IS_FIRST && io.gives_pages {
            match most {
                None if n < SPARE => {}
                None => {
                    let machine = || link.machine.borrow_mut().expected(io.number);
                    let expected = buf.is_empty().then(machine).flatten();
                    pace.pages.has_read(n, payloads, expected.map_or(0, |(_, left)| left));
                }
                Some(_) => {
                    let expected = link.machine.borrow_mut().expected(io.number);
                    let left = expected.filter(|_| buf.is_empty()).map_or(0, |(_, left)| left);
                    pace.pages.has_read_part(left);
                }
            }
        }
        let cost = n.max(payloads * SMALL);
        pace.is_amid = payloads >= budget / SMALL;
        pace.size = if most.is_some() {
            pace.size
        } else if is_tight(link) {
            S::TIGHT
        } else if n < SPARE || n < cost {
            BUSY
        } else if n + FULL > room {
            BULK
        } else {
            pace.size
        };
        if cost >= budget || pace.is_amid {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        budget -= cost;
    }
}

/// What a reader of pages does next.
enum Next {
    /// So many bytes were moved as pages.
    Moved(usize),
    /// Nothing has arrived.
    Nothing,
    Lost(io::Error),
    /// The reader takes at most this number of bytes: the rest of a frame, and the next head.
    AtMost(usize),
    /// The reader takes bytes.
    Bytes,
}

/// Moves the payload that comes next as pages.
fn poll_pages(
    cx: &mut Context<'_>,
    link: &Rc<Inner>,
    io: &CarrierIo,
    buf: &BytesMut,
    reading: &mut Reading,
) -> Next {
    let (key, left) = {
        let mut machine = link.machine.borrow_mut();
        let expected = machine.expected(io.number);
        match expected.filter(|(_, left)| buf.is_empty() && *left >= Reading::worth()) {
            Some(expected) => expected,
            // A longer read would take the payloads of the next frames as bytes.
            None => return Next::AtMost(machine.until_payload(io.number, buf)),
        }
    };
    let outlet = link.outlet(key).filter(|outlet| outlet.takes_pages());
    let Some((outlet, mut pages)) = outlet.and_then(|outlet| Some((outlet, Pages::take()?))) else {
        reading.leave();
        return Next::Bytes;
    };
    let polled = match io.lane.borrow_mut().page_source() {
        Some(lane) => lane.poll_fill(cx, &mut pages, left.min(BUDGET)),
        None => return Next::Bytes,
    };
    match polled {
        Poll::Pending => Next::Nothing,
        Poll::Ready(Ok(0)) => Next::Lost(io::ErrorKind::UnexpectedEof.into()),
        Poll::Ready(Ok(n)) => {
            link.heard.set(link.heard.get() + 1);
            let now = crate::now();
            link.company.turns(now);
            let turn = link.begin_turn();
            link.machine.borrow_mut().moved(now, io.number, n);
            link.deliver_pages(now, (key, &*outlet), pages);
            turn.end(now);
            Next::Moved(n)
        }
        Poll::Ready(Err(error)) if net::pages::is_refusal(&error) => {
            reading.leave();
            Next::Bytes
        }
        Poll::Ready(Err(error)) => Next::Lost(error),
    }
}

/// Reads at most `most` bytes.
fn poll_at_most(
    cx: &mut Context<'_>,
    io: &CarrierIo,
    buf: &mut BytesMut,
    most: usize,
) -> Poll<io::Result<Option<usize>>> {
    let mut lane = io.lane.borrow_mut();
    let polled = match lane.page_source() {
        Some(lane) => lane.poll_read_at_most(cx, buf, most),
        None => lane.poll_read(cx, buf),
    };
    Poll::Ready(match ready!(polled) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(n) => Ok(Some(n)),
        Err(error) => Err(error),
    })
}

/// Whether half of the memory budget is in use. A payload that its target did not take keeps the
/// whole buffer from which it was cut. So a reader uses small buffers while memory is tight.
fn is_tight(link: &Inner) -> bool {
    link.budget.left() < link.budget.total() / 2
}

/// Makes sure that a read is worth its system call: takes the whole buffer again if no payload
/// holds a part of it, else another buffer.
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
    link.company.turns(now);
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

/// Tells the link how reading ended.
pub(crate) fn report(link: &Rc<Inner>, io: &CarrierIo, outcome: ReadEnd) {
    match outcome {
        ReadEnd::Lost(error) => {
            tracing::debug!(link = link.serial, carrier = io.number.0, %error, "carrier lost");
            link.carrier_ended(io.number);
        }
        ReadEnd::Violation(violation) => {
            let serial = link.serial;
            tracing::warn!(
                link = serial, %violation,
                "link {serial} ends, because the peer broke the protocol: {violation}"
            );
            link.end(End::Violation(violation));
        }
        ReadEnd::Over => {}
    }
}
