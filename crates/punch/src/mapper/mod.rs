//! Maps a port of the router to a socket of this machine.
//!
//! A [`Mapper`] requests the port from the router, renews the lease, and releases it. It is a plain
//! value, and its owner has the sockets and the clock: it calls `handle_*` for each input, and then
//! all of `poll_*` until they return `None`. It must call [`Mapper::handle_timeout`] at the time of
//! [`Mapper::poll_timeout`], and [`Mapper::end`] when the socket is no longer used.
//!
//! ```text
//!  Asking: PCP ─> NAT-PMP ─> UPnP ──> Failed          (the one that worked before comes first)
//!     └──> Holding <──> Renewing ──> Lost             (half the lease before its end)
//!  end(): ──> Ending ──> Over                         (the router is informed, and has 1.5 s)
//! ```
//!
//! | protocol | file | messages |
//! |---|---|---|
//! | PCP, RFC 6887 | `pcp` | one datagram each way |
//! | NAT-PMP, RFC 6886 | `nat_pmp` | the external address, then the port |
//! | UPnP IGD | `upnp`, `http` | a datagram finds the description; then three HTTP requests |
//!
//! `step` has the requests, `answers` the handling of responses, `lease` the lease from grant to
//! end.
//!
//! Requests are sent only to the router: datagrams to its two ports, HTTP requests to the port in
//! its own response. A response that is too long, invalid or late is ignored.

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

/// The requested lifetime of a lease. A process that is killed cannot release its port: the shorter
/// the lease, the earlier the port closes. A renewal costs two datagrams.
pub const LEASE: Duration = Duration::from_secs(600);

/// Minimum lifetime of a lease; a shorter lease is renewed as if it had this lifetime, so that no
/// router causes excessive renewals.
const SHORTEST: Duration = Duration::from_secs(20);

/// Timeout of the first mapping, after which a response would be too late: an attempt has 10 s
/// altogether.
const LIMIT: Duration = Duration::from_secs(6);

/// The timeouts of each transmission of a datagram; the last timeout ends the request. The router
/// is near.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(150), Duration::from_millis(250), Duration::from_millis(400)];

/// Timeout of an HTTP request.
const REQUEST: Duration = Duration::from_millis(1_500);

/// Number of ports that are tried if another machine already has the port (UPnP).
const PORTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking,
    /// The port is mapped, and is renewed at this time.
    Holding(Instant),
    Renewing,
    Ending,
    Over,
}

/// Requests a port from the router, renews the lease, and releases it.
#[derive(Debug)]
pub struct Mapper {
    wanted: Wanted,
    nonce: Nonce,
    /// The external ports that UPnP tries.
    ports: [u16; PORTS],
    state: State,
    began: Instant,
    /// The protocols that have not been tried yet.
    left: VecDeque<Protocol>,
    /// The pending request.
    step: Option<Step>,
    /// The number of its transmissions, and the time at which it is retransmitted or fails.
    sent: usize,
    due: Instant,
    lease: Option<Lease>,
    why: Unmapped,
    last_request: u32,
    datagrams: VecDeque<(Door, Vec<u8>)>,
    request: Option<Request>,
    events: VecDeque<Result<Mapped, Unmapped>>,
}

/// Whether an HTTP response is complete, so that no more of it must be read.
#[must_use]
pub fn is_over(response: &[u8]) -> bool {
    http::is_over(response)
}

impl Mapper {
    /// Starts to request a port.
    pub fn new(now: Instant, wanted: Wanted, random: Random<'_>) -> Self {
        let mut nonce = Nonce::default();
        random(&mut nonce);
        let mut ports = [wanted.own.port(); PORTS];
        for port in &mut ports[1..] {
            let mut two = [0; 2];
            random(&mut two);
            // The upper half: no well-known service has its port there.
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

    /// The next HTTP request to the router. It cancels a request in progress.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// The mapped port, each time that it changes; or why there is none. After an error the mapper
    /// releases a port that it may have, and ends.
    pub fn poll_event(&mut self) -> Option<Result<Mapped, Unmapped>> {
        self.events.pop_front()
    }

    /// The time at which [`Self::handle_timeout`] is due; `None` if the mapper is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Asking => Some(self.due.min(self.began + LIMIT)),
            State::Holding(renews) => Some(renews),
            State::Renewing | State::Ending => Some(self.due),
            State::Over => None,
        }
    }

    /// Whether the mapper has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Handles the timer that is due.
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
