//! What a driver and the handles of its streams share.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::counters::Counters;
use crate::end::End;
use crate::shared::Shared;
use crate::wait::Waiters;

#[derive(Debug, Default)]
pub(crate) struct Hub {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// Sessions at which the driver shall look, each once.
    pub(crate) touched: Vec<usize>,
    /// Sessions that begin here; the driver has not seen them.
    pub(crate) begun: VecDeque<Arc<Shared>>,
    /// Sessions that peers began and nobody accepted.
    pub(crate) backlog: VecDeque<Arc<Shared>>,
    pub(crate) acceptors: Waiters,
    /// The sessions of the driver by their slot.
    pub(crate) live: HashMap<usize, Arc<Shared>>,
    /// There is a listener.
    pub(crate) listens: bool,
    pub(crate) waker: Option<Waker>,
    /// Those of the driver, and of all sessions that have ended.
    pub(crate) counters: Counters,
    /// The driver is gone.
    pub(crate) end: Option<End>,
}

impl Hub {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something, and has the driver look at it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.lock();
        let result = work(&mut inner);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// The driver shall look at a session.
    pub(crate) fn touch(&self, slot: usize) {
        self.with(|inner| inner.touched.push(slot));
    }
}
