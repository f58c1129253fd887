//! The requests to the router, and their retransmissions.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use super::upnp::{self, Place, Service};
use super::{Door, Mapper, PAUSES, REQUEST, Request, State, Unmapped, nat_pmp, pcp};

/// A pending request.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// PCP: MAP with this lifetime; 0 releases the port.
    Pcp(Duration),
    /// NAT-PMP: the request for the external address of the router.
    OuterAddress,
    /// NAT-PMP: a mapping with this lifetime; the router has this external address.
    NatPmp(Ipv4Addr, Duration),
    /// UPnP: the search for the description.
    Search,
    /// UPnP: the request for the description.
    Describe(Place),
    /// UPnP: the request for the external address of this service. The other services are tried if
    /// it has none.
    Address(Service, VecDeque<Service>),
    /// UPnP: the mapping of the nth of our ports; the service has this external address.
    Add(Service, Ipv4Addr, usize),
    /// UPnP: the deletion of the mapping of this external port.
    Delete(Service, u16),
}

/// The message of a request.
enum Message {
    Datagram(Door, Vec<u8>),
    Request(SocketAddrV4, Vec<u8>),
}

impl Mapper {
    /// Sends a request for the first time.
    pub(super) fn begin(&mut self, now: Instant, step: Step) {
        self.step = Some(step);
        self.sent = 0;
        self.send(now);
    }

    /// Retransmits the request, or fails it.
    pub(super) fn repeat(&mut self, now: Instant) {
        // An HTTP request is not retransmitted: TCP does so.
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
        // A renewal, like a retransmission, requests the port that is already mapped.
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
