//! A carrier in use: its lane, its two tasks, and who wakes the writer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pin_project_lite::pin_project;
use proto::CarrierNumber;
use tokio::task::AbortHandle;
use transport::{Lane, Peer};

use crate::charge::Charge;
use crate::handle::Inner;
use crate::lanes::{self, Beside};
use crate::owner::End;
use crate::reader::{self, First, Run};
use crate::strain::Strain;
use crate::writer;

/// How long the last frame may take on its way out before the connection is closed all the same.
const FAREWELL: Duration = Duration::from_secs(1);

/// What reader and writer of a carrier share.
pub(crate) struct Io {
    pub(crate) number: CarrierNumber,
    pub(crate) lane: RefCell<Box<dyn Lane>>,
    /// Frames handed out by the machine and not yet taken by the lane.
    pub(crate) out: RefCell<VecDeque<Bytes>>,
    /// Lanes of single streams, where the transport has them.
    pub(crate) beside: Option<Rc<Beside>>,
    /// The reader's, between its turns: only its memory matters.
    pub(crate) run: Cell<Run>,
    /// Capacity of the readers' buffers.
    pub(crate) reading: Cell<usize>,
    charge: Charge,
    strain: Strain,
}

impl Io {
    /// Tells the budget what the buffers of this carrier take. At the end of a turn of its tasks.
    pub(crate) fn account(&self) {
        self.charge.set(self.reading.get() + self.lane.borrow().held());
    }

    /// Tells the link if the carrier takes little, and puts lanes to rest. At the end of a turn of its tasks;
    /// true if there is to be another one soon.
    pub(crate) fn look(&self, link: &Rc<Inner>) -> bool {
        if self.beside.is_none() && self.strain.is_blind() {
            return false;
        }
        let now = crate::now();
        if let Some(rate) = self.strain.look(now) {
            link.strained(rate);
        }
        self.beside.as_ref().is_some_and(|beside| beside.rest(&mut link.machine.borrow_mut(), now))
    }
}

/// The tasks of a carrier; dropping it ends them and closes the connection.
pub(crate) struct Running {
    pub(crate) number: CarrierNumber,
    pub(crate) peer: Peer,
    reading: AbortHandle,
    /// Takes the lanes that the peer opens, where there are some.
    accepting: Option<AbortHandle>,
    /// `None` once it was left to say farewell.
    writing: Option<AbortHandle>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Running {
    /// Starts reader and writer and enters the carrier into the link.
    pub(crate) fn start(
        link: &Rc<Inner>,
        number: CarrierNumber,
        carrier: transport::Carrier,
        leftover: BytesMut,
    ) {
        let lanes = carrier.lanes;
        let streams = link.machine.borrow().stream_count();
        let beside = lanes.map(|lanes| Rc::new(Beside::new(lanes, &link.budget, streams)));
        let io = Rc::new(Io {
            number,
            lane: RefCell::new(carrier.lane),
            out: RefCell::default(),
            beside: beside.clone(),
            run: Cell::default(),
            reading: Cell::new(0),
            charge: Charge::new(Rc::clone(&link.budget)),
            strain: Strain::new(carrier.peer.watch.clone()),
        });
        let reading = {
            let (inner, io) = (Rc::clone(link), Rc::clone(&io));
            async move {
                let outcome = reader::run(&inner, &io, &mut First, leftover).await;
                reader::report(&inner, &io, outcome);
            }
        };
        let accepting = beside.map(|beside| {
            let (inner, io) = (Rc::clone(link), Rc::clone(&io));
            async move {
                let outcome = lanes::accept(&inner, &io, &beside).await;
                reader::report(&inner, &io, outcome);
            }
        });
        let writing = {
            let inner = Rc::clone(link);
            async move {
                let Some(error) = until_ended(&inner, writer::run(&inner, &io)).await else {
                    let farewell = writer::drain(&inner, &io);
                    if tokio::time::timeout(FAREWELL, farewell).await.is_err() {
                        tracing::debug!(link = inner.serial, "the farewell did not get through");
                    }
                    return;
                };
                tracing::debug!(link = inner.serial, carrier = number.0, %error, "carrier lost");
                inner.carrier_ended(number);
            }
        };
        let reading =
            tokio::task::spawn_local(guarded(Rc::downgrade(link), reading)).abort_handle();
        let writing =
            tokio::task::spawn_local(guarded(Rc::downgrade(link), writing)).abort_handle();
        let accepting = accepting.map(|accepting| {
            tokio::task::spawn_local(guarded(Rc::downgrade(link), accepting)).abort_handle()
        });
        let writing = Some(writing);
        let running = Self { number, peer: carrier.peer, reading, accepting, writing };
        link.carriers.borrow_mut().push(running);
    }

    /// Reads no more; the writer sends what is left, the farewell last, and closes.
    pub(crate) fn retire(mut self) {
        self.writing = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.reading.abort();
        self.accepting.iter().for_each(AbortHandle::abort);
        if let Some(writing) = &self.writing {
            writing.abort();
        }
    }
}

/// `None` when the link ended before the work did.
async fn until_ended<T>(link: &Inner, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if link.ended.get().is_some() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

pin_project! {
    /// A panicking task ends its link, and nothing else. It does so after unwinding: whoever is told
    /// of the end may have the same defect.
    ///
    /// An `async fn` would keep the work twice, as what it was given and as what it polls; every lane of a
    /// stream has such a task.
    struct Guarded<F> {
        link: Weak<Inner>,
        #[pin]
        work: F,
    }
}

pub(crate) fn guarded(
    link: Weak<Inner>,
    work: impl Future<Output = ()>,
) -> impl Future<Output = ()> {
    Guarded { link, work }
}

impl<F: Future<Output = ()>> Future for Guarded<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let polled = catch_unwind(AssertUnwindSafe(|| this.work.poll(cx)));
        polled.unwrap_or_else(|_| {
            if let Some(link) = this.link.upgrade() {
                link.end(End::Panicked);
            }
            Poll::Ready(())
        })
    }
}

/// The wakers of the writers. A writer is woken once per turn, however many streams send.
#[derive(Default)]
pub(crate) struct Wakers {
    writers: RefCell<Vec<Writer>>,
    /// No writer sleeps. Makes the usual call of [`Wakers::wake`] the check of one flag.
    all_awake: Cell<bool>,
}

struct Writer {
    number: CarrierNumber,
    waker: Waker,
    /// The writer is woken, or runs and asks for more frames before it sleeps.
    is_awake: bool,
}

impl Wakers {
    /// Frames may wait: wakes the writers that sleep.
    pub(crate) fn wake(&self) {
        if !self.all_awake.replace(true) {
            for writer in &mut *self.writers.borrow_mut() {
                if !std::mem::replace(&mut writer.is_awake, true) {
                    writer.waker.wake_by_ref();
                }
            }
        }
    }

    /// The link has ended: every writer runs once more, the running writer included.
    pub(crate) fn wake_all(&self) {
        for writer in &*self.writers.borrow() {
            writer.waker.wake_by_ref();
        }
    }

    /// A writer runs. It needs no wake-up until [`Wakers::leave`].
    pub(crate) fn enter(&self, number: CarrierNumber, cx: &Context<'_>) {
        let mut writers = self.writers.borrow_mut();
        match writers.iter_mut().find(|writer| writer.number == number) {
            Some(writer) => {
                writer.is_awake = true;
                if !writer.waker.will_wake(cx.waker()) {
                    writer.waker.clone_from(cx.waker());
                }
            }
            None => {
                let waker = cx.waker().clone();
                writers.push(Writer { number, waker, is_awake: true });
            }
        }
    }

    /// A writer sleeps. Frames that come from now on wake it.
    pub(crate) fn leave(&self, number: CarrierNumber) {
        let mut writers = self.writers.borrow_mut();
        if let Some(writer) = writers.iter_mut().find(|writer| writer.number == number) {
            writer.is_awake = false;
            self.all_awake.set(false);
        }
    }

    pub(crate) fn forget(&self, number: CarrierNumber) {
        self.writers.borrow_mut().retain(|writer| writer.number != number);
    }
}
