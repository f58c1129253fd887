//! What gate, proxy and driver of a connection know of each other. Requests of HTTP/1 are counted,
//! because hyper reads them in order: the n-th head that passes is the n-th call of the proxy.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use crate::{Refusal, interim::Leaving};

/// How far a connection is.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(super) heads: Cell<u64>,
    pub(super) calls: Cell<u64>,
    answers: Cell<u64>,
    /// An incomplete head arrived at this time.
    head_since: Cell<Option<Instant>>,
    idle_since: Cell<Instant>,
    timeout: Cell<bool>,
    pub(super) refused: RefCell<Option<(u64, Refusal)>>,
    /// The number of a request that asked for an upgrade and has no answer.
    upgrade: Cell<Option<u64>>,
    broken: Cell<Option<&'static str>>,
    /// The body of the latest request has not passed whole.
    in_body: Cell<bool>,
    /// How much of the answer to the current request was written.
    begun: Cell<Begun>,
    /// Waits until all answers are written.
    ending: RefCell<Option<Waker>>,
    /// The visitor does not take the bytes that were written.
    stuck: Cell<bool>,
    /// How often the visitor has taken what was written.
    taken: Cell<u64>,
    /// Interim answers to a visitor of HTTP/1.1.
    pub(crate) leaving: Rc<Leaving>,
    /// Requests that wait until the visitor has taken them.
    waiting: RefCell<Vec<Waker>>,
}

/// What is due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing before this time.
    At(Instant),
    /// Nothing at all: a request is being answered.
    Never,
}

/// How much of the answer to the current request was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Nothing but complete interim responses.
    Nothing,
    /// The head, and complete chunks.
    Chunks,
    /// The head, and a part of a body without chunks.
    Body,
    /// More than has left.
    Unsent,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            heads: Cell::new(0),
            calls: Cell::new(0),
            answers: Cell::new(0),
            head_since: Cell::new(None),
            idle_since: Cell::new(Instant::now()),
            timeout: Cell::new(false),
            refused: RefCell::new(None),
            upgrade: Cell::new(None),
            broken: Cell::new(None),
            in_body: Cell::new(false),
            begun: Cell::new(Begun::Nothing),
            ending: RefCell::default(),
            stuck: Cell::new(false),
            taken: Cell::new(0),
            leaving: Rc::default(),
            waiting: RefCell::default(),
        }
    }

    pub(super) fn head_begun(&self) {
        if self.head_since.get().is_none() {
            self.head_since.set(Some(Instant::now()));
        }
    }

    pub(super) fn head_passed(&self, upgrade: bool) {
        self.head_since.set(None);
        self.heads.set(self.heads.get() + 1);
        if upgrade {
            self.upgrade.set(Some(self.heads.get()));
        }
    }

    /// Bytes of requests have passed.
    pub(super) fn passed(&self, in_body: bool) {
        self.in_body.set(in_body);
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.head_passed(false);
        *self.refused.borrow_mut() = Some((self.heads.get(), refusal));
    }

    pub(super) fn take_timeout(&self) -> bool {
        self.timeout.take()
    }

    pub(super) fn is_decided(&self) -> bool {
        self.upgrade.get().is_none()
    }

    pub(super) fn body_broke(&self, reason: &'static str) {
        self.broken.set(Some(reason));
    }

    /// The proxy is called with the next request. Returns the number of the request, and the
    /// refusal if the gate wrote the request.
    pub(crate) fn called(&self) -> (u64, Option<Refusal>) {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        self.begun.set(Begun::Nothing);
        let refused = self.refused.borrow();
        let refusal = refused.as_ref().filter(|(refused, _)| *refused == number);
        (number, refusal.map(|(_, refusal)| refusal.clone()))
    }

    /// The request is answered without an upgrade.
    pub(crate) fn no_upgrade(&self, number: u64) {
        if self.upgrade.get() == Some(number) {
            self.upgrade.set(None);
        }
    }

    /// The head of the answer to the current request is handed over.
    pub(crate) fn answering(&self, in_chunks: bool) {
        self.begun.set(if in_chunks { Begun::Chunks } else { Begun::Body });
    }

    /// The last byte of an answer was handed over, or the answer was dropped.
    pub(crate) fn answered(&self) {
        self.answers.set(self.answers.get() + 1);
        self.idle_since.set(Instant::now());
        self.wake_ending();
    }

    /// The visitor has ended its direction. `None`: its requests have their answers, or the last
    /// request is incomplete. Otherwise the task of `cx` is woken when that may have changed.
    pub(crate) fn waits(&self, cx: &Context<'_>) -> Option<Begun> {
        let waits = self.heads.get() > self.answers.get() || self.stuck.get();
        if self.in_body.get() || !waits {
            return None;
        }
        // The rest of a head will not come, and is nobody's fault.
        self.head_since.set(None);
        *self.ending.borrow_mut() = Some(cx.waker().clone());
        let is_current = self.calls.get() == self.answers.get() + 1 && !self.stuck.get();
        Some(if is_current { self.begun.get() } else { Begun::Unsent })
    }

    fn wake_ending(&self) {
        let ending = self.ending.take();
        if let Some(waker) = ending {
            waker.wake();
        }
    }

    pub(super) fn stuck(&self) {
        self.stuck.set(true);
    }

    /// All bytes that were written have left.
    pub(super) fn flushed(&self) {
        if self.stuck.replace(false) {
            self.wake_ending();
            self.taken();
        }
    }

    /// A visitor of HTTP/2 takes bytes. While it takes those of one answer there are always more,
    /// and the requests that wait would wait for the end of the answer.
    pub(super) fn moved(&self) {
        if self.stuck.get() {
            self.taken();
        }
    }

    fn taken(&self) {
        self.taken.set(self.taken.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Waits while the visitor does not take what was written. Heads of answers have no window, so
    /// a visitor that asks and does not read would gather them.
    pub(crate) async fn unstuck(&self) {
        let before = self.taken.get();
        poll_fn(|cx| {
            if !self.stuck.get() || self.taken.get() != before {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Why the body of the current request is malformed.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        self.broken.get()
    }

    /// When the visitor has waited too long.
    pub(crate) fn due(&self, head: Duration, idle: Duration) -> Due {
        if let Some(since) = self.head_since.get() {
            Due::At(since + head)
        } else if self.calls.get() > self.answers.get() || self.heads.get() > self.answers.get() {
            Due::Never
        } else if self.calls.get() == 0 {
            Due::At(self.idle_since.get() + head)
        } else {
            Due::At(self.idle_since.get() + idle)
        }
    }

    /// A head is incomplete: the gate refuses it. Returns false if no byte of a head arrived.
    pub(crate) fn time_out(&self) -> bool {
        let begun = self.head_since.get().is_some();
        self.timeout.set(begun);
        begun
    }
}
