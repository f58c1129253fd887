//! Addresses: which packet goes where, and what changes with the address of the peer.
//!
//! A session knows no address. The caller notices that the peer has another one
//! ([`Heard::is_newest`]), sends a [`challenge`](Session::challenge) there, and calls
//! [`path_changed`](Session::path_changed) when the answer has come (RFC 9000 section 9).

use std::time::Instant;

use super::Session;
use crate::stream::control::{Controller, Pacer};

/// A packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its bytes.
    pub length: usize,
    /// Where it goes.
    pub path: PathUse,
    /// It leaves as ECT(0) (RFC 3168): a router may mark it instead of dropping it. `false` after the
    /// path has carried nothing for long, as some paths drop such packets.
    pub is_ect: bool,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathUse {
    /// To the address of the peer.
    Current,
    /// To the address that [`Session::challenge`] was called for.
    Other,
    /// To the address from which the last challenge came ([`Heard::is_challenge`]).
    Reply,
}

/// What a packet that arrived says about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// No packet with a larger number had arrived: where it came from is where the peer is now.
    pub is_newest: bool,
    /// It is a path challenge; the answer goes to where it came from.
    pub is_challenge: bool,
    /// It answers a challenge, with these bytes.
    pub answered: Option<[u8; 8]>,
}

/// A packet that carries nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Challenge([u8; 8]),
    Answer([u8; 8]),
    /// The reason is in the session.
    Close(u16),
}

impl Session {
    /// A packet with these bytes, which nobody can guess, leaves to another address. An earlier
    /// challenge that has not left is forgotten. Neither challenge nor answer is repeated: the caller
    /// asks again.
    pub const fn challenge(&mut self, bytes: [u8; 8]) {
        self.challenge = Some(bytes);
    }

    /// The address of the peer, or the own one, is another one. What was known of the path is
    /// forgotten; what is under way stays, and the peer is asked at once what of it has arrived.
    pub fn path_changed(&mut self, now: Instant) {
        self.flight.path_changed();
        self.path_begin = self.flight.packets.next();
        self.mtu = self.mtu.anew();
        self.resize();
        self.controller = Controller::new(self.config.control, now, self.config.datagram);
        self.pacer = Pacer::new(now);
        self.is_ect = true;
        self.paced = None;
        self.ping |= self.flight.packets.in_flight() > 0;
    }

    pub(super) fn signal(&mut self) -> Option<(Signal, PathUse)> {
        if let Some(bytes) = self.answer.take() {
            return Some((Signal::Answer(bytes), PathUse::Reply));
        }
        self.challenge.take().map(|bytes| (Signal::Challenge(bytes), PathUse::Other))
    }
}
