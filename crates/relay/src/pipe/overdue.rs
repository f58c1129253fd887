//! Decides when a time-out ends a stream.

use std::task::Context;

use super::linger::LINGER;
use super::pump::{Reading, Writing};
use super::timers::Deadline;
use super::{MOVED, Pump, READ, WRITTEN, Watchdog};
use crate::{End, Timeouts};

/// The end of a stream whose visitor has sent nothing for `timeouts.idle_up`.
const IDLE_UP: End = End::Timeout("of the visitor's direction");

/// The end of a stream whose target has sent nothing for `timeouts.idle_down`.
const IDLE_DOWN: End = End::Timeout("of the target's direction");

/// The end of a stream whose other direction stayed open for `timeouts.flush`.
const FLUSH: End = End::Timeout("after one side finished");

impl Pump {
    /// The end of a stream that has reached its deadline, or in which no byte moved for the
    /// time-out of its current state.
    pub(super) fn overdue(&mut self, cx: &mut Context<'_>) -> Option<End> {
        if self.is_half_closed() && !self.is_flushing {
            self.is_flushing = true;
            if let Some(flush) = Deadline::after(self.pipe.settings.timeouts.flush, FLUSH) {
                self.timers.get_or_insert_default().add(flush);
            }
        }
        // Both sides of a lingering stream have finished, and its last bytes may be in flight.
        let timers = if self.lingering() { None } else { self.timers.as_mut() };
        let deadline = timers.and_then(|timers| timers.deadline.as_mut());
        if let Some(end) = deadline.and_then(|deadline| deadline.poll(cx)) {
            return Some(end);
        }
        if self.lingering() && self.has_lingered(cx) {
            return Some(End::Finished);
        }
        if self.is_quiet(cx) {
            return Some(if self.lingering() { End::Finished } else { End::IDLE });
        }
        self.quiet_way(cx)
    }

    fn is_half_closed(&self) -> bool {
        self.reading != Reading::Open || self.writing != Writing::Open
    }

    fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let timeouts = &self.pipe.settings.timeouts;
        let lingering = self.lingering();
        let period = match (lingering, self.is_half_closed()) {
            (true, _) => LINGER,
            (false, true) => timeouts.half_close,
            (false, false) => timeouts.idle,
        };
        if period.is_zero() {
            if let Some(timers) = &mut self.timers {
                timers.watchdog = None;
            }
            return false;
        }
        let timers = self.timers.get_or_insert_default();
        let dog = timers.watchdog.take_if(|dog| dog.period() == period).unwrap_or_else(|| {
            self.pipe.take_active(MOVED);
            Watchdog::new(period)
        });
        timers.watchdog.insert(dog).poll(cx, || self.pipe.take_active(MOVED)).is_ready()
    }

    /// The end of a stream with an open direction in which no byte moved for the direction's
    /// time-out.
    fn quiet_way(&mut self, cx: &mut Context<'_>) -> Option<End> {
        let Timeouts { idle_up, idle_down, .. } = self.pipe.settings.timeouts;
        if (idle_up.is_zero() && idle_down.is_zero()) || self.lingering() {
            return None;
        }
        let (up, down) = ((idle_up, IDLE_UP), (idle_down, IDLE_DOWN));
        let (read, written) = if self.pipe.is_target() { (down, up) } else { (up, down) };
        let (reads, writes) = (self.reading == Reading::Open, self.writing == Writing::Open);
        let timers = self.timers.get_or_insert_default();
        for (dog, which, (period, end), is_open) in timers
            .of_ways
            .iter_mut()
            .zip([(READ, read, reads), (WRITTEN, written, writes)])
            .map(|(dog, (which, time, is_open))| (dog, which, time, is_open))
        {
            if period.is_zero() || !is_open {
                *dog = None;
                continue;
            }
            let dog = dog.get_or_insert_with(|| Watchdog::new(period));
            if dog.poll(cx, || self.pipe.take_active(which)).is_ready() {
                return Some(end);
            }
        }
        None
    }
}
