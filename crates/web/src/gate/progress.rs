//! The state that the gate, proxy and driver of a connection share. HTTP/1 requests are counted,
//! because hyper reads them in order: the n-th header that passes is the n-th call of the proxy.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use crate::{Refusal, interim::Leaving};

/// The progress of a connection.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(super) heads: Cell<u64>,
    pub(super) calls: Cell<u64>,
    answers: Cell<u64>,
    /// The arrival time of an incomplete header.
    head_since: Cell<Option<Instant>>,
    idle_since: Cell<Instant>,
    timeout: Cell<bool>,
    pub(super) refused: RefCell<Option<(u64, Refusal)>>,
    /// The number of a request that requested an upgrade and has no response yet.
    upgrade: Cell<Option<u64>>,
    broken: Cell<Option<&'static str>>,
    /// Whether the body of the latest request has not passed completely.
    in_body: Cell<bool>,
    /// How much of the response to the current request has been written.
    begun: Cell<Begun>,
    /// The waker of the task that waits until all responses are written.
    ending: RefCell<Option<Waker>>,
    /// Whether the visitor does not read the written bytes.
    stuck: Cell<bool>,
    /// How often the visitor has read the written bytes.
    taken: Cell<u64>,
    /// Interim responses to an HTTP/1.1 visitor.
    pub(crate) leaving: Rc<Leaving>,
    /// The wakers of requests that wait until the visitor has read the written bytes.
    waiting: RefCell<Vec<Waker>>,
}

/// The next timeout of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The timeout expires at this time.
    At(Instant),
    /// There is no timeout: a request is in progress.
    Never,
}

/// How much of the response to the current request has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Only complete interim responses.
    Nothing,
    /// The header, and complete chunks.
    Chunks,
    /// The header, and a part of a body without chunks.
    Body,
    /// Responses or bytes are queued that have not left.
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

    /// Records that bytes of requests have passed.
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

    /// Records that the proxy is called with the next request. Returns the number of the request,
    /// and the refusal if the gate wrote the request.
    pub(crate) fn called(&self) -> (u64, Option<Refusal>) {
        let number = self.calls.get() + 1;
        self.calls.set(number);
        self.begun.set(Begun::Nothing);
        let refused = self.refused.borrow();
        let refusal = refused.as_ref().filter(|(refused, _)| *refused == number);
        (number, refusal.map(|(_, refusal)| refusal.clone()))
    }

    /// Records that the response to the request is not an upgrade.
    pub(crate) fn no_upgrade(&self, number: u64) {
        if self.upgrade.get() == Some(number) {
            self.upgrade.set(None);
        }
    }

    /// Records that the header of the response to the current request is handed over.
    pub(crate) fn answering(&self, in_chunks: bool) {
        self.begun.set(if in_chunks { Begun::Chunks } else { Begun::Body });
    }

    /// Records that the last byte of a response was handed over, or that the response was dropped.
    pub(crate) fn answered(&self) {
        self.answers.set(self.answers.get() + 1);
        self.idle_since.set(Instant::now());
        self.wake_ending();
    }

    /// The progress of the response for a visitor that has half-closed. `None`: its requests have
    /// their responses, or the last request is incomplete. Otherwise the task of `cx` is woken when
    /// that may have changed.
    pub(crate) fn waits(&self, cx: &Context<'_>) -> Option<Begun> {
        let waits = self.heads.get() > self.answers.get() || self.stuck.get();
        // HTTP/2 has no headers here, and no half-close.
        if self.in_body.get() || !waits || self.heads.get() == 0 {
            return None;
        }
        // The rest of a header will not arrive, and must not cause a timeout.
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

    /// Records that all written bytes have left.
    pub(super) fn flushed(&self) {
        if self.stuck.replace(false) {
            self.wake_ending();
            self.taken();
        }
    }

    /// Records that an HTTP/2 visitor reads bytes. During a long response there are always more, so
    /// the waiting requests would otherwise wait for the end of the response.
    pub(super) fn moved(&self) {
        if self.stuck.get() {
            self.taken();
        }
    }

    fn taken(&self) {
        self.taken.set(self.taken.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Waits while the visitor does not read the written bytes. Response headers have no flow
    /// control, so they would pile up for a visitor that sends requests and does not read.
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

    /// When the connection times out, with these timeouts for a header and for an idle connection.
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

    /// Lets the gate refuse an incomplete header. Returns false if no byte of a header has arrived.
    pub(crate) fn time_out(&self) -> bool {
        let begun = self.head_since.get().is_some();
        self.timeout.set(begun);
        begun
    }
}
