//! A port of the router that leads to a socket of this machine.
//!
//! A [`Mapper`] asks the router for the port, renews it, and gives it back. It is a plain value,
//! and its owner has the sockets and the clock: it calls `handle_*` with what happens, and then all
//! of `poll_*` until they return `None`. It must call [`Mapper::handle_timeout`] at the time of
//! [`Mapper::poll_timeout`], and [`Mapper::end`] when the socket is not used any more.
//!
//! ```text
//!  Asking: PCP ─> NAT-PMP ─> UPnP ──> Failed          (the one that worked before comes first)
//!     └──> Holding <──> Renewing ──> Lost             (half the lease before its end)
//!  end(): ──> Ending ──> Over                         (the router is told, and has up to 1.5 s)
//! ```
//!
//! | protocol | file | messages |
//! |---|---|---|
//! | PCP, RFC 6887 | `pcp` | one datagram each way |
//! | NAT-PMP, RFC 6886 | `nat_pmp` | the outer address, then the port |
//! | UPnP IGD | `upnp`, `http` | a datagram finds the description; then three requests of HTTP |
//!
//! `step` has the questions, `answers` what an answer does, `lease` the port from grant to end.
//!
//! Only the router is asked: datagrams go to its two ports, requests to the port that its own
//! answer names. An answer that is too long, wrong or late is no answer.

mod answers;
pub(crate) mod fuzz;
mod http;
mod lease;
mod nat_pmp;
mod pcp;
mod protocol;
mod route;
mod step;
mod types;
mod upnp;
mod why;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Random;

use pcp::Nonce;
use step::Step;
use types::Lease;

pub use protocol::Protocol;
pub use route::default_gateway;
pub use types::{Door, Mapped, Request, Wanted};
pub use why::{Denied, Unmapped};

/// The time for which a port is asked. A process that is killed cannot give its port back: the
/// shorter, the earlier it closes. A renewal costs two datagrams.
pub const LEASE: Duration = Duration::from_secs(600);

/// A shorter lease is renewed as if it had this length, so that no router makes us ask without end.
const SHORTEST: Duration = Duration::from_secs(20);

/// The time after which no answer to the first question helps: an attempt has 10 s altogether.
const LIMIT: Duration = Duration::from_secs(6);

/// The pauses after each datagram; the last pause ends the wait. The router is near.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(150), Duration::from_millis(250), Duration::from_millis(400)];

/// The time for the answer to one request of HTTP.
const REQUEST: Duration = Duration::from_millis(1_500);

/// Ports that are tried where another machine has the port already (UPnP).
const PORTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking,
    /// The port is ours, and is renewed at this time.
    Holding(Instant),
    Renewing,
    Ending,
    Over,
}

/// Asks the router for a port, renews it, and gives it back.
#[derive(Debug)]
pub struct Mapper {
    wanted: Wanted,
    nonce: Nonce,
    /// The outer ports that UPnP tries.
    ports: [u16; PORTS],
    state: State,
    began: Instant,
    /// The protocols that are still to be tried.
    left: VecDeque<Protocol>,
    /// The question that is not answered yet.
    step: Option<Step>,
    /// How often it was sent, and when it is sent again or given up.
    sent: usize,
    due: Instant,
    lease: Option<Lease>,
    why: Unmapped,
    last_request: u32,
    datagrams: VecDeque<(Door, Vec<u8>)>,
    request: Option<Request>,
    events: VecDeque<Result<Mapped, Unmapped>>,
}

/// Reads whether a response of HTTP is complete, so that nothing more of it has to be read.
#[must_use]
pub fn is_over(response: &[u8]) -> bool {
    http::is_over(response)
}

impl Mapper {
    /// Begins to ask.
    pub fn new(now: Instant, wanted: Wanted, random: Random<'_>) -> Self {
        let mut nonce = Nonce::default();
        random(&mut nonce);
        let mut ports = [wanted.own.port(); PORTS];
        for port in &mut ports[1..] {
            let mut two = [0; 2];
            random(&mut two);
            // The upper half: no known service has its port there.
            *port = u16::from_ne_bytes(two) | 0x8000;
        }
        let all = [Protocol::Pcp, Protocol::NatPmp, Protocol::Upnp];
        let rest = all.into_iter().filter(|one| Some(*one) != wanted.first);
        let mut mapper = Self {
            wanted,
            nonce,
            ports,
            state: State::Asking,
            began: now,
            left: wanted.first.into_iter().chain(rest).collect(),
            step: None,
            sent: 0,
            due: now,
            lease: None,
            why: Unmapped::Silent,
            last_request: 0,
            datagrams: VecDeque::new(),
            request: None,
            events: VecDeque::new(),
        };
        mapper.next_protocol(now);
        mapper
    }

    /// The next datagram to the router.
    pub fn poll_datagram(&mut self) -> Option<(Door, Vec<u8>)> {
        self.datagrams.pop_front()
    }

    /// The next request to the router. A request that is under way is given up for it.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// The port that leads to our socket, each time that it is another one; or why there is none.
    /// After an error the mapper gives back what it may have, and is over.
    pub fn poll_event(&mut self) -> Option<Result<Mapped, Unmapped>> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is due; `None` when the mapper is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Asking => Some(self.due.min(self.began + LIMIT)),
            State::Holding(renews) => Some(renews),
            State::Renewing | State::Ending => Some(self.due),
            State::Over => None,
        }
    }

    /// Whether nothing more is to be done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Asking if now >= self.began + LIMIT => {
                self.give_up(now, self.why);
            }
            State::Holding(renews) if now >= renews => self.renew(now),
            State::Asking | State::Renewing | State::Ending if now >= self.due => self.repeat(now),
            State::Asking | State::Holding(_) | State::Renewing | State::Ending | State::Over => {}
        }
    }
}

#[cfg(test)]
mod tests;
