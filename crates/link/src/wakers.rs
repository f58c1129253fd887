//! Wakes the writers of a link's carriers.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

use proto::CarrierNumber;

/// The wakers of the writers. A writer is woken once per turn, regardless of how many streams send.
#[derive(Default)]
pub(crate) struct Wakers {
    writers: RefCell<Vec<Writer>>,
    /// Whether no writer sleeps. Reduces the usual call of [`Wakers::wake`] to the check of one
    /// flag.
    all_awake: Cell<bool>,
}

struct Writer {
    number: CarrierNumber,
    waker: Waker,
    /// Whether the writer was woken, or runs and will poll for more frames before it sleeps.
    is_awake: bool,
}

impl Wakers {
    /// Wakes the sleeping writers, because frames may wait.
    pub(crate) fn wake(&self) {
        if !self.all_awake.replace(true) {
            for writer in &mut *self.writers.borrow_mut() {
                if !std::mem::replace(&mut writer.is_awake, true) {
                    writer.waker.wake_by_ref();
                }
            }
        }
    }

    /// Wakes every writer once more after the end of the link, including the running writer.
    pub(crate) fn wake_all(&self) {
        for writer in &*self.writers.borrow() {
            writer.waker.wake_by_ref();
        }
    }

    /// Records that a writer runs. It needs no wake-up until [`Wakers::leave`].
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

    /// Records that a writer sleeps. New frames wake it.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Rig {
        wakers: Wakers,
        counts: [Arc<Count>; 2],
    }

    impl Rig {
        /// Two sleeping writers.
        fn new() -> Self {
            let rig = Self { wakers: Wakers::default(), counts: Default::default() };
            [0, 1].iter().for_each(|writer| rig.enter(*writer));
            [0, 1].iter().for_each(|writer| rig.leave(*writer));
            rig
        }

        fn enter(&self, writer: usize) {
            let waker = Waker::from(Arc::clone(&self.counts[writer]));
            self.wakers.enter(number(writer), &Context::from_waker(&waker));
        }

        fn leave(&self, writer: usize) {
            self.wakers.leave(number(writer));
        }

        /// How often each writer was woken so far.
        fn woken(&self) -> [usize; 2] {
            [0, 1].map(|writer| self.counts[writer].0.load(Ordering::Relaxed))
        }
    }

    fn number(writer: usize) -> CarrierNumber {
        CarrierNumber(u32::try_from(writer).unwrap())
    }

    #[test]
    fn a_writer_is_woken_once_until_it_has_run() {
        let rig = Rig::new();
        rig.wakers.wake();
        rig.wakers.wake();
        assert_eq!(rig.woken(), [1, 1]);
        rig.enter(0);
        rig.leave(0);
        rig.wakers.wake();
        assert_eq!(rig.woken(), [2, 1], "the other writer has not run yet");
    }

    #[test]
    fn a_running_writer_is_not_woken_by_its_own_turn_and_the_other_writer_is() {
        let rig = Rig::new();
        rig.enter(0);
        rig.wakers.wake();
        assert_eq!(rig.woken(), [0, 1]);
        rig.leave(0);
        rig.wakers.wake();
        assert_eq!(rig.woken(), [1, 1], "frames that come after its turn wake it");
    }

    #[test]
    fn the_end_of_a_link_wakes_the_running_writer_as_well() {
        let rig = Rig::new();
        rig.enter(0);
        rig.wakers.wake_all();
        assert_eq!(rig.woken(), [1, 1]);
    }
}
