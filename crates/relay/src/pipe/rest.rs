//! The state of a pump whose connection is idle: the state that remains without the task, the
//! socket's registration and the buffers for bytes ([`crate::rest`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd};
use tokio::task::spawn_local;
use tokio::time::Instant;
use transport::Inlet;

use super::facts::{Fact, Facts};
use super::timers::Clocks;
use super::{ByteEnd, Pipe, Pump};
use crate::socket::Detached;
use crate::stall_pressure::Unmoved;
use crate::{Permit, Settings, Socket, Visit};

/// A pump that its connection can take from its task.
pub(crate) struct Shared(RefCell<Option<Lodged>>);

/// A pump, and the slot in which its connection finds it.
struct Lodged {
    pump: Pump,
    slot: Slot,
}

/// The task of such a pump. It ends with the pump, or after the pump is taken.
struct Driven(Rc<Shared>);

/// A connection whose pumps can become idle together.
pub(crate) trait Restable {
    /// Registers the pump of this side with the connection.
    fn lodge(&self, side: usize, pump: Weak<Shared>);

    /// Removes the pump of this side from the connection. The other side is not notified.
    fn part(&self, side: usize);
}

/// Where a connection finds the pump of one of its sides.
pub(crate) struct Slot {
    pub(crate) connection: Rc<dyn Restable>,
    pub(crate) side: usize,
}

impl Pump {
    /// Starts the task of the pump. With a `slot`, the connection can put the pump to rest.
    pub(crate) fn start(self, slot: Option<Slot>) {
        let Some(slot) = slot.filter(|_| self.pipe.is_bare()) else {
            spawn_local(self);
            return;
        };
        let (connection, side) = (Rc::clone(&slot.connection), slot.side);
        let shared = Rc::new(Shared(RefCell::new(Some(Lodged { pump: self, slot }))));
        connection.lodge(side, Rc::downgrade(&shared));
        spawn_local(Driven(shared));
    }

    /// Dissolves the pump and its pipe. `None`: another owner still uses a part of them, and the
    /// socket is closed.
    fn rest(mut self, slot: &Slot) -> Option<Rest> {
        self.watch = None;
        let pipe = Rc::clone(&self.pipe);
        // The woken task finds no pump and ends.
        pipe.wake();
        let (end, unmoved) = (pipe.end.take()?, pipe.unmoved.take());
        let (permit, clocks) =
            (self.permit.take(), self.timers.take().and_then(|timers| timers.rest()));
        slot.connection.part(slot.side);
        drop(self);
        let mut pipe = Rc::try_unwrap(pipe).ok()?;
        // Dropping the pipe will uncount the stream, so the `Rest` is counted as live here.
        pipe.settings.stats.enter();
        let mut rest = Rest {
            end: None,
            settings: Rc::clone(&pipe.settings),
            visit: pipe.visit.take(),
            permit,
            clocks,
            unmoved,
            read: pipe.read.get(),
            written: pipe.written.get(),
            facts: pipe.facts.clone(),
            active: pipe.active.get(),
        };
        let Ok(ByteEnd::Socket(socket)) = Rc::try_unwrap(end) else { return None };
        rest.end = Some(socket.detach().ok()?);
        Some(rest)
    }
}

impl Shared {
    /// Whether the pump has nothing to do for at least `least` unless a byte arrives.
    pub(crate) fn may_rest(&self, least: Duration) -> bool {
        let may_rest =
            |Lodged { pump, .. }: &Lodged| pump.may_rest(least) && pump.pipe.is_drained();
        self.0.try_borrow().is_ok_and(|lodged| lodged.as_ref().is_some_and(may_rest))
    }

    /// Takes the pump from its task.
    pub(crate) fn take(&self) -> Option<Rest> {
        let lodged = self.0.try_borrow_mut().ok()?.take();
        lodged.and_then(|Lodged { pump, slot }| pump.rest(&slot))
    }
}

impl Future for Driven {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut lodged = self.0.0.borrow_mut();
        let Some(Lodged { pump, .. }) = lodged.as_mut() else { return Poll::Ready(()) };
        if Pin::new(pump).poll(cx).is_pending() {
            return Poll::Pending;
        }
        let ended = lodged.take();
        drop(lodged);
        drop(ended);
        Poll::Ready(())
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let aborted = self.0.0.take();
        drop(aborted);
    }
}

impl Pipe {
    /// Whether the end is a socket whose bytes are not inspected.
    fn is_bare(&self) -> bool {
        let end = self.end.borrow();
        self.guard.get().is_none() && matches!(end.as_deref(), Some(ByteEnd::Socket(_)))
    }

    /// Whether the kernel is queried about bytes in flight: bytes of a Unix socket have arrived
    /// already.
    fn is_asked_about(&self) -> bool {
        !matches!(self.end.borrow().as_deref(), Some(ByteEnd::Socket(Socket::Unix(_))))
    }

    /// Whether the pipe is idle and empty, and the far end of its socket has acknowledged all
    /// bytes.
    fn is_drained(self: &Rc<Self>) -> bool {
        let is_open = self.reset.get().is_none()
            && !self.finish.get()
            && !self.stop.get()
            && !self.deaf.get();
        // The pump and the other direction hold the two references.
        let is_ours = Rc::strong_count(self) == 2;
        is_open
            && is_ours
            && self.is_bare()
            && (!self.on_the_way.is_awaited() || !self.is_asked_about())
            && !self.facts.has(Fact::Revocable)
            && self.queue.borrow().is_empty()
    }
}

/// A pump and its pipe at rest. Dropping it resets the socket's connection.
pub(crate) struct Rest {
    /// `None`: the socket is in use again.
    end: Option<Detached>,
    settings: Rc<Settings>,
    visit: Option<Box<Visit>>,
    permit: Option<Permit>,
    clocks: Option<Box<Clocks>>,
    unmoved: Option<Unmoved>,
    read: u16,
    written: u16,
    facts: Facts,
    active: u8,
}

impl Rest {
    /// The time of the earliest time-out.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.clocks.as_ref()?.due()
    }

    /// The settings of the stream.
    pub(crate) const fn settings(&self) -> &Rc<Settings> {
        &self.settings
    }

    /// The socket.
    pub(crate) const fn end(&self) -> Option<&Detached> {
        self.end.as_ref()
    }

    /// Registers the socket with `epoll`.
    pub(crate) fn register(&self, epoll: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let Some(end) = &self.end else { return Ok(()) };
        let what = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        Ok(epoll::add(epoll, end.as_fd(), epoll::EventData::new_u64(key), what)?)
    }

    /// Removes the socket from `epoll`.
    pub(crate) fn deregister(&self, epoll: BorrowedFd<'_>) {
        if let Some(end) = &self.end {
            // The socket may not be registered.
            let _ = epoll::delete(epoll, end.as_fd());
        }
    }

    /// The address of the visitor or of the target, as [`transport::Outlet::peer`].
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        let listed = self.visit.as_ref().and_then(|visit| visit.listed());
        listed.or_else(|| self.end()?.peer())
    }

    /// Registers the socket with the runtime, and makes a new pipe.
    pub(crate) fn pipe(&mut self) -> io::Result<Rc<Pipe>> {
        let end = self.end.take().ok_or(io::ErrorKind::NotConnected)?;
        let socket = end.attach()?;
        let (settings, visit) = (Rc::clone(&self.settings), self.visit.take());
        let mut pipe = Pipe::counted(settings, visit, OnceCell::new());
        pipe.read = Cell::new(self.read);
        pipe.written = Cell::new(self.written);
        pipe.facts = self.facts.clone();
        pipe.active = Cell::new(self.active);
        pipe.unmoved = Cell::new(self.unmoved.take());
        pipe.attach(socket.into());
        Ok(Rc::new(pipe))
    }

    /// Starts the pump of this new pipe.
    pub(crate) fn start(mut self, pipe: Rc<Pipe>, inlet: Box<dyn Inlet>, slot: Option<Slot>) {
        let (permit, clocks) = (self.permit.take(), self.clocks.take());
        Pump::resumed(pipe, inlet, permit, clocks).start(slot);
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(end) = &self.end {
            end.reset_on_close();
        }
        if let (Some(visit), Some(watcher)) = (&self.visit, &self.settings.watcher)
            && visit.is_logged()
        {
            watcher.ended(visit);
        }
        self.settings.stats.leave();
    }
}
