//! The retirement of a link: retirement is requested, the successor takes over, the last streams
//! end.
//!
//! ```text
//!   server                                         client
//!   requested by its operator, or ids exhausted
//!     |--- GOAWAY 0 "need a successor" ------------->|   (or its own ids are exhausted)
//!     |    both still open streams, if they have ids | dials
//!     |<-- GOAWAY 0 "the successor is ready" --------|   after its last OPEN
//!     | opens no more; accepts earlier OPENs         | opens no more; accepts OPENs in flight
//!     | its last stream ends                         |
//!     |--- GOAWAY 2 "no stream is left" ------------>|
//!     |                                              | its last stream ends
//!     |<-- GOAWAY 1 ---------------------------------|   the link is over
//! ```
//! Flows count as streams: a retiring link keeps its flows until they are idle.
//!
//! So at any time one of the two links accepts streams, and no stream is cut off: one side may have
//! forgotten a stream whose last bytes still wait for a slow target at the other side.

use super::{Event, Link};
use crate::{GoAwayReason, Side};

/// The last GOAWAY state that this end has announced. It only advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Said {
    #[default]
    Nothing,
    Retire,
    Done,
    /// Nothing follows.
    Closed,
}

impl Link {
    /// Starts the retirement of the link; its streams continue. From a server, this requests
    /// another link from the client, and the server opens streams until the client has one. From a
    /// client, it announces that the other link is ready: the client opens no more streams here.
    pub fn go_away(&mut self) {
        self.say(Said::Retire, GoAwayReason::Retire);
    }

    /// Ends the link: GOAWAY with [`GoAwayReason::Closed`] is the last frame.
    pub fn close(&mut self) {
        self.end(GoAwayReason::Closed);
    }

    /// Ends the link for a violation: GOAWAY with its code is the last frame.
    pub fn abort(&mut self, violation: crate::Violation) {
        self.is_aborted = true;
        self.end(GoAwayReason::Violation(violation.code.raw()));
    }

    /// Whether no more streams may be opened.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        let has_said = self.said >= Said::Retire;
        self.going_away || self.next_id.is_none() || (self.side == Side::Client && has_said)
    }

    fn end(&mut self, reason: GoAwayReason) {
        self.going_away = true;
        self.said = Said::Closed;
        self.farewell = Some(reason);
    }

    fn say(&mut self, what: Said, reason: GoAwayReason) {
        if self.said < what {
            self.said = what;
            self.farewell = Some(reason);
        }
    }

    /// Handles the exhaustion of our ids. Only a server must request the successor; a client dials
    /// it.
    pub(super) fn ids_used_up(&mut self) {
        if self.side == Side::Server {
            self.go_away();
        }
        self.events.push_back(Event::GoingAway(GoAwayReason::Retire));
    }

    pub(super) fn handle_goaway(&mut self, reason: GoAwayReason) {
        // A client sends it after its last OPEN. A retiring server still opens streams.
        self.going_away |= self.side == Side::Server || reason != GoAwayReason::Retire;
        if self.side == Side::Server && reason == GoAwayReason::Retire {
            self.client_left = true;
            self.say_done();
        }
        self.events.push_back(Event::GoingAway(reason));
    }

    /// Announces Done if the last stream has ended. Called where a stream may have been the last
    /// one.
    pub(super) fn say_done(&mut self) {
        if self.client_left && self.stream_count() == 0 && self.flow_count() == 0 {
            self.say(Said::Done, GoAwayReason::Done);
        }
    }

    /// Sends GOAWAY again after a resume: the frame may have been lost with its carrier.
    pub(super) fn repeat_goaway(&mut self) {
        match self.said {
            Said::Retire => self.farewell = Some(GoAwayReason::Retire),
            Said::Done => self.farewell = Some(GoAwayReason::Done),
            Said::Nothing | Said::Closed => {}
        }
    }
}
