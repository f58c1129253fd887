//! Wakes the writers of a link's carriers.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

use proto::CarrierNumber;

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
