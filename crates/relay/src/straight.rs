//! Visitors that are connected with a target of this machine's side, without a link.
//!
//! Both ends are those of a stream, with the same pump, time-outs and counters: what the pump of one
//! socket sends is delivered to the other socket.
//!
//! ```text
//!   visitor --read--> pump --Side::send--> pipe of the target --write--> target
//!   visitor <--write-- pipe of the visitor <--Side::send-- pump <--read-- target
//! ```
//!
//! Bytes that the far socket does not take wait in its pipe and are charged to the memory budget.
//! When memory is short, little waits per direction.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use proto::{Budget, HEAD_ROOM, ResetCode};
use tokio::task::spawn_local;
use tokio::time::sleep;
use transport::{Inlet, Outlet};

use crate::pipe::{Pipe, Pump};
use crate::visitor::refuse_socket;
use crate::{Caller, Held, Permit, Settings, Socket, Stats, TargetAddr, Timeouts, connect_stream};

/// Bytes that may wait in each direction, the largest read of a pump at a time.
const WINDOW: usize = 64 << 10;

/// Bytes that may wait in each direction when memory is short: the part of one read that a full
/// socket did not take. Less would cost a system call for every few bytes.
const LEAST: usize = 2 << 10;

/// What a connection costs without bytes that wait: two sockets with their registrations, two pipes
/// and the tasks of two pumps.
const STATE: u64 = 4 << 10;

/// Bytes that wait leave this part of the budget free, as windows do.
const RESERVE: u64 = 4;

/// A connection in which bytes wait for both ends, and none moves, ends after so many checks: after
/// 40 s. A program that only pauses one direction, as a terminal or a download does, is not
/// concerned.
const CHECKS: u8 = 4;
const CHECK: Duration = Duration::from_secs(10);

/// Connects the visitors of one worker with a target.
pub struct Straight {
    target: TargetAddr,
    /// The settings of the visitors' ends, which have the time-outs and the counters.
    near: Rc<Settings>,
    /// The settings of the targets' ends.
    far: Rc<Settings>,
    budget: Rc<dyn Budget>,
    passages: RefCell<Vec<Weak<Passage>>>,
    checking: Cell<bool>,
}

impl Straight {
    /// Connections to `target`, whose memory is charged to `budget`.
    #[must_use]
    pub fn new(target: TargetAddr, settings: Rc<Settings>, budget: Rc<dyn Budget>) -> Rc<Self> {
        let far = Settings {
            timeouts: Timeouts {
                idle: Duration::ZERO,
                half_close: Duration::ZERO,
                ..settings.timeouts
            },
            stats: Rc::default(),
            watcher: None,
            ..Settings::clone(&settings)
        };
        Rc::new(Self {
            target,
            near: settings,
            far: Rc::new(far),
            budget,
            passages: RefCell::default(),
            checking: Cell::new(false),
        })
    }

    /// The counters of the visitors.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.near.stats
    }

    /// The target.
    #[must_use]
    pub const fn target(&self) -> &TargetAddr {
        &self.target
    }

    /// Dials the target and carries the bytes of a visitor until both directions have ended. The
    /// visitor is reset when memory is short, without a permit, and when the target cannot be
    /// reached. Each of these is counted as refused.
    pub fn serve(
        self: &Rc<Self>,
        visitor: Socket,
        peer: Option<SocketAddr>,
        permit: Option<Permit>,
    ) {
        let held = permit.is_some().then(|| Held::draw(&self.budget, STATE)).flatten();
        let Some(held) = held else {
            return refuse_socket(visitor, &self.near, ResetCode::Limit);
        };
        let passage = Passage::new(Rc::clone(&self.budget), held);
        let near = Pipe::new(Rc::clone(&self.near), peer);
        passage.halves[TO_VISITOR].outlet.replace(Some(Rc::<Pipe>::clone(&near)));
        let caller = Caller { visitor: peer, ..Caller::default() };
        let from_target = Box::new(Side::new(&passage, TO_VISITOR));
        let far = connect_stream(self.target.clone(), caller, from_target, &self.far, None);
        passage.halves[TO_TARGET].outlet.replace(Some(far));
        let from_visitor = Box::new(Side::new(&passage, TO_TARGET));
        near.connect(visitor);
        self.watch(&passage);
        spawn_local(Pump::new(near, from_visitor, permit));
    }

    /// Has a connection checked as long as it lives. One task checks all.
    fn watch(self: &Rc<Self>, passage: &Rc<Passage>) {
        self.passages.borrow_mut().push(Rc::downgrade(passage));
        if self.checking.replace(true) {
            return;
        }
        let straight = Rc::clone(self);
        spawn_local(async move {
            loop {
                sleep(CHECK).await;
                let live: Vec<_> =
                    straight.passages.borrow().iter().filter_map(Weak::upgrade).collect();
                if live.is_empty() {
                    straight.passages.take();
                    return straight.checking.set(false);
                }
                live.iter().for_each(|passage| passage.check());
                straight.passages.replace(live.iter().map(Rc::downgrade).collect());
            }
        });
    }
}

impl fmt::Debug for Straight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Straight({})", self.target)
    }
}

/// A connection: two directions.
struct Passage {
    halves: [Half; 2],
    budget: Rc<dyn Budget>,
    held: Held,
    /// A byte moved since the last check.
    moved: Cell<bool>,
    /// Checks since the last byte.
    quiet: Cell<u8>,
}

/// The places of the directions in a passage.
const TO_TARGET: usize = 0;
const TO_VISITOR: usize = 1;

/// One direction.
#[derive(Default)]
struct Half {
    /// The socket that the bytes are for; `None` after the end.
    outlet: RefCell<Option<Rc<dyn Outlet>>>,
    /// Bytes that wait in the outlet.
    queued: Cell<usize>,
    /// The pump that sends was told that there is no room.
    starved: Cell<bool>,
}

impl Half {
    fn outlet(&self) -> Option<Rc<dyn Outlet>> {
        self.outlet.borrow().clone()
    }
}

impl Passage {
    fn new(budget: Rc<dyn Budget>, held: Held) -> Rc<Self> {
        Rc::new(Self {
            halves: Default::default(),
            budget,
            held,
            moved: Cell::new(true),
            quiet: Cell::new(0),
        })
    }

    fn waiting(&self) -> u64 {
        self.halves.iter().map(|half| half.queued.get() as u64).sum()
    }

    /// Charges the bytes that wait. A queue that grows has up to twice the size of its bytes.
    fn settle(&self) {
        self.moved.set(true);
        self.held.set(STATE + 2 * self.waiting());
    }

    /// Whether a whole window may wait: a connection holds no more than it leaves to all others.
    fn may_grow(&self) -> bool {
        let spare = self.budget.left().saturating_sub(self.budget.total() / RESERVE);
        STATE + 2 * (self.waiting() + WINDOW as u64) <= spare
    }

    fn check(&self) {
        let is_stuck = self.halves.iter().all(|half| half.queued.get() > 0);
        let quiet = if self.moved.take() || !is_stuck { 0 } else { self.quiet.get() + 1 };
        self.quiet.set(quiet);
        if quiet >= CHECKS {
            for half in &self.halves {
                if let Some(outlet) = half.outlet() {
                    outlet.reset(ResetCode::Timeout);
                }
            }
        }
    }
}

/// The end of one pump.
struct Side {
    passage: Rc<Passage>,
    /// The direction in which the pump sends.
    out: usize,
    has_ended: Cell<bool>,
    has_stopped: Cell<bool>,
}

impl Side {
    fn new(passage: &Rc<Passage>, out: usize) -> Self {
        let passage = Rc::clone(passage);
        Self { passage, out, has_ended: Cell::new(false), has_stopped: Cell::new(false) }
    }

    fn out(&self) -> &Half {
        &self.passage.halves[self.out]
    }

    fn back(&self) -> &Half {
        &self.passage.halves[1 - self.out]
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.out == TO_TARGET { "Side(visitor)" } else { "Side(target)" })
    }
}

impl Inlet for Side {
    fn room(&self) -> usize {
        let half = self.out();
        let queued = half.queued.get();
        let room = if self.passage.may_grow() {
            WINDOW.saturating_sub(queued)
        } else if queued == 0 {
            LEAST
        } else {
            0
        };
        half.starved.set(room == 0);
        room
    }

    fn send(&self, frame: &mut BytesMut) {
        let mut payload = std::mem::take(frame).freeze();
        payload.advance(HEAD_ROOM.min(payload.len()));
        let size = payload.len();
        let half = self.out();
        let Some(outlet) = half.outlet() else { return };
        let mut pieces = VecDeque::from([payload]);
        let taken = outlet.deliver(&mut pieces);
        half.queued.set(half.queued.get() + size.saturating_sub(taken));
        self.passage.settle();
    }

    fn finish(&self) {
        self.has_ended.set(true);
        if let Some(outlet) = self.out().outlet() {
            outlet.finish();
        }
    }

    fn reset(&self, code: ResetCode) {
        self.has_ended.set(true);
        // The pipe throws away what waits in it.
        self.out().queued.set(0);
        self.passage.settle();
        if let Some(outlet) = self.out().outlet() {
            outlet.reset(code);
        }
    }

    fn stop(&self, code: ResetCode) {
        self.has_stopped.set(true);
        // The far pump sends to this end: its own pipe learns that nobody takes the bytes.
        if let Some(outlet) = self.out().outlet() {
            outlet.stop(code);
        }
    }

    fn consumed(&self, bytes: usize) {
        let half = self.back();
        half.queued.set(half.queued.get().saturating_sub(bytes));
        self.passage.settle();
        // The far pump waits for room in the direction that this end has written.
        if half.starved.get()
            && let Some(outlet) = self.out().outlet()
        {
            outlet.room();
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if !self.has_ended.get() {
            self.reset(ResetCode::Aborted);
        }
        if !self.has_stopped.get() {
            self.stop(ResetCode::Aborted);
        }
        self.back().outlet.take();
    }
}
