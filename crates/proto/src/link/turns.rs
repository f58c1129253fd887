//! Detects that several streams of a link receive at the same time. Then the windows of bulk
//! streams are kept small, so that they do not delay other streams.

use crate::Instant;
use std::time::Duration;

use crate::StreamKey;

/// The time for which streams count as concurrent after the last alternation. Long enough for
/// keystrokes, for example.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The stream that consumed last, and the time of the last change.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: Option<StreamKey>,
    changed: Option<Instant>,
}

impl Turns {
    /// Records that bytes of this stream were consumed.
    pub(super) fn consumed(&mut self, now: Instant, key: StreamKey) {
        if self.last != Some(key) && self.last.replace(key).is_some() {
            self.changed = Some(now);
        }
    }

    /// Whether the consuming stream has changed recently.
    pub(super) fn are_shared(&self, now: Instant) -> bool {
        self.changed.is_some_and(|at| now.saturating_duration_since(at) < SHARED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Side, StreamId};

    #[test]
    fn a_link_is_shared_for_a_second_after_another_stream_had_a_turn() {
        let start = crate::testing::epoch();
        let at = |ms| start + Duration::from_millis(ms);
        let [bulk, echo] = [Side::Client, Side::Server]
            .map(|side| StreamKey { index: 1, id: StreamId::first(side) });
        let mut turns = Turns::default();
        for ms in 0..10 {
            turns.consumed(at(ms), bulk);
        }
        assert!(!turns.are_shared(at(10)), "one alone, however often");
        turns.consumed(at(20), echo);
        turns.consumed(at(21), bulk);
        turns.consumed(at(900), bulk);
        assert!(turns.are_shared(at(1_020)));
        assert!(!turns.are_shared(at(1_021)));
    }
}
