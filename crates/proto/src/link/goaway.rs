//! How a link retires: it is asked to go, its successor takes over, its last streams end.
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
//! So there is no moment at which neither link takes a stream, and no stream is cut: a side may
//! have forgotten one whose last bytes still wait for a slow target at the other.

use super::{Event, Link};
use crate::Side;

/// GOAWAY: the link is to retire. Of a server: the client shall make another link. Of a client:
/// it has one, and opens nothing here any more.
pub const GOAWAY_RETIRE: u16 = 0;

/// GOAWAY: the sender ends the link now. The numbers of violations begin at 0x101.
pub const GOAWAY_CLOSED: u16 = 1;

/// GOAWAY of a server: the client has said [`GOAWAY_RETIRE`] and no stream is left here.
pub const GOAWAY_DONE: u16 = 2;

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
        self.say(Said::Retire, GOAWAY_RETIRE);
    }

    /// Ends the link: GOAWAY with [`GOAWAY_CLOSED`] is the last frame.
    pub fn close(&mut self) {
        self.end(GOAWAY_CLOSED);
    }

    /// Ends the link for a violation: GOAWAY with its code is the last frame.
    pub fn abort(&mut self, violation: crate::Violation) {
        self.is_aborted = true;
        self.end(violation.code.raw());
    }

    /// Whether no stream may be opened any more.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        let has_said = self.said >= Said::Retire;
        self.going_away || self.next_id.is_none() || (self.side == Side::Client && has_said)
    }

    fn end(&mut self, code: u16) {
        self.going_away = true;
        self.said = Said::Closed;
        self.farewell = Some(code);
    }

    fn say(&mut self, what: Said, code: u16) {
        if self.said < what {
            self.said = what;
            self.farewell = Some(code);
        }
    }

    /// Our ids are used up. Only a server has to ask for the successor; a client makes it.
    pub(super) fn ids_used_up(&mut self) {
        if self.side == Side::Server {
            self.go_away();
        }
        self.events.push_back(Event::GoingAway(GOAWAY_RETIRE));
    }

    pub(super) fn handle_goaway(&mut self, code: u16) {
        // A client's is behind its last OPEN. A server that retires still opens streams.
        self.going_away |= self.side == Side::Server || code != GOAWAY_RETIRE;
        if self.side == Side::Server && code == GOAWAY_RETIRE {
            self.client_left = true;
            self.say_done();
        }
        self.events.push_back(Event::GoingAway(code));
    }

    /// Where a stream may have been the last one.
    pub(super) fn say_done(&mut self) {
        if self.client_left && self.stream_count() == 0 {
            self.say(Said::Done, GOAWAY_DONE);
        }
    }

    /// After a resume: the frame may have died with its carrier.
    pub(super) fn repeat_goaway(&mut self) {
        match self.said {
            Said::Retire => self.farewell = Some(GOAWAY_RETIRE),
            Said::Done => self.farewell = Some(GOAWAY_DONE),
            Said::Nothing | Said::Closed => {}
        }
    }
}
