//! Networks with NATs in virtual time: two ends, and a server that answers STUN at two ports.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::testing::epoch;
use crate::{Attempt, Candidate, Event, OwnAddress, Role, Settings, stun};

pub(super) const SERVER: &str = "198.51.100.1";
pub(super) const PORTS: [u16; 2] = [7000, 3478];

/// One way between two machines.
const DELAY: Duration = Duration::from_millis(20);

/// The internet.
const OUTSIDE: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One port for all destinations; admits only addresses and ports that were sent to.
    Plain,
    /// One port for all destinations, admits all.
    Cone,
    /// Another port per destination; admits only addresses and ports that were sent to.
    Moving,
    /// Passes no UDP.
    Blocked,
    /// As `Plain`, but an unsolicited datagram creates a connection with the NAT itself: the port
    /// towards its sender is then another one.
    Deaf,
}

/// The default hop limit of a datagram.
const HOPS: u8 = 64;

#[derive(Debug)]
struct Nat {
    way: Way,
    outer: (usize, IpAddr),
    inner: usize,
    /// Internal address (and destination, if the port depends on it) to external port.
    ports: RefCell<HashMap<(SocketAddr, Option<SocketAddr>), u16>>,
    /// External port and destination of sent datagrams.
    sent: RefCell<Vec<(u16, SocketAddr)>>,
    next: Cell<u16>,
    /// External ports that are mapped to an internal address on request.
    opened: RefCell<HashMap<u16, SocketAddr>>,
    /// Datagrams received at such a port: internal address and peer to external port.
    flows: RefCell<HashMap<(SocketAddr, SocketAddr), u16>>,
    /// Unsolicited datagrams: external port and sender.
    taken: RefCell<Vec<(u16, SocketAddr)>>,
}

impl Nat {
    fn out(&self, from: SocketAddr, to: SocketAddr) -> Option<SocketAddr> {
        if self.way == Way::Blocked {
            return None;
        }
        if let Some(port) = self.flows.borrow().get(&(from, to)) {
            return Some(SocketAddr::new(self.outer.1, *port));
        }
        let next = || {
            self.next.set(self.next.get() + 1);
            self.next.get()
        };
        let key = (from, (self.way == Way::Moving).then_some(to));
        let port = *self.ports.borrow_mut().entry(key).or_insert_with(next);
        let is_known = self.sent.borrow().contains(&(port, to));
        let is_taken = !is_known && self.taken.borrow().contains(&(port, to));
        if is_taken {
            let port = *self.ports.borrow_mut().entry((from, Some(to))).or_insert_with(next);
            self.sent.borrow_mut().push((port, to));
            return Some(SocketAddr::new(self.outer.1, port));
        }
        self.sent.borrow_mut().push((port, to));
        Some(SocketAddr::new(self.outer.1, port))
    }

    fn back(&self, port: u16, from: SocketAddr) -> Option<SocketAddr> {
        if let Some(inner) = self.opened.borrow().get(&port) {
            self.flows.borrow_mut().insert((*inner, from), port);
            return Some(*inner);
        }
        let is_admitted = self.way == Way::Cone || self.sent.borrow().contains(&(port, from));
        if !is_admitted && self.way == Way::Deaf {
            self.taken.borrow_mut().push((port, from));
        }
        let ports = self.ports.borrow();
        let inner = ports.iter().find(|(_, outer)| **outer == port).map(|((inner, _), _)| *inner);
        inner.filter(|_| is_admitted)
    }
}

#[derive(Debug)]
pub(super) struct End {
    network: usize,
    pub(super) address: SocketAddr,
    pub(super) attempt: Option<Attempt>,
    pub(super) events: Vec<(Duration, Event)>,
    /// Every datagram, with its time and destination.
    pub(super) sent: Vec<(Duration, SocketAddr, Vec<u8>)>,
    /// The hops of each datagram.
    pub(super) hops: Vec<Option<u8>>,
    settings: Settings,
    /// Further addresses of the machine, which no datagram of this world reaches. They are listed
    /// before the address of the end.
    pub(super) further: Vec<OwnAddress>,
}

#[derive(Debug)]
enum Due {
    Datagram { to: usize, from: SocketAddr, bytes: Vec<u8> },
    Signal { to: usize, bytes: Vec<u8> },
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    nats: Vec<Nat>,
    pub(super) ends: Vec<End>,
    due: Vec<(Instant, Due)>,
    /// Whether datagrams between the ends are lost.
    pub(super) is_cut: bool,
    /// Whether signals are lost.
    pub(super) lose_signals: bool,
    /// Routers between two NATs.
    pub(super) routers: u8,
    /// The additional delay of the server's responses to the visitor and the publisher.
    pub(super) late: [Duration; 2],
    networks: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let start = epoch();
        let (nats, ends, due) = Default::default();
        let (is_cut, lose_signals, late) = Default::default();
        let (now, routers, networks) = (start, 3, 1);
        Self { start, now, nats, ends, due, is_cut, lose_signals, routers, late, networks }
    }

    /// A network behind a NAT whose outer address is `outer`.
    pub(super) fn behind(&mut self, network: usize, way: Way, outer: &str) -> usize {
        let inner = self.networks;
        self.networks += 1;
        let outer = (network, outer.parse().unwrap());
        let (ports, sent, opened, flows, taken) = Default::default();
        let next = Cell::new(40_000);
        self.nats.push(Nat { way, outer, inner, ports, sent, next, opened, flows, taken });
        inner
    }

    /// The visitor first, then the publisher.
    pub(super) fn end(&mut self, network: usize, address: &str, settings: Settings) {
        let address = address.parse().unwrap();
        let (attempt, events, sent, hops) = Default::default();
        let further = Vec::new();
        self.ends.push(End { network, address, attempt, events, sent, hops, settings, further });
    }

    fn begin(&mut self, index: usize) {
        let end = &mut self.ends[index];
        let servers = PORTS.map(|port| SocketAddr::new(SERVER.parse().unwrap(), port));
        let role = if index == 0 { Role::Visitor } else { Role::Publisher };
        let mut state = 1 + index as u64;
        let mut random = |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
        };
        let own = std::iter::once(OwnAddress::from(end.address));
        let hosts: Vec<_> = end.further.iter().copied().chain(own).collect();
        let addresses: (&[OwnAddress], _, _) = (&hosts, &servers[..], false);
        end.attempt = Some(Attempt::new(self.now, (role, 1), end.settings, addresses, &mut random));
    }

    fn route(
        &self,
        network: usize,
        (from, to): (SocketAddr, SocketAddr),
        hops: u8,
    ) -> Option<(usize, SocketAddr)> {
        if from.is_ipv4() != to.is_ipv4() {
            return None;
        }
        let found = self.ends.iter().position(|end| end.network == network && end.address == to);
        if let Some(end) = found {
            return Some((end, from));
        }
        // A router forwards datagrams whose hop limit is not exhausted.
        let next = hops.checked_sub(1).filter(|left| *left > 0);
        let at = |nat: &&Nat| nat.outer == (network, to.ip());
        if let Some(nat) = self.nats.iter().find(at) {
            let inner = nat.back(to.port(), from)?;
            return self.route(nat.inner, (from, inner), next?);
        }
        let gateway = self.nats.iter().find(|nat| nat.inner == network)?;
        let (left, outer) = (next?, gateway.outer.0);
        let from = gateway.out(from, to)?;
        let left = if outer == OUTSIDE { left.checked_sub(self.routers)? } else { left };
        self.route(outer, (from, to), Some(left).filter(|left| *left > 0)?)
    }

    /// The address that the server sees; leaves its traces in the NATs.
    fn outward(&self, network: usize, from: SocketAddr, to: SocketAddr) -> Option<SocketAddr> {
        match self.nats.iter().find(|nat| nat.inner == network) {
            None => (network == OUTSIDE).then_some(from),
            Some(nat) => self.outward(nat.outer.0, nat.out(from, to)?, to),
        }
    }

    /// The way back from the server.
    fn inward(&self, from: SocketAddr, to: SocketAddr) -> Option<usize> {
        self.route(OUTSIDE, (from, to), HOPS).map(|(end, _)| end)
    }

    fn flush(&mut self, index: usize) {
        let other = 1 - index;
        let (network, address) = (self.ends[index].network, self.ends[index].address);
        let Some(mut attempt) = self.ends[index].attempt.take() else { return };
        while let Some(datagram) = attempt.poll_datagram() {
            let crate::Datagram { to, bytes, hops, .. } = datagram;
            let at = self.now - self.start;
            self.ends[index].sent.push((at, to, bytes.clone()));
            self.ends[index].hops.push(hops);
            if to.ip().to_string() == SERVER {
                let Some(seen) = self.outward(network, address, to) else { continue };
                let Some(answer) = stun::answer(&bytes, seen) else { continue };
                let Some(end) = self.inward(to, seen) else { continue };
                let bytes = answer.bytes().to_vec();
                let at = self.now + 2 * DELAY + self.late[index];
                self.due.push((at, Due::Datagram { to: end, from: to, bytes }));
            } else if !self.is_cut
                && let Some((end, from)) = self.route(network, (address, to), hops.unwrap_or(HOPS))
            {
                self.due.push((self.now + DELAY, Due::Datagram { to: end, from, bytes }));
            }
        }
        while let Some(bytes) = attempt.poll_signal() {
            if self.lose_signals {
                continue;
            }
            // Over the server.
            self.due.push((self.now + 2 * DELAY, Due::Signal { to: other, bytes }));
        }
        while let Some(event) = attempt.poll_event() {
            if let (0, Event::Found(_)) = (index, &event) {
                // The visitor connects, and the publisher sees from where.
                let pair = attempt.pair().unwrap();
                if let Some((_, seen)) = self.route(network, (address, pair.remote.1), HOPS) {
                    self.ends[other].attempt.as_mut().unwrap().adopt(self.now + DELAY, seen);
                }
            }
            self.ends[index].events.push((self.now - self.start, event));
        }
        self.ends[index].attempt = Some(attempt);
    }

    /// Runs until `end`, or until nothing more is due.
    pub(super) fn run(&mut self, end: Duration) {
        let end = self.start + end;
        if self.ends[0].attempt.is_none() {
            self.begin(0);
        }
        loop {
            for index in 0..self.ends.len() {
                self.flush(index);
            }
            let timers =
                self.ends.iter_mut().filter_map(|end| end.attempt.as_mut()?.poll_timeout());
            let next = self.due.iter().map(|(at, _)| *at).chain(timers).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            let now = self.now;
            let (ready, later) =
                std::mem::take(&mut self.due).into_iter().partition(|(at, _)| *at <= now);
            self.due = later;
            let ready: Vec<(Instant, Due)> = ready;
            for (_, due) in ready {
                match due {
                    Due::Datagram { to, from, bytes } => {
                        if let Some(attempt) = &mut self.ends[to].attempt {
                            attempt.handle_datagram(now, (from, None), &bytes);
                        }
                    }
                    Due::Signal { to, bytes } => {
                        if self.ends[to].attempt.is_none() {
                            self.begin(to);
                        }
                        let attempt = self.ends[to].attempt.as_mut().unwrap();
                        attempt.handle_signal(now, &bytes).unwrap();
                    }
                }
            }
            for end in &mut self.ends {
                if let Some(attempt) = &mut end.attempt
                    && attempt.poll_timeout().is_some_and(|at| at <= now)
                {
                    attempt.handle_timeout(now);
                }
            }
        }
    }

    /// A NAT forgets everything and gives other ports from now on.
    pub(super) fn forget_ports(&mut self, nat: usize) {
        self.nats[nat].ports.borrow_mut().clear();
        self.nats[nat].sent.borrow_mut().clear();
    }

    /// The NAT of an end maps a port to it, and the end is informed.
    pub(super) fn map(&mut self, index: usize) -> SocketAddr {
        let End { network, address, .. } = self.ends[index];
        let nat = self.nats.iter().find(|nat| nat.inner == network).unwrap();
        let outer = SocketAddr::new(nat.outer.1, 50_000);
        nat.opened.borrow_mut().insert(outer.port(), address);
        let now = self.now;
        self.attempt(index).mapped(now, Some(outer));
        outer
    }

    /// The address of an end as a machine at `to` sees it.
    pub(super) fn seen(&self, index: usize, to: SocketAddr) -> Option<SocketAddr> {
        let End { network, address, .. } = self.ends[index];
        self.outward(network, address, to)
    }

    pub(super) fn attempt(&mut self, index: usize) -> &mut Attempt {
        self.ends[index].attempt.as_mut().unwrap()
    }

    /// The candidates that an end has announced.
    pub(super) fn candidates(&self, index: usize) -> Vec<Candidate> {
        self.ends[index].attempt.as_ref().unwrap().candidates().to_vec()
    }
}
