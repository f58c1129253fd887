//! The two users of a connection: its driver, which moves datagrams, and its lane and datagrams,
//! which may live on another thread.
//!
//! The state of a connection is behind a mutex that each side takes once per batch. On one thread,
//! which is the usual case, it is never contended. A side that has changed the state calls
//! [`Shared::touch`]; the driver then handles the connection in its next turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use net::source::Share;

use crate::state::State;

/// The requests of connections and of the listener to a driver.
#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<Orders>);

#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// Connections that were touched, each once.
    pub(crate) touched: Vec<usize>,
    /// Connections that wait to be accepted with their share of their source, and the waiting
    /// acceptor.
    pub(crate) accepted: VecDeque<(Arc<Shared>, Share)>,
    pub(crate) acceptor: Option<Waker>,
    /// The listener is gone: no connection is accepted.
    pub(crate) is_closed: bool,
    /// The driver is gone.
    pub(crate) is_over: bool,
    pub(crate) waker: Option<Waker>,
}

impl Hub {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Orders> {
        // The data is consistent at each point where a panic can happen.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the driver.
    pub(crate) fn wake(&self) {
        let waker = self.lock().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Shared {
    hub: Arc<Hub>,
    state: Mutex<State>,
}

impl Shared {
    pub(crate) fn new(hub: Arc<Hub>, state: State) -> Arc<Self> {
        Arc::new(Self { hub, state: Mutex::new(state) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver has something to do for this connection.
    pub(crate) fn touch(&self, mut state: MutexGuard<'_, State>) {
        let slot = state.slot.filter(|_| !state.is_touched);
        state.is_touched = true;
        drop(state);
        let Some(slot) = slot else { return };
        let mut orders = self.hub.lock();
        // Only the first touch since the driver's last turn must wake it.
        let wakes = orders.touched.is_empty();
        orders.touched.push(slot);
        let waker = orders.waker.clone().filter(|_| wakes);
        drop(orders);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
