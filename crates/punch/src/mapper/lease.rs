//! The lease of a port from its grant to its end, and the fallback without a lease.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::step::Step;
use super::types::{Granted, Lease};
use super::{LEASE, Mapped, Mapper, Protocol, SHORTEST, State, Unmapped, upnp};

impl Mapper {
    /// Records a granted port.
    pub(super) fn take(
        &mut self,
        now: Instant,
        protocol: Protocol,
        granted: Granted,
        service: Option<upnp::Service>,
    ) {
        let Granted { outer, seconds } = granted;
        let is_new = self.lease.as_ref().is_none_or(|lease| lease.mapped.outer != outer);
        let time = Duration::from_secs(seconds.into()).clamp(SHORTEST, LEASE);
        let mapped = Mapped { outer, protocol };
        self.lease = Some(Lease { mapped, until: now + time, service });
        let no_port = (outer.port() == 0).then_some(Unmapped::NoAddress);
        if let Some(why) = no_port.or_else(|| self.judge(outer.ip())) {
            return self.give_up(now, why);
        }
        self.step = None;
        self.state = State::Holding(now + time / 2);
        if is_new {
            self.events.push_back(Ok(mapped));
        }
    }

    pub(super) fn renew(&mut self, now: Instant) {
        let Some(lease) = &self.lease else { return };
        self.state = State::Renewing;
        let step = match (lease.mapped, &lease.service) {
            (Mapped { protocol: Protocol::NatPmp, outer: SocketAddr::V4(outer) }, _) => {
                Step::NatPmp(*outer.ip(), LEASE)
            }
            (Mapped { outer: SocketAddr::V4(outer), .. }, Some(service)) => {
                Step::Add(service.clone(), *outer.ip(), 0)
            }
            _ => Step::Pcp(LEASE),
        };
        self.begin(now, step);
    }

    /// Handles the failure of the current request.
    pub(super) fn fail(&mut self, now: Instant, why: Unmapped) {
        self.note(why);
        match (self.state, &self.lease) {
            (State::Asking, _) => self.next_protocol(now),
            (State::Renewing, Some(lease)) if lease.until > now + SHORTEST => {
                self.step = None;
                self.state = State::Holding(now + (lease.until - now) / 2);
            }
            (State::Renewing, _) => self.give_up(now, Unmapped::Lost),
            (State::Ending, _) => self.over(),
            (State::Holding(_) | State::Over, _) => {}
        }
    }

    /// Keeps the most informative reason: a refusal is preferred to silence.
    pub(super) fn note(&mut self, why: Unmapped) {
        if why != Unmapped::Silent {
            self.why = why;
        }
    }

    pub(super) fn next_protocol(&mut self, now: Instant) {
        let step = match self.left.pop_front() {
            // No other protocol would change the address of the router.
            _ if matches!(self.why, Unmapped::Private(_)) => None,
            Some(Protocol::Pcp) => Some(Step::Pcp(LEASE)),
            Some(Protocol::NatPmp) => Some(Step::OuterAddress),
            Some(Protocol::Upnp) => Some(Step::Search),
            None => None,
        };
        match step {
            Some(step) => self.begin(now, step),
            None => {
                self.step = None;
                self.give_up(now, self.why);
            }
        }
    }

    /// Releases the port, because the socket is no longer used. The owner continues to drive the
    /// mapper until [`Self::is_over`].
    pub fn end(&mut self, now: Instant) {
        if matches!(self.state, State::Ending | State::Over) {
            return;
        }
        self.events.clear();
        self.give_back(now);
    }

    pub(super) fn give_up(&mut self, now: Instant, why: Unmapped) {
        self.events.push_back(Err(why));
        self.give_back(now);
    }

    pub(super) fn give_back(&mut self, now: Instant) {
        self.state = State::Ending;
        match self.deletion() {
            Some(step) => self.begin(now, step),
            None => self.over(),
        }
    }

    /// The request that releases the port, which is granted or may still be granted.
    pub(super) fn deletion(&self) -> Option<Step> {
        let zero = Duration::ZERO;
        if let Some(lease) = &self.lease {
            let outer = lease.mapped.outer;
            return match (lease.mapped.protocol, &lease.service, outer) {
                (Protocol::Pcp, ..) => Some(Step::Pcp(zero)),
                (Protocol::NatPmp, _, SocketAddr::V4(outer)) => {
                    Some(Step::NatPmp(*outer.ip(), zero))
                }
                (_, Some(service), _) => Some(Step::Delete(service.clone(), outer.port())),
                _ => None,
            };
        }
        match &self.step {
            Some(Step::Pcp(_)) => Some(Step::Pcp(zero)),
            Some(Step::NatPmp(outer, _)) => Some(Step::NatPmp(*outer, zero)),
            Some(Step::Add(service, _, nth)) => {
                Some(Step::Delete(service.clone(), self.outer_port(*nth)))
            }
            _ => None,
        }
    }

    pub(super) fn outer_port(&self, nth: usize) -> u16 {
        match &self.lease {
            Some(lease) => lease.mapped.outer.port(),
            None => self.ports.get(nth).copied().unwrap_or_default(),
        }
    }

    pub(super) fn over(&mut self) {
        self.step = None;
        self.state = State::Over;
    }
}
