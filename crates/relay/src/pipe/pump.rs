//! The one task of a stream, a hand-written future: as an `async fn` its parked state would be
//! several times as large.
//!
//! ```text
//!   reading:  Open ──EOF──────────────> Ended    inlet.finish
//!             Open ──stop by the peer─> Stopped  inlet.reset
//!             Open ──read error───────> abort    inlet.reset, inlet.stop, RST
//!   writing:  Open ──finish, queue out> Ended    shutdown(Write)
//!             Open ──write error──────> Broken   inlet.stop; reading goes on to its own end
//!   any:      reset by the peer, error while stalled, timeout ─────────> abort
//!   both directions ended ─> close; Stopped + Ended linger first
//! ```

use std::fmt;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use net::pool;
use proto::{HEAD_ROOM, ResetCode};
use transport::{Inlet, LocalFuture};

use super::Pipe;
use super::reader::ReadSize;
use super::watchdog::Watchdog;
use crate::{Permit, Socket};

/// Bytes moved per direction and poll before others have their turn: 256 KiB take some 50 µs, the
/// time a neighbour may have to wait. tokio's own budget does not count these calls' bytes.
const BUDGET: usize = 256 << 10;

/// Reads per poll, for streams that bring few bytes each time.
const FRAMES: usize = 64;

/// How long a socket whose bytes nobody wants stays open after the last answer was written.
/// Closing at once would send RST, which makes the system drop that answer where it is not yet
/// acknowledged (RFC 9112 section 9.6). As long as nginx lingers.
const LINGER: Duration = Duration::from_secs(5);

/// How much is read and thrown away meanwhile, to see the end of a socket that ends soon. One that
/// goes on sending is left to its full window: an aborted download costs no further work.
const DISCARD: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    /// The peer wants no more; the socket may have more.
    Stopped,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Open,
    /// The socket takes no more.
    Broken,
    /// FIN is on its way.
    Ended,
}

/// Why reading paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// Nothing there; the task is woken by the socket.
    Empty,
    /// No room in the link; the task is woken by it.
    Stalled,
    /// The budget is spent; others first.
    Budget,
    /// The direction has ended.
    Ended,
}

/// Moves the bytes of one stream until both directions have ended. Dropped before that, it aborts
/// both the socket and the stream.
pub(crate) struct Pump {
    pipe: Rc<Pipe>,
    inlet: Box<dyn Inlet>,
    /// Waits for an error of the socket. Asked only while the socket is not read; made by the first
    /// stall and kept for the next one.
    watch: Option<LocalFuture<'static, ()>>,
    watchdog: Option<Box<Watchdog>>,
    _permit: Option<Permit>,
    reading: Reading,
    writing: Writing,
    size: ReadSize,
    discarded: u32,
}

impl Pump {
    /// A pump for a connected pipe; to be spawned on the thread of its link.
    pub(crate) fn new(pipe: Rc<Pipe>, inlet: Box<dyn Inlet>, permit: Option<Permit>) -> Self {
        Self {
            pipe,
            inlet,
            watch: None,
            watchdog: None,
            _permit: permit,
            reading: Reading::Open,
            writing: Writing::Open,
            size: ReadSize::default(),
            discarded: 0,
        }
    }

    /// Writes what is queued, then the FIN that was asked for. Returns whether more is to be
    /// written than the budget allows.
    fn write(&mut self, socket: &Socket, cx: &mut Context<'_>) -> bool {
        if self.writing != Writing::Open {
            return false;
        }
        let mut written = 0;
        let mut broken = self.pipe.deaf.get();
        while !broken && written < BUDGET && !self.pipe.queue.borrow().is_empty() {
            match socket.poll_write_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(_)) => broken = true,
                Poll::Ready(Ok(())) => match self.pipe.queue.borrow_mut().write(socket) {
                    Ok(n) => written += n.unwrap_or(0),
                    Err(_) => broken = true,
                },
            }
        }
        if written > 0 {
            self.pipe.active.set(true);
            self.pipe.settings.stats.count_out(written);
        }
        let left = !self.pipe.queue.borrow().is_empty();
        let thrown = if broken { self.pipe.queue.take().clear() } else { 0 };
        if written + thrown > 0 {
            self.inlet.consumed(written + thrown);
        }
        if broken {
            self.writing = Writing::Broken;
            self.pipe.deaf.set(true);
            self.inlet.stop(ResetCode::Aborted);
        } else if !left && self.pipe.finish.get() {
            socket.finish();
            self.writing = Writing::Ended;
            self.pipe.deaf.set(true);
        }
        !broken && left && written >= BUDGET
    }

    /// Reads while there is room, bytes and budget. An error of the socket is `Err`.
    fn read(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Result<Pause, ()> {
        if self.reading == Reading::Open && self.pipe.stop.get() {
            self.reading = Reading::Stopped;
            self.inlet.reset(ResetCode::Aborted);
        }
        if self.reading != Reading::Open {
            return Ok(Pause::Ended);
        }
        // Taken when there is something to read: an idle or stalled stream holds none.
        let mut buffer = BytesMut::new();
        let pause = self.read_into(&mut buffer, socket, cx);
        pool::give(buffer);
        pause
    }

    fn read_into(
        &mut self,
        buffer: &mut BytesMut,
        socket: &Socket,
        cx: &mut Context<'_>,
    ) -> Result<Pause, ()> {
        let (mut moved, mut frames) = (0, 0);
        loop {
            let room = self.inlet.room();
            if room == 0 {
                return Ok(Pause::Stalled);
            }
            if moved >= BUDGET || frames >= FRAMES {
                return Ok(Pause::Budget);
            }
            match socket.poll_read_ready(cx) {
                Poll::Pending => return Ok(Pause::Empty),
                Poll::Ready(Err(_)) => return Err(()),
                Poll::Ready(Ok(())) => {}
            }
            let wanted = self.size.wanted(room);
            if buffer.capacity() < wanted {
                pool::give(std::mem::replace(buffer, pool::take(wanted)));
            }
            buffer.resize(HEAD_ROOM, 0);
            let limit = room.min(wanted - HEAD_ROOM);
            match socket.read(buffer, limit) {
                // Readiness was cleared: the next poll_read_ready waits for news.
                Ok(None) => buffer.clear(),
                Ok(Some(0)) => {
                    self.reading = Reading::Ended;
                    self.inlet.finish();
                    return Ok(Pause::Ended);
                }
                Ok(Some(n)) => {
                    self.size.adapt(n, wanted - HEAD_ROOM);
                    self.pipe.active.set(true);
                    self.pipe.settings.stats.count_in(n);
                    self.inlet.send(buffer);
                    moved += n;
                    frames += 1;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => buffer.clear(),
                Err(_) => return Err(()),
            }
        }
    }

    /// Ends both directions, a TCP socket by RST.
    fn abort(&mut self, code: ResetCode) -> Poll<()> {
        // All of this is a no-op for a direction that has ended already.
        if self.reading == Reading::Open {
            self.inlet.reset(code);
        }
        if self.writing == Writing::Open && self.pipe.reset.get().is_none() {
            self.inlet.stop(code);
        }
        self.close(true)
    }

    fn close(&mut self, abort: bool) -> Poll<()> {
        self.reading = Reading::Ended;
        self.writing = Writing::Ended;
        self.watch = None;
        self.pipe.close(abort);
        Poll::Ready(())
    }

    /// A reset by the peer ends the connection, with one exception: when we told the peer to stop
    /// because the socket takes no more, its reset is merely the answer, and what the socket still
    /// has to say is to be read. A link that ends is no answer.
    fn aborted_by_peer(&self) -> bool {
        let of_link = |code| matches!(code, ResetCode::Shutdown | ResetCode::Internal);
        self.pipe.reset.get().is_some_and(|code| self.writing != Writing::Broken || of_link(code))
    }

    /// Whether the socket failed while it is not read. One that takes no more bytes has failed
    /// already and is only read to its end.
    fn failed(&mut self, socket: &Rc<Socket>, cx: &mut Context<'_>) -> bool {
        if self.writing == Writing::Broken {
            self.watch = None;
            return false;
        }
        let watch = self.watch.get_or_insert_with(|| {
            let socket = Rc::clone(socket);
            Box::pin(async move { socket.failed().await })
        });
        watch.as_mut().poll(cx).is_ready()
    }

    /// Whether nothing moved for as long as is allowed in the present state.
    fn overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let timeouts = &self.pipe.settings.timeouts;
        let lingering = self.lingering();
        let half_closed = self.reading != Reading::Open || self.writing != Writing::Open;
        let period = match (lingering, half_closed) {
            (true, _) => LINGER,
            (false, true) => timeouts.half_close,
            (false, false) => timeouts.idle,
        };
        if period.is_zero() {
            self.watchdog = None;
            return false;
        }
        if self.watchdog.as_ref().is_none_or(|dog| dog.period() != period) {
            self.pipe.active.set(false);
            self.watchdog = Some(Box::new(Watchdog::new(period)));
        }
        self.watchdog.as_mut().is_some_and(|dog| dog.poll(cx, &self.pipe.active).is_ready())
    }

    fn lingering(&self) -> bool {
        self.reading == Reading::Stopped && self.writing == Writing::Ended
    }

    /// Reads and throws away a bounded amount, to see the end of the socket.
    fn discard(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Pause {
        let mut buffer = BytesMut::new();
        let pause = loop {
            if self.discarded as usize >= DISCARD {
                break Pause::Stalled;
            }
            match socket.poll_read_ready(cx) {
                Poll::Pending => break Pause::Empty,
                Poll::Ready(Err(_)) => break Pause::Ended,
                Poll::Ready(Ok(())) => {}
            }
            if buffer.capacity() == 0 {
                buffer = pool::take(self.size.wanted(usize::MAX));
            }
            buffer.clear();
            match socket.read(&mut buffer, DISCARD) {
                Ok(Some(0)) | Err(_) => break Pause::Ended,
                // The limit and one buffer more are far below the end of u32.
                Ok(n) => self.discarded += n.unwrap_or(0) as u32,
            }
        };
        pool::give(buffer);
        pause
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(socket) = this.pipe.socket.borrow().clone() else { return Poll::Ready(()) };
        this.pipe.park(cx.waker());
        if this.aborted_by_peer() {
            drop(socket);
            return this.abort(ResetCode::Aborted);
        }
        let mut again = this.write(&socket, cx);
        let Ok(mut pause) = this.read(&socket, cx) else {
            drop(socket);
            return this.abort(ResetCode::Aborted);
        };
        if this.lingering() {
            pause = this.discard(&socket, cx);
            if pause == Pause::Ended {
                this.reading = Reading::Ended;
            }
        }
        again |= pause == Pause::Budget;
        match (this.reading, this.writing) {
            (Reading::Ended, Writing::Ended | Writing::Broken)
            | (Reading::Stopped, Writing::Broken) => {
                drop(socket);
                return this.close(false);
            }
            _ => {
                if matches!(pause, Pause::Stalled | Pause::Ended) && this.failed(&socket, cx) {
                    drop(socket);
                    return this.abort(ResetCode::Aborted);
                }
            }
        }
        drop(socket);
        if this.overdue(cx) {
            return if this.lingering() {
                this.close(false)
            } else {
                this.abort(ResetCode::Timeout)
            };
        }
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // After the end there is nothing left to close.
        self.watch = None;
        self.pipe.close(true);
    }
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump")
            .field("reading", &self.reading)
            .field("writing", &self.writing)
            .finish_non_exhaustive()
    }
}
