//! Tasks that wait for one thing.

use std::task::{Context, Waker};

/// The most tasks that are remembered. Where more wait, all are woken, and those that still want
/// something ask again.
const MOST: usize = 8;

/// Tasks that wait for one thing, mostly one.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<Waker>);

impl Waiters {
    pub(crate) fn add(&mut self, cx: &Context<'_>) {
        if self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            return;
        }
        if self.0.len() == MOST {
            self.0.drain(..).for_each(Waker::wake);
        }
        self.0.push(cx.waker().clone());
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves all of them to `woken`: they are woken when no lock is held.
    pub(crate) fn take(&mut self, woken: &mut Vec<Waker>) {
        woken.append(&mut self.0);
    }
}
