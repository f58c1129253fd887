//! The timers of a pump, and their state while its connection is at rest.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::retry::Unserved;
use super::watchdog::{Clock, Watchdog};
use super::{MOVED, Pipe, READ, WRITTEN};
use crate::End;
use crate::pace::Portions;

/// The timers in use, in one allocation: most streams have none.
#[derive(Default)]
pub(super) struct Timers {
    pub(super) watchdog: Option<Watchdog>,
    /// The watchdogs of bytes that are read, and of bytes that are written.
    pub(super) of_ways: [Option<Watchdog>; 2],
    pub(super) deadline: Option<Deadline>,
    /// The end of the linger of an HTTP visitor.
    pub(super) linger: Option<Pin<Box<Sleep>>>,
    pub(super) breaking: Option<Breaking>,
    /// The bytes that the rates permit: for bytes that are written, and for bytes that are read.
    pub(super) portions: [Portions; 2],
    /// The visitor, until the stream serves it.
    pub(super) unserved: Option<Box<Unserved>>,
}

/// The wait after a target failed, until the peer has taken all its bytes.
pub(super) struct Breaking {
    pub(super) until: Instant,
    pub(super) tick: Pin<Box<Sleep>>,
}

impl Timers {
    pub(super) fn of(deadline: Deadline) -> Self {
        Self { deadline: Some(deadline), ..Self::default() }
    }

    /// Whether no timer is in use.
    pub(super) fn is_bare(&self) -> bool {
        let Self { watchdog, of_ways, deadline, linger, breaking, portions, unserved } = self;
        watchdog.is_none()
            && of_ways.iter().all(Option::is_none)
            && deadline.is_none()
            && linger.is_none()
            && breaking.is_none()
            && portions.iter().all(Portions::is_idle)
            && unserved.is_none()
    }

    /// Whether only time-outs are in use, and none is due until `soon`.
    pub(super) fn is_quiet_until(&self, soon: Instant) -> bool {
        let Self { watchdog, of_ways, deadline, linger, breaking, portions, unserved } = self;
        let dogs = of_ways.iter().chain([watchdog]).flatten().map(Watchdog::due);
        let ends = dogs.chain(deadline.as_ref().map(|deadline| deadline.sleep.deadline()));
        linger.is_none()
            && breaking.is_none()
            && portions.iter().all(Portions::is_idle)
            && unserved.is_none()
            && ends.min().is_none_or(|end| end > soon)
    }

    /// Sets a deadline, unless an earlier one is set.
    pub(super) fn add(&mut self, other: Deadline) {
        let all = self.deadline.take().into_iter().chain([other]);
        self.deadline = all.min_by_key(|deadline| deadline.sleep.deadline());
    }

    /// The state of the time-outs without their timers.
    pub(super) fn rest(self) -> Option<Box<Clocks>> {
        let Self { watchdog, of_ways, deadline, .. } = self;
        let clocks = Clocks {
            watchdog: watchdog.as_ref().map(Watchdog::rest),
            of_ways: of_ways.each_ref().map(|dog| dog.as_ref().map(Watchdog::rest)),
            deadline: deadline.map(|deadline| (deadline.sleep.deadline(), deadline.end)),
        };
        clocks.due().map(|_| Box::new(clocks))
    }
}

/// The time-outs of a connection at rest.
pub(super) struct Clocks {
    watchdog: Option<Clock>,
    of_ways: [Option<Clock>; 2],
    deadline: Option<(Instant, End)>,
}

impl Clocks {
    /// The time of the earliest time-out.
    pub(super) fn due(&self) -> Option<Instant> {
        let dogs = self.of_ways.iter().chain([&self.watchdog]).flatten().map(Clock::due);
        dogs.chain(self.deadline.map(|(due, _)| due)).min()
    }

    pub(super) fn resume(self, pipe: &Pipe) -> Timers {
        let Self { watchdog, of_ways: [read, written], deadline } = self;
        let resume = |clock: Clock, which: u8| clock.resume(|| pipe.take_active(which));
        Timers {
            watchdog: watchdog.map(|clock| resume(clock, MOVED)),
            of_ways: [
                read.map(|clock| resume(clock, READ)),
                written.map(|clock| resume(clock, WRITTEN)),
            ],
            deadline: deadline
                .map(|(due, end)| Deadline { sleep: Box::pin(sleep_until(due)), end }),
            ..Timers::default()
        }
    }
}

/// The time at which a stream ends, whether or not bytes move. Without the corresponding option
/// there is no deadline and no timer.
pub(super) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    end: End,
}

impl Deadline {
    /// Returns `None` for a time of 0, which means no limit.
    pub(super) fn after(time: Duration, end: End) -> Option<Self> {
        (!time.is_zero()).then(|| Self { sleep: Box::pin(sleep(time)), end })
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<End> {
        self.sleep.as_mut().poll(cx).is_ready().then_some(self.end)
    }
}
