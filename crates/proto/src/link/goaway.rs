//! The retirement of a link: the link is asked to retire, its successor takes over, its last
//! streams end.
//!
//! ```text
//!   server                                         client
//!   asked by its operator, or ids used up
//!     |--- GOAWAY 0 "have a successor" ------------->|   (or its own ids are used up)
//!     |    both still open streams, if they have ids | dials
//!     |<-- GOAWAY 0 "the successor lives" -----------|   behind its last OPEN
//!     | opens no more; takes what came before        | opens no more; takes what crosses
//!     | its last stream ends                         |
//!     |--- GOAWAY 2 "nothing is left here" --------->|
//!     |                                              | its last stream ends
//!     |<-- GOAWAY 1 ---------------------------------|   the link is over
//! ```
//! Flows count as streams here: a link that retires keeps its flows until they are idle.
//!
//! So there is no moment at which neither link takes a stream, and no stream is cut: a side may
//! have forgotten one whose last bytes still wait for a slow target at the other.

use super::{Event, Link};
use crate::{GoAwayReason, Side};

/// What this end has said last about its end. It only goes on.
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
    /// Lets the link retire; its streams go on. A server asks the client for another link by that,
    /// and opens streams until the client has one. A client says that it has one: from now on it
    /// opens none here.
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

    /// Whether no stream may be opened any more.
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

    /// Our ids are used up. Only a server has to ask for the successor; a client makes it.
    pub(super) fn ids_used_up(&mut self) {
        if self.side == Side::Server {
            self.go_away();
        }
        self.events.push_back(Event::GoingAway(GoAwayReason::Retire));
    }

    pub(super) fn handle_goaway(&mut self, reason: GoAwayReason) {
        // A client's is behind its last OPEN. A server that retires still opens streams.
        self.going_away |= self.side == Side::Server || reason != GoAwayReason::Retire;
        if self.side == Side::Server && reason == GoAwayReason::Retire {
            self.client_left = true;
            self.say_done();
        }
        self.events.push_back(Event::GoingAway(reason));
    }

    /// Where a stream may have been the last one.
    pub(super) fn say_done(&mut self) {
        if self.client_left && self.stream_count() == 0 && self.flow_count() == 0 {
            self.say(Said::Done, GoAwayReason::Done);
        }
    }

    /// After a resume: the frame may have died with its carrier.
    pub(super) fn repeat_goaway(&mut self) {
        match self.said {
            Said::Retire => self.farewell = Some(GoAwayReason::Retire),
            Said::Done => self.farewell = Some(GoAwayReason::Done),
            Said::Nothing | Said::Closed => {}
        }
    }
}
