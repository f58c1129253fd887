//! The addresses of packets, and the effects of a new address of the peer.
//!
//! A session knows no address. The caller detects that the peer has a new address
//! ([`Heard::is_newest`]), sends a [`challenge`](Session::challenge) to this address, and calls
//! [`path_changed`](Session::path_changed) when the response has arrived (RFC 9000 section 9).

use std::time::Instant;

use super::Session;
use crate::stream::control::{Controller, Pacer};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The length of the packet, in bytes.
    pub length: usize,
    /// The destination of the packet.
    pub path: PathUse,
    /// The packet is sent as ECT(0) (RFC 3168): a router may mark it instead of dropping it.
    /// `false` after the path has carried no packet for a long time, because some paths drop such
    /// packets.
    pub is_ect: bool,
}

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathUse {
    /// To the address of the peer.
    Current,
    /// To the address of the latest call of [`Session::challenge`].
    Other,
    /// To the source address of the last challenge ([`Heard::is_challenge`]).
    Reply,
}

/// Path information from an arrived packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// No packet with a larger number had arrived, so the source of this packet is the current
    /// address of the peer.
    pub is_newest: bool,
    /// The packet is a path challenge. The response is sent to the source of the packet.
    pub is_challenge: bool,
    /// The packet answers a challenge with these bytes.
    pub answered: Option<[u8; 8]>,
}

/// A packet that has only a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Challenge([u8; 8]),
    Answer([u8; 8]),
    /// The reason is in the session.
    Close(u16),
}

impl Session {
    /// Sends a packet with these unpredictable bytes to another address. An earlier challenge that
    /// was not sent is dropped. The session retransmits neither the challenge nor the response, so
    /// the caller calls again.
    pub const fn challenge(&mut self, bytes: [u8; 8]) {
        self.challenge = Some(bytes);
    }

    /// Resets the state of the path after the address of the peer or of this end has changed.
    /// Packets in flight stay, and their acknowledgement is requested at once.
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
