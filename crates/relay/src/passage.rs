//! A stream inside this process. It joins the pumps of two ends without a link: bytes that the pump
//! of one end sends are delivered to the other end.
//!
//! ```text
//!   visitor --read--> pump --Side::send--> pipe of the target --write--> target
//!   visitor <--write-- pipe of the visitor <--Side::send-- pump <--read-- target
//! ```
//!
//! The pump of the visitor has the time-outs and the counters of the connection. Bytes that the far
//! end does not take are queued in its pipe and charged to the memory budget. When memory is short,
//! the queues are small.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use net::pages::Pages;
use proto::{Budget, HEAD_ROOM, ResetCode};
use tokio::task::spawn_local;
use transport::{Inlet, Outlet, PageInlet};

use crate::attention::{self, Ask, Watched};
use crate::connection_table::{ConnectionEntry, ConnectionTable, Place, Tracked};
use crate::pipe::{Http, Layered, Pipe, Pump, Restable, Shared, Slot, StreamInlet};
use crate::rest::{self, Woken};
use crate::{Held, Settings, Socket, Timeouts, Visitor};

/// The maximum number of queued bytes per direction, and of bytes in one read of a pump.
const WINDOW: usize = 64 << 10;

/// The maximum number of queued bytes per direction when memory is short: the remainder of one read
/// that a full socket did not take. A smaller value would cost a system call for every few bytes.
const LEAST: usize = 2 << 10;

/// The maximum number of queued bytes per direction as pages: one pipe, which is filled when it is
/// empty.
const PAGES: usize = 256 << 10;

/// Queued bytes leave 1/4 of the budget free, as windows do.
const RESERVE: u64 = 4;

/// A connection in which bytes are queued for both ends, and none moves, ends after this number of
/// checks plus one ([`attention`]): after 30 s to 45 s. A program that pauses only one direction,
/// such as a terminal or a download, is not affected.
const LOOKS: u8 = 2;

/// Joins the pump of a visitor with the pump of a target. `target` takes the inlet of the target's
/// pump and returns the outlet of the target. Returns the inlet of the visitor's pump. `held` is
/// the memory of the connection without queued bytes. `table`: the table in which the connection is
/// listed.
pub(crate) fn passage(
    budget: Option<&Rc<dyn Budget>>,
    held: Held,
    table: Option<&Rc<ConnectionTable>>,
    visitor: Rc<dyn Outlet>,
    target: impl FnOnce(StreamInlet) -> Rc<dyn Outlet>,
) -> StreamInlet {
    let passage = Passage::new(budget.cloned(), held);
    passage.halves[TO_VISITOR].outlet.replace(Some(visitor));
    let target = target(Side::of(&passage, TO_VISITOR));
    passage.halves[TO_TARGET].outlet.replace(Some(target));
    let watched: Rc<dyn Watched> = Rc::<Passage>::clone(&passage);
    attention::watch(Rc::downgrade(&watched));
    if let Some(table) = table {
        let tracked: Rc<dyn Tracked> = Rc::<Passage>::clone(&passage);
        *passage.place.borrow_mut() = Some(table.enter(Rc::downgrade(&tracked)));
    }
    Side::of(&passage, TO_TARGET)
}

/// Carries the bytes of a visitor and of a target whose socket is in this process, until both
/// directions have ended.
pub async fn join(visitor: Layered, target: Socket, timeouts: Timeouts, budget: Rc<dyn Budget>) {
    let near = Pipe::new(Rc::new(Settings { timeouts, ..Settings::default() }), Visitor::Unknown);
    near.attach(visitor.into());
    let held = Held::none(Some(&budget));
    between(near, target, Some(&budget), held).await;
}

/// Carries the bytes between a visitor without a link and a target: `target` takes the inlet of the
/// visitor's stream and returns its outlet, as for a stream of a link.
pub async fn lead(
    visitor: Layered,
    budget: Rc<dyn Budget>,
    target: impl FnOnce(StreamInlet) -> Rc<dyn Outlet>,
) {
    let near = Pipe::new(Rc::default(), Visitor::Unknown);
    near.attach(visitor.into());
    let held = Held::none(Some(&budget));
    let inlet = passage(Some(&budget), held, None, Rc::<Pipe>::clone(&near), target);
    Pump::new(near, inlet.inlet, None).await;
}

/// Carries one request of a proxy's visitor and the answer. `settings`: the visitor's settings.
pub(crate) async fn join_http(
    visitor: (Layered, Http),
    target: Socket,
    settings: &Settings,
    held: Held,
) {
    let (visitor, http) = visitor;
    let Settings { timeouts, budget, .. } = settings;
    let near = Settings { timeouts: *timeouts, budget: budget.clone(), ..Settings::default() };
    let near = Pipe::guarded(Rc::new(near), (Visitor::Unknown, false), Some(http));
    near.attach(visitor.into());
    between(near, target, budget.as_ref(), held).await;
}

/// Runs the pump of a visitor, joined with the pump of a target.
async fn between(near: Rc<Pipe>, target: Socket, budget: Option<&Rc<dyn Budget>>, held: Held) {
    let inlet = passage(budget, held, None, Rc::<Pipe>::clone(&near), |inlet| {
        let far = Pipe::new(Rc::new(of_target(near.settings())), Visitor::Unknown);
        far.connect_target(target.into());
        spawn_local(Pump::new(Rc::clone(&far), inlet.inlet, None));
        far
    });
    Pump::new(near, inlet.inlet, None).await;
}

/// The settings of the target's pump: only the visitor's pump has time-outs and counters.
pub(crate) fn of_target(visitor: &Settings) -> Settings {
    Settings {
        timeouts: visitor.timeouts.without_limits(),
        stats: Rc::default(),
        watcher: None,
        gate: None,
        ..Settings::clone(visitor)
    }
}

/// A connection: two directions.
struct Passage {
    halves: [Half; 2],
    /// `None`: nothing is charged.
    budget: Option<Rc<dyn Budget>>,
    held: Held,
    /// The memory of the connection without queued bytes.
    base: u64,
    /// Whether a byte moved since the last check.
    moved: Cell<bool>,
    /// The pumps of the visitor and of the target.
    pumps: [RefCell<Weak<Shared>>; 2],
    /// The number of checks since the last byte.
    quiet: Cell<u8>,
    /// Its place in the table of connections.
    place: RefCell<Option<Place>>,
}

/// The indices of the directions in a passage.
const TO_TARGET: usize = 0;
const TO_VISITOR: usize = 1;

/// The event for which a pump waits after it found no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hunger {
    #[default]
    None,
    /// Room for bytes.
    Room,
    /// The queue becomes empty.
    Empty,
}

/// One direction.
#[derive(Default)]
struct Half {
    /// The outlet that receives the bytes; `None` after the end.
    outlet: RefCell<Option<Rc<dyn Outlet>>>,
    /// Bytes queued in the outlet.
    queued: Cell<usize>,
    /// The event for which the sending pump waits.
    hunger: Cell<Hunger>,
    /// The total number of bytes sent.
    passed: Cell<u64>,
    /// Whether the sending pump has ended the direction.
    has_ended: Cell<bool>,
    /// Whether the sending pump takes no more bytes of the other direction.
    has_stopped: Cell<bool>,
}

impl Half {
    fn outlet(&self) -> Option<Rc<dyn Outlet>> {
        self.outlet.borrow().clone()
    }
}

impl Passage {
    fn new(budget: Option<Rc<dyn Budget>>, held: Held) -> Rc<Self> {
        Rc::new(Self {
            halves: Default::default(),
            budget,
            base: held.bytes(),
            held,
            moved: Cell::new(true),
            pumps: Default::default(),
            quiet: Cell::new(0),
            place: RefCell::new(None),
        })
    }

    fn waiting(&self) -> u64 {
        self.halves.iter().map(|half| half.queued.get() as u64).sum()
    }

    /// Charges the queued bytes. The capacity of a growing queue is up to twice its size.
    fn settle(&self) {
        self.moved.set(true);
        self.held.set(self.base + 2 * self.waiting());
    }

    /// Whether `window` more bytes may be queued: a connection holds no more memory than it leaves
    /// to all others.
    fn may_grow(&self, window: usize) -> bool {
        let Some(budget) = &self.budget else { return true };
        let spare = budget.left().saturating_sub(budget.total() / RESERVE);
        self.base + 2 * (self.waiting() + window as u64) <= spare
    }
}

impl Passage {
    /// Puts the connection to rest, if both pumps may rest.
    fn rest(&self) {
        let pumps = self.pumps.each_ref().map(|pump| pump.borrow().upgrade());
        let [Some(visitor), Some(target)] = pumps else { return };
        if !visitor.may_rest(rest::LEAST) || !target.may_rest(rest::LEAST) {
            return;
        }
        let passed = self.halves.each_ref().map(|half| half.passed.get());
        let held = self.held.beside();
        // If only one end could be taken, both ends are closed.
        if let (Some(visitor), Some(target)) = (visitor.take(), target.take()) {
            let place = self.place.take();
            rest::rest([visitor, target], passed, (held, self.base), place, join_again);
        }
    }
}

/// Joins the pumps of both ends of a connection that was at rest. Both sockets are reset if the
/// runtime cannot register one of them.
fn join_again(woken: Woken) -> Option<Rc<dyn Tracked>> {
    let Woken { ends: [mut visitor, mut target], passed, held, place } = woken;
    let (near, far) = match (visitor.pipe(), target.pipe()) {
        (Ok(near), Ok(far)) => (near, far),
        (near, far) => {
            near.iter().chain(&far).for_each(|pipe| pipe.close(true));
            if let Some(error) = near.err().or_else(|| far.err()) {
                tracing::warn!(%error, "an idle connection is lost");
            }
            return None;
        }
    };
    let budget = held.budget().cloned();
    let passage = Passage::new(budget, held);
    for (half, passed) in passage.halves.iter().zip(passed) {
        half.passed.set(passed);
    }
    passage.halves[TO_VISITOR].outlet.replace(Some(Rc::<Pipe>::clone(&near)));
    passage.halves[TO_TARGET].outlet.replace(Some(Rc::<Pipe>::clone(&far)));
    let watched: Rc<dyn Watched> = Rc::<Passage>::clone(&passage);
    attention::watch(Rc::downgrade(&watched));
    let tracked: Rc<dyn Tracked> = Rc::<Passage>::clone(&passage);
    if let Some(place) = &place {
        place.renew(Rc::downgrade(&tracked));
    }
    passage.place.replace(place);
    for (end, pipe, out) in [(visitor, near, TO_TARGET), (target, far, TO_VISITOR)] {
        let StreamInlet { inlet, slot } = Side::of(&passage, out);
        end.start(pipe, inlet, slot);
    }
    Some(tracked)
}

impl Watched for Passage {
    fn look(&self, _: &mut Ask<'_>, _: Duration) {
        let is_stuck = self.halves.iter().all(|half| half.queued.get() > 0);
        let has_moved = self.moved.take();
        if !has_moved && self.waiting() == 0 {
            return self.rest();
        }
        let quiet = if has_moved || !is_stuck { 0 } else { self.quiet.get() + 1 };
        self.quiet.set(quiet);
        if quiet >= LOOKS {
            for half in &self.halves {
                if let Some(outlet) = half.outlet() {
                    outlet.reset(ResetCode::Timeout);
                }
            }
        }
    }
}

impl Tracked for Passage {
    fn entry(&self) -> Option<ConnectionEntry> {
        let visitor = self.halves[TO_VISITOR].outlet()?;
        Some(ConnectionEntry {
            visitor: visitor.peer(),
            bytes_in: self.halves[TO_TARGET].passed.get(),
            bytes_out: self.halves[TO_VISITOR].passed.get(),
            counted: visitor.counted_in(),
        })
    }

    fn abort(&self) {
        for half in &self.halves {
            if let Some(outlet) = half.outlet() {
                outlet.reset(ResetCode::Aborted);
            }
        }
    }
}

/// The end of one pump.
struct Side {
    passage: Rc<Passage>,
    /// The direction in which the pump sends.
    out: usize,
}

impl Restable for Passage {
    fn lodge(&self, side: usize, pump: Weak<Shared>) {
        self.pumps[side].replace(pump);
    }

    fn part(&self, side: usize) {
        self.halves[side].has_ended.set(true);
        self.halves[side].has_stopped.set(true);
    }
}

impl Side {
    fn new(passage: &Rc<Passage>, out: usize) -> Self {
        Self { passage: Rc::clone(passage), out }
    }

    /// The end of a pump, and the slot in which the connection finds the pump.
    fn of(passage: &Rc<Passage>, out: usize) -> StreamInlet {
        let slot = Slot { connection: Rc::<Passage>::clone(passage), side: out };
        StreamInlet { inlet: Box::new(Self::new(passage, out)), slot: Some(slot) }
    }

    fn out(&self) -> &Half {
        &self.passage.halves[self.out]
    }

    /// Records that `size` bytes were sent, `taken` of which the outlet took at once.
    fn passed(&self, size: usize, taken: usize) {
        let half = self.out();
        half.passed.set(half.passed.get() + size as u64);
        half.queued.set(half.queued.get() + size.saturating_sub(taken));
        self.passage.settle();
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
        let room = if self.passage.may_grow(WINDOW) {
            WINDOW.saturating_sub(queued)
        } else if queued == 0 {
            LEAST
        } else {
            0
        };
        half.hunger.set(if room == 0 { Hunger::Room } else { Hunger::None });
        room
    }

    fn send(&self, frame: &mut BytesMut) {
        let mut payload = std::mem::take(frame).freeze();
        payload.advance(HEAD_ROOM.min(payload.len()));
        let size = payload.len();
        let Some(outlet) = self.out().outlet() else { return };
        let taken = outlet.deliver(&mut VecDeque::from([payload]));
        self.passed(size, taken);
    }

    fn pages(&self) -> Option<&dyn PageInlet> {
        let takes = self.out().outlet().is_some_and(|outlet| outlet.takes_pages());
        (takes && self.passage.may_grow(PAGES)).then_some(self)
    }

    fn finish(&self) {
        self.out().has_ended.set(true);
        if let Some(outlet) = self.out().outlet() {
            outlet.finish();
        }
    }

    fn reset(&self, code: ResetCode) {
        self.out().has_ended.set(true);
        // The pipe discards its queue.
        self.out().queued.set(0);
        self.passage.settle();
        if let Some(outlet) = self.out().outlet() {
            outlet.reset(code);
        }
    }

    fn stop(&self, code: ResetCode) {
        self.out().has_stopped.set(true);
        // The far pump sends to this end, so its own pipe is notified that the bytes are not taken.
        if let Some(outlet) = self.out().outlet() {
            outlet.stop(code);
        }
    }

    fn is_untaken(&self) -> bool {
        self.out().queued.get() > 0
    }

    fn consumed(&self, bytes: usize) {
        let half = self.back();
        half.queued.set(half.queued.get().saturating_sub(bytes));
        self.passage.settle();
        // The far pump may wait for room in the direction whose bytes this end has written.
        let is_fed = match half.hunger.get() {
            Hunger::None => false,
            Hunger::Room => true,
            Hunger::Empty => half.queued.get() == 0,
        };
        if is_fed && let Some(outlet) = self.out().outlet() {
            outlet.room();
        }
    }
}

impl PageInlet for Side {
    fn page_room(&self) -> usize {
        let half = self.out();
        let is_full = half.queued.get() > 0;
        half.hunger.set(if is_full { Hunger::Empty } else { Hunger::None });
        if is_full { 0 } else { PAGES }
    }

    fn send_pages(&self, pages: Pages) {
        let size = pages.len();
        // The far end is closed.
        let Some(outlet) = self.out().outlet() else { return pages.discard() };
        let taken = outlet.deliver_pages(pages);
        self.passed(size, taken);
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if !self.out().has_ended.get() {
            self.reset(ResetCode::Aborted);
        }
        if !self.out().has_stopped.get() {
            self.stop(ResetCode::Aborted);
        }
        self.back().outlet.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::paged;

    /// Accepts pages until it was queried once, like an outlet whose rate begins to apply.
    #[derive(Debug, Default)]
    struct Wavering {
        asked: Cell<u32>,
        bytes: RefCell<Vec<u8>>,
    }

    impl Outlet for Wavering {
        fn deliver(&self, pieces: &mut VecDeque<bytes::Bytes>) -> usize {
            let mut bytes = self.bytes.borrow_mut();
            let before = bytes.len();
            pieces.drain(..).for_each(|piece| bytes.extend_from_slice(&piece));
            bytes.len() - before
        }

        fn takes_pages(&self) -> bool {
            self.asked.set(self.asked.get() + 1);
            self.asked.get() == 1
        }

        fn finish(&self) {}

        fn reset(&self, _: ResetCode) {}

        fn stop(&self, _: ResetCode) {}

        fn room(&self) {}
    }

    #[tokio::test]
    async fn pages_that_were_welcome_when_they_were_asked_for_arrive() {
        let (passage, outlet) = (Passage::new(None, Held::none(None)), Rc::<Wavering>::default());
        let visitor: Rc<dyn Outlet> = Rc::<Wavering>::clone(&outlet);
        passage.halves[TO_VISITOR].outlet.replace(Some(visitor));
        let side = Side::new(&passage, TO_VISITOR);
        let inlet = side.pages().unwrap();
        assert_eq!(inlet.page_room(), PAGES);
        let pages = paged(b"abcdef").await;
        assert!(side.pages().is_none());
        inlet.send_pages(pages);
        assert_eq!(&outlet.bytes.borrow()[..], b"abcdef");
        assert_eq!((passage.waiting(), passage.halves[TO_VISITOR].passed.get()), (0, 6));
        // The far end is closed, so the pages are discarded.
        passage.halves[TO_VISITOR].outlet.take();
        side.send_pages(paged(b"gh").await);
        assert_eq!(net::pages::pipes().0, 0);
    }
}
