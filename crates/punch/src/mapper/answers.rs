//! Handles the responses of the router.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::{is_private, refusal};

use super::step::Step;
use super::types::{Answer, Granted};
use super::{Denied, Door, LEASE, Mapper, PORTS, Protocol, State, Unmapped, nat_pmp, pcp, upnp};

impl Mapper {
    /// Handles a datagram of the router. Everything but a response to the current request is
    /// ignored.
    pub fn handle_datagram(&mut self, now: Instant, door: Door, datagram: &[u8]) {
        let Some(step) = self.step.clone() else { return };
        let port = self.wanted.own.port();
        match (step, door) {
            (Step::Pcp(_), Door::Mapping) => {
                if let Some(answer) = pcp::answer(datagram, port, &self.nonce) {
                    self.answered(now, Protocol::Pcp, answer);
                }
            }
            (Step::OuterAddress, Door::Mapping) => match nat_pmp::address(datagram) {
                Some(Ok(outer)) => match self.judge(outer.into()) {
                    None => self.begin(now, Step::NatPmp(outer, LEASE)),
                    Some(why) => self.fail(now, why),
                },
                Some(Err(denied)) => {
                    self.fail(now, Unmapped::Denied(Protocol::NatPmp, denied));
                }
                None => {}
            },
            (Step::NatPmp(outer, _), Door::Mapping) => {
                if let Some(answer) = nat_pmp::answer(datagram, port, outer) {
                    self.answered(now, Protocol::NatPmp, answer);
                }
            }
            (Step::Search, Door::Search) => {
                if let Some(at) = upnp::location(datagram, self.wanted.router) {
                    self.begin(now, Step::Describe(at));
                }
            }
            _ => {}
        }
    }

    /// Handles a connection-refused error: nothing listens at [`Door::Mapping`].
    pub fn handle_refused(&mut self, now: Instant) {
        if matches!(self.step, Some(Step::Pcp(_) | Step::OuterAddress | Step::NatPmp(..))) {
            // One port serves both protocols.
            self.left.retain(|one| *one == Protocol::Upnp);
            self.fail(now, Unmapped::Silent);
        }
    }

    /// Handles the response to an HTTP request; `None`: there is none.
    pub fn handle_response(&mut self, now: Instant, id: u32, response: Option<&[u8]>) {
        if id != self.last_request {
            return;
        }
        match self.step.clone() {
            Some(Step::Describe(at)) => {
                let found = upnp::done(response).map(|body| upnp::services(&body, &at));
                self.try_services(now, found.unwrap_or_default().into());
            }
            Some(Step::Address(service, others)) => {
                let outer = upnp::done(response).ok().and_then(|body| upnp::address(&body));
                match outer.map(|outer| (outer, self.judge(outer.into()))) {
                    Some((outer, None)) => self.begin(now, Step::Add(service, outer, 0)),
                    Some((_, Some(why @ Unmapped::Private(_)))) => self.fail(now, why),
                    _ => {
                        let denied = Denied::NoNetwork;
                        self.note(Unmapped::Denied(Protocol::Upnp, denied));
                        self.try_services(now, others);
                    }
                }
            }
            Some(Step::Add(service, outer, nth)) => match upnp::done(response) {
                Ok(_) => {
                    let outer = SocketAddr::from((outer, self.outer_port(nth)));
                    let seconds = u32::try_from(LEASE.as_secs()).unwrap_or(u32::MAX);
                    self.take(now, Protocol::Upnp, Granted { outer, seconds }, Some(service));
                }
                Err(Denied::Code(upnp::CONFLICT)) if self.lease.is_none() && nth + 1 < PORTS => {
                    self.begin(now, Step::Add(service, outer, nth + 1));
                }
                Err(Denied::Code(upnp::PERMANENT)) => self.fail(now, Unmapped::Permanent),
                Err(denied) => self.fail(now, Unmapped::Denied(Protocol::Upnp, denied)),
            },
            Some(Step::Delete(..)) => self.over(),
            Some(Step::Pcp(_) | Step::OuterAddress | Step::NatPmp(..) | Step::Search) | None => {}
        }
    }

    pub(super) fn answered(&mut self, now: Instant, protocol: Protocol, answer: Answer) {
        match answer {
            Answer::Granted(_) if self.state == State::Ending => self.over(),
            Answer::Granted(granted) => self.take(now, protocol, granted, None),
            Answer::Denied(denied) => self.fail(now, Unmapped::Denied(protocol, denied)),
            Answer::Unknown => self.fail(now, Unmapped::Silent),
        }
    }

    pub(super) fn try_services(&mut self, now: Instant, mut services: VecDeque<upnp::Service>) {
        match services.pop_front() {
            Some(service) => self.begin(now, Step::Address(service, services)),
            None => self.fail(now, Unmapped::Silent),
        }
    }

    /// Why this external address cannot be announced; `None` if it can.
    pub(super) fn judge(&self, outer: IpAddr) -> Option<Unmapped> {
        if outer.is_ipv4() && is_private(outer) {
            return Some(Unmapped::Private(outer));
        }
        let is_named = outer.is_ipv4() && refusal(SocketAddr::new(outer, 1)).is_none();
        (!is_named).then_some(Unmapped::NoAddress)
    }
}
