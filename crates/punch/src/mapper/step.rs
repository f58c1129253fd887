//! The questions to the router, and how often each is asked.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use super::upnp::{self, Place, Service};
use super::{Door, Mapper, PAUSES, REQUEST, Request, State, Unmapped, nat_pmp, pcp};

/// A question that is not answered yet.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// MAP of PCP, for this time; 0 gives the port back.
    Pcp(Duration),
    /// NAT-PMP: which outer address has the router?
    OuterAddress,
    /// NAT-PMP: a port for this time; the router has this outer address.
    NatPmp(Ipv4Addr, Duration),
    /// UPnP: where is the description?
    Search,
    /// UPnP: the description.
    Describe(Place),
    /// UPnP: which outer address has this service? The others are asked if it has none.
    Address(Service, VecDeque<Service>),
    /// UPnP: the nth of our ports; the service has this outer address.
    Add(Service, Ipv4Addr, usize),
    /// UPnP: the end of the mapping of this outer port.
    Delete(Service, u16),
}

/// What a question sends.
enum Message {
    Datagram(Door, Vec<u8>),
    Request(SocketAddrV4, Vec<u8>),
}

impl Mapper {
    /// Asks a question for the first time.
    pub(super) fn begin(&mut self, now: Instant, step: Step) {
        self.step = Some(step);
        self.sent = 0;
        self.send(now);
    }

    /// Asks again, or gives the question up.
    pub(super) fn repeat(&mut self, now: Instant) {
        // A request of HTTP is not repeated: TCP has done so.
        let is_repeated = matches!(
            self.step,
            Some(Step::Pcp(_) | Step::OuterAddress | Step::NatPmp(..) | Step::Search)
        );
        if is_repeated && self.sent < PAUSES.len() {
            self.send(now);
        } else {
            self.fail(now, Unmapped::Silent);
        }
    }

    fn send(&mut self, now: Instant) {
        let Some(message) = self.message() else { return };
        self.due = now + PAUSES.get(self.sent).copied().unwrap_or_default();
        self.sent += 1;
        match message {
            Message::Datagram(door, bytes) => self.datagrams.push_back((door, bytes)),
            Message::Request(to, bytes) => {
                self.due = now + REQUEST;
                self.last_request = self.last_request.wrapping_add(1);
                self.request = Some(Request { id: self.last_request, to, bytes });
            }
        }
    }

    fn message(&self) -> Option<Message> {
        let own = self.wanted.own;
        let seconds = |time: &Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        // A renewal, as a repeated question, asks for the port that is ours.
        let known = self.lease.as_ref().map(|lease| lease.mapped.outer);
        let known = known.filter(|_| self.state != State::Ending);
        let mapping = |bytes| Message::Datagram(Door::Mapping, bytes);
        Some(match self.step.as_ref()? {
            Step::Pcp(time) => {
                let wanted = known.filter(|_| !time.is_zero());
                mapping(pcp::request((*own.ip(), own.port()), &self.nonce, seconds(time), wanted))
            }
            Step::OuterAddress => mapping(nat_pmp::address_request()),
            Step::NatPmp(_, time) => mapping(nat_pmp::request(own.port(), seconds(time), known)),
            Step::Search => Message::Datagram(Door::Search, upnp::search(self.wanted.router)),
            Step::Describe(at) => Message::Request(at.host, at.get()),
            Step::Address(service, _) => {
                Message::Request(service.at.host, service.address_request())
            }
            Step::Add(service, _, nth) => {
                let outer = self.outer_port(*nth);
                let bytes = service.add_request(own, outer, seconds(&super::LEASE));
                Message::Request(service.at.host, bytes)
            }
            Step::Delete(service, outer) => {
                Message::Request(service.at.host, service.delete_request(*outer))
            }
        })
    }
}
