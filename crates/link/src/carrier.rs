//! A carrier in use: its lane, its two tasks, and who wakes the writer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use proto::CarrierNumber;
use tokio::task::AbortHandle;
use transport::{Lane, Peer};

use crate::handle::{End, Inner};
use crate::{reader, writer};

/// What reader and writer of a carrier share.
pub(crate) struct Io {
    pub(crate) number: CarrierNumber,
    pub(crate) lane: RefCell<Box<dyn Lane>>,
    /// Frames handed out by the machine and not yet taken by the lane.
    pub(crate) out: RefCell<VecDeque<Bytes>>,
}

/// The tasks of a carrier; dropping it ends them and closes the connection.
pub(crate) struct Running {
    pub(crate) number: CarrierNumber,
    pub(crate) peer: Peer,
    tasks: [AbortHandle; 2],
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
        let io = Rc::new(Io { number, lane: RefCell::new(carrier.lane), out: RefCell::default() });
        let guard = |inner: &Rc<Inner>| PanicGuard(Rc::clone(inner));
        let reading = {
            let (inner, io, guard) = (Rc::clone(link), Rc::clone(&io), guard(link));
            async move {
                let outcome = reader::run(&inner, &io, leftover).await;
                reader::report(&inner, &io, outcome).await;
                drop(guard);
            }
        };
        let writing = {
            let (inner, guard) = (Rc::clone(link), guard(link));
            async move {
                let error = writer::run(&inner, &io).await;
                tracing::debug!(link = inner.serial, carrier = number.0, %error, "carrier lost");
                inner.carrier_ended(number);
                drop(guard);
            }
        };
        let tasks = [
            tokio::task::spawn_local(reading).abort_handle(),
            tokio::task::spawn_local(writing).abort_handle(),
        ];
        link.carriers.borrow_mut().push(Self { number, peer: carrier.peer, tasks });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A panicking task ends its link, and nothing else.
struct PanicGuard(Rc<Inner>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(End::Panicked);
        }
    }
}

/// The writers' wakers. Sending wakes them once per turn, however many streams send.
#[derive(Default)]
pub(crate) struct Wakers {
    writers: RefCell<Vec<(CarrierNumber, Waker)>>,
    woken: Cell<bool>,
}

impl Wakers {
    /// Something may be there to be sent.
    pub(crate) fn wake(&self) {
        if !self.woken.replace(true) {
            for (_, waker) in &*self.writers.borrow() {
                waker.wake_by_ref();
            }
        }
    }

    /// A writer runs: it is woken again by what comes from now on.
    pub(crate) fn enter(&self, number: CarrierNumber, cx: &Context<'_>) {
        self.woken.set(false);
        let mut writers = self.writers.borrow_mut();
        match writers.iter_mut().find(|(known, _)| *known == number) {
            Some((_, waker)) if waker.will_wake(cx.waker()) => {}
            Some((_, waker)) => *waker = cx.waker().clone(),
            None => writers.push((number, cx.waker().clone())),
        }
    }

    pub(crate) fn forget(&self, number: CarrierNumber) {
        self.writers.borrow_mut().retain(|(known, _)| *known != number);
        self.woken.set(false);
    }
}
