//! The pump of a test: one end of a stream that keeps what it got and takes bytes as slowly as it
//! is told to.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use link::Link;
use proto::{HEAD_ROOM, Open, Priority, ResetCode, Target};
use testkit::origins::Pattern;
use tokio::sync::Notify;
use transport::{Connector, Inlet, Outlet};

/// How fast an end takes bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appetite {
    /// Of each delivery at once.
    pub(crate) inline: usize,
    /// Of what was refused, per millisecond.
    pub(crate) later: usize,
}

impl Appetite {
    pub(crate) const ALL: Self = Self { inline: usize::MAX, later: 0 };
    pub(crate) const SOME: Self = Self { inline: 700, later: 5000 };
    pub(crate) const NONE: Self = Self { inline: 0, later: 0 };
}

/// One end of a stream.
#[derive(Debug)]
pub(crate) struct Tap {
    inlet: RefCell<Option<Rc<dyn Inlet>>>,
    /// Counts and compares instead of keeping: for streams of many bytes.
    pub(crate) counted: Cell<u64>,
    pub(crate) keeps: Cell<bool>,
    /// How often bytes were handed on.
    pub(crate) deliveries: Cell<usize>,
    pub(crate) finished: Cell<bool>,
    pub(crate) reset: Cell<Option<ResetCode>>,
    pub(crate) stopped: Cell<Option<ResetCode>>,
    /// A call after the end, twice the same end, bytes that are not the pattern's.
    pub(crate) wrong: Cell<bool>,
    pub(crate) panics: Cell<bool>,
    queued: Cell<usize>,
    /// Highest queue ever.
    pub(crate) queued_most: Cell<usize>,
    appetite: Appetite,
    turned: Notify,
    fed: Rc<Notify>,
}

impl Tap {
    pub(crate) fn new(appetite: Appetite) -> Rc<Self> {
        let fed = Rc::new(Notify::new());
        let tap = Rc::new(Self {
            inlet: RefCell::default(),
            counted: Cell::new(0),
            keeps: Cell::new(true),
            deliveries: Cell::new(0),
            finished: Cell::new(false),
            reset: Cell::new(None),
            stopped: Cell::new(None),
            wrong: Cell::new(false),
            panics: Cell::new(false),
            queued: Cell::new(0),
            queued_most: Cell::new(0),
            appetite,
            turned: Notify::new(),
            fed: Rc::clone(&fed),
        });
        if appetite.later > 0 {
            let weak = Rc::downgrade(&tap);
            tokio::task::spawn_local(async move {
                loop {
                    let Some(tap) = weak.upgrade() else { return };
                    let part = tap.queued.get().min(appetite.later);
                    if part > 0 {
                        tap.queued.set(tap.queued.get() - part);
                        tap.with(|inlet| inlet.consumed(part));
                        drop(tap);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    } else if tap.inlet.borrow().is_none() && tap.is_over() {
                        return;
                    } else {
                        drop(tap);
                        fed.notified().await;
                    }
                }
            });
        }
        tap
    }

    pub(crate) fn join(&self, inlet: Box<dyn Inlet>) {
        *self.inlet.borrow_mut() = Some(Rc::from(inlet));
    }

    fn with(&self, call: impl FnOnce(&dyn Inlet)) {
        let inlet = self.inlet.borrow().clone();
        if let Some(inlet) = inlet {
            call(&*inlet);
        }
    }

    /// Sends; false when the stream died meanwhile.
    pub(crate) async fn send(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.reset.get() == Some(ResetCode::Shutdown) || self.stopped.get().is_some() {
                return false;
            }
            let room = Cell::new(0);
            self.with(|inlet| room.set(inlet.room()));
            let n = room.get().min(bytes.len());
            if n == 0 {
                self.turned.notified().await;
                continue;
            }
            let mut frame = BytesMut::zeroed(HEAD_ROOM);
            frame.extend_from_slice(&bytes[..n]);
            self.with(|inlet| inlet.send(&mut frame));
            bytes = &bytes[n..];
        }
        true
    }

    /// Sends so many bytes of the pattern, then ends the direction.
    pub(crate) async fn send_pattern(&self, total: u64) -> bool {
        let mut at = 0;
        while at < total {
            let piece = Pattern.at(at, total - at);
            if !self.send(piece).await {
                return false;
            }
            at += piece.len() as u64;
        }
        self.finish();
        true
    }

    pub(crate) fn finish(&self) {
        self.with(|inlet| inlet.finish());
    }

    pub(crate) fn abort(&self, code: ResetCode) {
        self.with(|inlet| inlet.reset(code));
    }

    pub(crate) fn refuse_more(&self, code: ResetCode) {
        self.with(|inlet| inlet.stop(code));
    }

    /// What waits leaves at once.
    pub(crate) fn take_queued(&self) {
        let queued = self.queued.take();
        self.with(|inlet| inlet.consumed(queued));
    }

    pub(crate) fn leave(&self) {
        *self.inlet.borrow_mut() = None;
        self.fed.notify_one();
    }

    /// The peer's direction has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.finished.get() || self.reset.get().is_some()
    }

    pub(crate) fn count(&self) -> u64 {
        self.counted.get()
    }

    /// Exactly so many bytes of the pattern came, and the end.
    pub(crate) fn assert_pattern(&self, total: u64) {
        assert!(!self.wrong.get(), "{self:?}");
        assert!(self.finished.get() && self.reset.get().is_none(), "{self:?}");
        assert_eq!(self.count(), total);
    }
}

impl Tap {
    fn take(&self, data: &Bytes) -> usize {
        assert!(!self.panics.get(), "a defect, on purpose");
        if self.is_over() || data.is_empty() {
            self.wrong.set(true);
        }
        let mut rest = &data[..];
        let mut at = self.counted.get();
        while !rest.is_empty() && self.keeps.get() {
            let known = Pattern.at(at, rest.len() as u64);
            if known != &rest[..known.len()] {
                self.wrong.set(true);
            }
            at += known.len() as u64;
            rest = &rest[known.len()..];
        }
        self.counted.set(self.counted.get() + data.len() as u64);
        // What waits goes first: nothing is taken inline behind it.
        let taken = if self.queued.get() > 0 { 0 } else { data.len().min(self.appetite.inline) };
        self.queued.set(self.queued.get() + data.len() - taken);
        self.queued_most.set(self.queued_most.get().max(self.queued.get()));
        self.fed.notify_one();
        taken
    }
}

impl Outlet for Tap {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        self.deliveries.set(self.deliveries.get() + 1);
        pieces.drain(..).map(|data| self.take(&data)).sum()
    }

    fn finish(&self) {
        self.wrong.set(self.wrong.get() || self.is_over());
        self.finished.set(true);
    }

    fn reset(&self, code: ResetCode) {
        self.wrong.set(self.wrong.get() || self.reset.get().is_some());
        self.reset.set(Some(code));
        if code == ResetCode::Shutdown {
            // As a pump does whose socket is reset.
            self.leave();
        }
        self.turned.notify_one();
    }

    fn stop(&self, code: ResetCode) {
        self.wrong.set(self.wrong.get() || self.stopped.get().is_some());
        self.stopped.set(Some(code));
        self.turned.notify_one();
    }

    fn room(&self) {
        self.turned.notify_one();
    }
}

/// Opens a stream to a service.
pub(crate) fn open(link: &Link, service: &str, appetite: Appetite) -> Rc<Tap> {
    let tap = Tap::new(appetite);
    let target = Target::Service(service.to_owned());
    let open = Open { target, visitor: None, priority: Priority::Normal };
    tap.join(link.open(open, Rc::clone(&tap) as Rc<dyn Outlet>).expect("an open link"));
    tap
}
