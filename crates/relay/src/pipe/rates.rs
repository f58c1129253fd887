//! The byte rates of a stream, for its pipe and its pump.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::facts::Fact;
use super::{Pipe, Pump};
use crate::admit::Way;
use crate::pace;

impl Pump {
    /// Returns how many bytes may be read from the end, or written to it, by the rates in force: at
    /// most `wanted`. `None`: the task is woken when bytes may move. Bytes without a rate cost only
    /// a check of the gates.
    pub(super) fn portion(
        &mut self,
        is_read: bool,
        wanted: impl FnOnce() -> usize,
        cx: &mut Context<'_>,
    ) -> Option<usize> {
        let Some(permit) = &self.permit else { return Some(usize::MAX) };
        let (gate, way) = (permit.gate(), self.pipe.way(is_read));
        let known = self.timers.as_ref().map(|timers| &timers.portions[usize::from(is_read)]);
        if !known.is_some_and(|known| known.waits()) && !pace::is_paced(gate, way) {
            return Some(usize::MAX);
        }
        let timers = self.timers.get_or_insert_default();
        match timers.portions[usize::from(is_read)].poll(cx, gate, way, wanted()) {
            Poll::Ready(most) => Some(most),
            Poll::Pending => None,
        }
    }

    /// Records how many bytes of a portion have moved.
    pub(super) fn moved(&mut self, is_read: bool, bytes: usize) {
        if let Some(timers) = &mut self.timers {
            timers.portions[usize::from(is_read)].used(bytes);
        }
    }

    /// Refunds the rest of a portion, unless it waits.
    pub(super) fn settle(&mut self, is_read: bool) {
        if let (Some(timers), Some(permit)) = (&mut self.timers, &self.permit) {
            let portion = &mut timers.portions[usize::from(is_read)];
            if !portion.waits() {
                portion.settle(permit.gate(), self.pipe.way(is_read));
            }
        }
    }

    /// Refunds all bytes that the rates have permitted and that have not moved.
    pub(super) fn settle_all(&mut self) {
        if let (Some(timers), Some(permit)) = (&mut self.timers, &self.permit) {
            for (portion, is_read) in timers.portions.iter_mut().zip([false, true]) {
                portion.settle(permit.gate(), self.pipe.way(is_read));
            }
        }
    }
}

impl Pipe {
    /// The direction of bytes that are read from the end, or written to it.
    pub(crate) fn way(&self, is_read: bool) -> Way {
        if self.is_target() == is_read { Way::Down } else { Way::Up }
    }

    /// Records that the stream has its own rates.
    pub(crate) fn note_paced(&self) {
        self.facts.note(Fact::Paced);
    }

    /// Charges these bytes to the rates in force. Returns how many bytes were charged. `None`: the
    /// bytes must wait for the rates, which the pump does.
    pub(super) fn admit(&self, pieces: &VecDeque<Bytes>) -> Option<usize> {
        if self.facts.has(Fact::Paced) {
            return None;
        }
        let Some(gate) = &self.settings.gate else { return Some(0) };
        let way = self.way(false);
        if !pace::is_paced(gate, way) {
            return Some(0);
        }
        let bytes = pieces.iter().map(Bytes::len).sum();
        pace::take_now(gate, way, bytes, false).then_some(bytes)
    }

    /// Refunds bytes that the end did not take.
    pub(super) fn refund(&self, bytes: usize) {
        if let Some(gate) = self.settings.gate.as_ref().filter(|_| bytes > 0) {
            pace::refund(gate, self.way(false), bytes);
        }
    }

    /// Whether a rate applies now to bytes that are read from the end, or written to it.
    pub(super) fn is_paced(&self, is_read: bool) -> bool {
        let way = self.way(is_read);
        self.facts.has(Fact::Paced)
            || self.settings.gate.as_ref().is_some_and(|gate| pace::is_paced(gate, way))
    }
}
