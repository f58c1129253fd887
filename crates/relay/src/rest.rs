//! Idle connections without a link. A connection between two plain sockets of this process that has
//! moved no byte for a while is put to rest: the tasks of its pumps end, the sockets are
//! deregistered from the runtime, and a record of both ends waits for the next event. One epoll(7)
//! instance per thread reports events of the sockets of all records.
//!
//! ```text
//!   passage ── idle for 15 s to 30 s ──> Resting ── byte, end, error, time-out, close ──> passage
//! ```
//!
//! Nothing is lost meanwhile: arriving bytes stay in the socket, and epoll(7) reports a socket as
//! long as it has bytes. A connection keeps its number in the list, its permit, its seats and its
//! counters. The pumps enforce time-outs, so a connection is woken some time before a time-out is
//! due, and is not put to rest when a time-out is near.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use slab::Slab;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, timeout};

use crate::Held;
use crate::attention::SWEEP;
use crate::connection_table::{ConnectionEntry, Place, Tracked};
use crate::pipe::Rest;

/// A connection is woken when a time-out is due within this time, because the next check follows
/// after [`SWEEP`].
const AHEAD: Duration = SWEEP.saturating_mul(2);

/// A connection with a time-out due within this time is not put to rest.
pub(crate) const LEAST: Duration = SWEEP.saturating_mul(4);

/// The number of events to handle before other tasks run. Waking a connection takes about 15 µs.
const AT_ONCE: usize = 64;

/// The part of the memory budget that a connection at rest takes: its record with two seats and its
/// list entries.
const STATE: u64 = 1 << 10;

/// A connection at rest.
pub(crate) struct Resting {
    key: Cell<usize>,
    /// `None`: the connection is awake.
    content: RefCell<Option<Content>>,
}

struct Content {
    /// The visitor's end and the target's end.
    ends: [Rest; 2],
    /// The numbers of bytes sent to the target and to the visitor.
    passed: [u64; 2],
    held: Held,
    /// The memory of the connection when it is awake and no bytes are queued.
    base: u64,
    place: Option<Place>,
}

/// A connection that was at rest.
pub(crate) struct Woken {
    /// The visitor's end and the target's end.
    pub(crate) ends: [Rest; 2],
    /// The numbers of bytes sent to the target and to the visitor.
    pub(crate) passed: [u64; 2],
    /// The charged memory of the connection, without queued bytes.
    pub(crate) held: Held,
    pub(crate) place: Option<Place>,
}

/// The function that joins the pumps of both ends again. `None`: the connection is lost.
pub(crate) type Join = fn(Woken) -> Option<Rc<dyn Tracked>>;

/// The resting connections of a thread.
struct All {
    epoll: AsyncFd<OwnedFd>,
    join: Join,
    resting: RefCell<Slab<Rc<Resting>>>,
}

thread_local! {
    // The task of the thread owns the connections, so they end with its runtime.
    static ALL: RefCell<Weak<All>> = const { RefCell::new(Weak::new()) };
}

/// Puts a connection to rest. `passed`: its byte counts to the target and to the visitor; `base`:
/// its memory when it is awake; `join`: the function that wakes it, the same for all connections of
/// a thread.
pub(crate) fn rest(
    ends: [Rest; 2],
    passed: [u64; 2],
    (held, base): (Held, u64),
    place: Option<Place>,
    join: Join,
) {
    held.set(base.min(STATE));
    let content = Content { ends, passed, held, base, place };
    let Ok(all) = all(join) else { return drop(content.wake(join)) };
    let resting = Rc::new(Resting { key: Cell::new(0), content: RefCell::default() });
    if let Some(place) = &content.place {
        let tracked: Rc<dyn Tracked> = Rc::<Resting>::clone(&resting);
        place.renew(Rc::downgrade(&tracked));
    }
    let key = all.resting.borrow_mut().insert(Rc::clone(&resting));
    resting.key.set(key);
    let epoll = all.epoll.get_ref().as_fd();
    let registered = content.ends.iter().try_for_each(|end| end.register(epoll, key as u64));
    resting.content.replace(Some(content));
    if registered.is_err() {
        // The system allows no more registrations (epoll(7), `max_user_watches`).
        all.wake(key);
    }
}

/// The connections of this thread.
fn all(join: Join) -> io::Result<Rc<All>> {
    ALL.with_borrow_mut(|known| {
        if let Some(all) = known.upgrade() {
            return Ok(all);
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let epoll = watched(epoll)?;
        let all = Rc::new(All { epoll, join, resting: RefCell::default() });
        *known = Rc::downgrade(&all);
        spawn_local(tend(Rc::clone(&all)));
        Ok(all)
    })
}

/// Registers an epoll(7) instance with the runtime.
#[expect(deprecated, reason = "the other call is unsafe, and an `OwnedFd` keeps its promise")]
fn watched(epoll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(epoll, Interest::READABLE)
}

/// Wakes connections until none rests.
async fn tend(all: Rc<All>) {
    let mut look = Instant::now() + SWEEP;
    loop {
        let rest = look.saturating_duration_since(Instant::now());
        match timeout(rest, all.epoll.readable()).await {
            Ok(Ok(mut ready)) => {
                if all.wake_ready() {
                    ready.clear_ready();
                }
                drop(ready);
                yield_now().await;
            }
            // The runtime ends.
            Ok(Err(_)) => return,
            Err(_) => {
                look = Instant::now() + SWEEP;
                all.wake_due();
            }
        }
        let is_over = all.resting.borrow().is_empty();
        if is_over {
            // A connection that is put to rest later gets a new task and a new instance.
            ALL.set(Weak::new());
            return;
        }
    }
}

impl All {
    /// Wakes connections whose sockets have events. Returns true if all such connections are awake.
    fn wake_ready(&self) -> bool {
        let mut buffer = [const { MaybeUninit::uninit() }; AT_ONCE];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(self.epoll.get_ref(), &mut buffer, Some(&now)) else {
            return true;
        };
        let is_rest = events.len() < AT_ONCE;
        for event in events {
            // Both sockets of a connection may have an event, the first of which has woken it.
            self.wake(usize::try_from(event.data.u64()).unwrap_or(usize::MAX));
        }
        is_rest
    }

    /// Wakes the connections whose time-outs are due soon.
    fn wake_due(&self) {
        let soon = Instant::now() + AHEAD;
        let is_due = |(key, resting): (usize, &Rc<Resting>)| {
            let content = resting.content.borrow();
            let mut due = content.iter().flat_map(|content| &content.ends).filter_map(Rest::due);
            due.any(|due| due <= soon).then_some(key)
        };
        let keys: Vec<_> = self.resting.borrow().iter().filter_map(is_due).collect();
        for key in keys {
            self.wake(key);
        }
    }

    /// Wakes a connection, if it rests.
    fn wake(&self, key: usize) -> Option<Rc<dyn Tracked>> {
        let resting = self.resting.borrow_mut().try_remove(key)?;
        let content = resting.content.take()?;
        for end in &content.ends {
            end.deregister(self.epoll.get_ref().as_fd());
        }
        content.wake(self.join)
    }
}

impl Content {
    /// Restores the connection with its tasks. If the runtime cannot register a socket, both
    /// sockets are reset.
    fn wake(self, join: Join) -> Option<Rc<dyn Tracked>> {
        let Self { ends, passed, held, base, place } = self;
        held.set(base);
        join(Woken { ends, passed, held, place })
    }
}

impl Tracked for Resting {
    fn entry(&self) -> Option<ConnectionEntry> {
        let content = self.content.borrow();
        let Content { ends: [visitor, _], passed, .. } = content.as_ref()?;
        Some(ConnectionEntry {
            visitor: visitor.peer(),
            bytes_in: passed[0],
            bytes_out: passed[1],
            counted: visitor.settings().stats.identity(),
        })
    }

    fn abort(&self) {
        if let Some(all) = ALL.with_borrow(Weak::upgrade)
            && let Some(awake) = all.wake(self.key.get())
        {
            awake.abort();
        }
    }
}

impl fmt::Debug for Resting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resting({})", self.key.get())
    }
}
