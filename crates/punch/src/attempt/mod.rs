//! An attempt at a direct path, and the maintenance of the path that it found.
//!
//! An [`Attempt`] is a plain value. Its owner has the socket, the clock and the link to the peer:
//! it calls `handle_*` for each input, and then all of `poll_*` until they return `None`. It must
//! call [`Attempt::handle_timeout`] at the time of [`Attempt::poll_timeout`].
//!
//! ```text
//!  STUN servers answer ─> our candidates ─> Signal to the peer      (trickled, RFC 8838)
//!  Signal of the peer ─> filter ─> checks, one per 50 ms ─> a pair ─> Event::Found
//!  10 s without a pair ─> Event::Failed; 30 s without a response on the pair ─> Event::Lost
//! ```
//!
//! The agent of `is` has one local candidate per address family, a placeholder for the whole
//! socket: the socket is bound to no address and the kernel chooses the route, so pairs that differ
//! only in the address of this machine would be the same path.

mod around;
mod hosts;
mod ice;
mod opening;
mod pair;
mod peers;
mod queries;
mod settings;
mod why;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use is::{IceAgent, IceAgentEvent, IceCreds};

use crate::nat::{Mapping, Nat, Udp};
use crate::signal::{Body, Credentials, Offer, Signal, SignalError};
use crate::{CANDIDATES, Candidate, Kind, OwnAddress, is_private, stun};

use around::Around;
use hosts::Hosts;
use ice::Bases;
use opening::NatOpening;
use peers::Peers;
use queries::Queries;

pub use pair::Pair;
pub use queries::QUERIES;
pub use settings::{Random, Role, Settings};
pub use why::Why;

/// Timeout of an attempt without a pair. The checks of a working pair take two round trips, or
/// three with a NAT that drops the first ones.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Consent timeout: a path is closed if no check on it was answered for this time (RFC 7675 section
/// 5.1).
pub const CONSENT: Duration = Duration::from_secs(30);

/// Minimum interval of checks (Ta of RFC 8445 section 14.2).
pub(crate) const PACE: Duration = Duration::from_millis(50);

/// The interval of consent checks on a working pair (RFC 7675 section 5.1).
const CONSENT_CHECK: Duration = Duration::from_secs(5);

/// Maximum number of host addresses that are announced regardless of the peer's addresses.
pub const HOSTS: usize = 9;

/// Maximum number of additional host addresses in networks where the peer has announced an address.
const NEAR: usize = 2;

/// Maximum number of reflexive addresses of each family. Behind a NAT with another port per
/// destination, a check of the peer arrives at none of them. One of the [`CANDIDATES`] is reserved
/// for a mapped port.
const REFLEXIVE: usize = 2;

/// The priority of an address of the peer in the network of one of our interfaces: above all
/// priorities that a peer may announce.
const NEIGHBOUR: u32 = 127 << 24;

/// Maximum number of pairs: the candidates of the peer, and as many addresses discovered by the
/// peer's checks.
const PAIRS: usize = 2 * CANDIDATES;

/// The time for which a working pair waits for a better pair. The checks of a better pair are sent
/// first, so its response is also due about now.
const SETTLE: Duration = Duration::from_millis(100);

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The destination; never an IPv4-mapped IPv6 address.
    pub to: SocketAddr,
    /// The source address, at which the destination knows this machine; `None` leaves the choice to
    /// the route.
    pub from: Option<IpAddr>,
    /// What the datagram is for.
    pub purpose: Purpose,
    /// The hop limit (TTL) of the datagram; `None`: the default.
    pub hops: Option<u8>,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// What a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A query to a STUN server, or the response to a check.
    Other,
    /// A check to an address that has responded to a check of this attempt.
    Known,
    /// A check to an address that has not responded. The peer announces it, so the owner limits
    /// such checks over all attempts with one peer ([`Pace`](crate::Pace)).
    Unknown,
    /// Opens our own NAT towards such an address. The same limit applies; the owner reports a
    /// datagram that was not sent ([`Attempt::unsent`]).
    Opens,
}

/// An event of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pair works, and the visitor may connect over it.
    Found(Pair),
    /// No pair was found. The attempt is over.
    Failed(Why),
    /// Consent has expired on the path in use: nothing may be sent on it.
    Lost,
}

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Pairs are being checked.
    Checking,
    /// A pair works. The visitor selects it at this time, unless a better pair is found.
    Settling(SocketAddr, Instant),
    /// A path is in use towards this address, since this time.
    InUse(SocketAddr, Instant),
    /// Failed or lost.
    Over,
}

/// An attempt at a direct path, and the maintenance of the path that it found.
#[derive(Debug)]
pub struct Attempt {
    role: Role,
    round: u32,
    settings: Settings,
    began: Instant,
    /// The time of the last event.
    now: Instant,
    state: State,
    agent: IceAgent,
    bases: Bases,
    credentials: Credentials,
    hosts: Hosts,
    queries: Queries,
    /// The candidates that are announced to the peer.
    ours: Vec<Candidate>,
    /// Whether a port may still be mapped.
    is_mapping: bool,
    /// The latest offer of the peer.
    offer: Option<Offer>,
    /// The candidates of the peer that are checked.
    admitted: Vec<SocketAddr>,
    peers: Peers,
    around: Around,
    opening: NatOpening,
    /// The transaction id of the datagrams that open our NATs, which get no response.
    opens: stun::Id,
    /// The time of the last check or NAT-opening datagram, and of the last NAT-opening datagram.
    sent: Option<Instant>,
    opened: Option<Instant>,
    /// The time at which our reflexive addresses were announced to the peer, of IPv4 and IPv6.
    announced: (Option<Instant>, Option<Instant>),
    /// Whether our latest offer is not announced to the peer yet.
    is_news: bool,
    datagrams: VecDeque<Datagram>,
    events: VecDeque<Event>,
}

impl Attempt {
    /// Begins an attempt. `hosts` are the addresses of this machine with the port of the socket,
    /// best first, and `servers` those of STUN servers, of which the first [`QUERIES`] are queried.
    /// With `is_mapping` the owner tries to map a port and calls [`Self::mapped`].
    pub fn new(
        now: Instant,
        (role, round): (Role, u32),
        settings: Settings,
        (hosts, servers, is_mapping): (&[OwnAddress], &[SocketAddr], bool),
        random: Random<'_>,
    ) -> Self {
        let credentials = ice::credentials(random);
        let (agent, bases) = ice::agent(role, &credentials, &settings);
        let servers = if settings.kinds.reflexive { servers } else { &[] };
        let servers = servers.iter().copied().filter(|one| settings.takes(one.ip()));
        let mut opens = stun::Id::default();
        random(&mut opens);
        let mut attempt = Self {
            role,
            round,
            began: now,
            now,
            state: State::Checking,
            agent,
            bases,
            credentials,
            hosts: Hosts::new(hosts),
            queries: Queries::new(now, servers, random),
            ours: Vec::new(),
            is_mapping: is_mapping && settings.kinds.mapped,
            offer: None,
            admitted: Vec::new(),
            peers: Peers::default(),
            around: Around::default(),
            opening: NatOpening::default(),
            opens,
            sent: None,
            opened: None,
            announced: (None, None),
            is_news: true,
            datagrams: VecDeque::new(),
            events: VecDeque::new(),
            settings,
        };
        attempt.announce_hosts();
        attempt.agent.handle_timeout(now);
        attempt.handle_timeout(now);
        attempt
    }

    /// The number of the attempt.
    #[must_use]
    pub const fn round(&self) -> u32 {
        self.round
    }

    /// The known NAT behaviour of this end.
    #[must_use]
    pub fn nat(&self) -> Nat {
        let (answers, is_done) = (self.queries.answers(), self.queries.are_over());
        let mapping = Mapping::of(&answers, |seen| self.hosts.contains(seen));
        let udp = match (answers.is_empty(), is_done) {
            (false, _) => Udp::Passes,
            (true, true) if !self.queries.is_empty() => Udp::Blocked,
            (true, _) => Udp::Unknown,
        };
        Nat { udp, mapping, ..Nat::default() }
    }

    /// The NAT behaviour that the peer has announced.
    #[must_use]
    pub fn nat_of_peer(&self) -> Nat {
        self.offer.as_ref().map(|offer| offer.nat).unwrap_or_default()
    }

    /// The candidates that are announced to the peer.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.ours
    }

    /// Whether the peer at this address has proved that it knows our password. Before that, only
    /// STUN is accepted from it.
    #[must_use]
    pub fn is_proven(&self, address: SocketAddr) -> bool {
        self.peers.is_proven(canonical(address))
    }

    /// Handles a signal of the peer. Signals of another attempt are ignored.
    ///
    /// # Errors
    /// The signal cannot be decoded; the attempt continues without it.
    pub fn handle_signal(&mut self, now: Instant, signal: &[u8]) -> Result<(), SignalError> {
        let Signal { round, body } = Signal::decode(signal)?;
        if round != self.round {
            return Ok(());
        }
        match body {
            Body::Offer(offer) => self.take(now, offer),
            Body::Decline(why) => self.fail(Why::Declined(why)),
            // A WebRTC round is not an attempt of this kind.
            Body::Description(..) => {}
        }
        self.drive(now);
        Ok(())
    }

    /// Records the mapped port of the router for our socket; `None`: no port could be mapped.
    pub fn mapped(&mut self, now: Instant, address: Option<SocketAddr>) {
        self.is_mapping = false;
        self.is_news = true;
        if let Some(address) = address.filter(|one| self.settings.refusal(*one).is_none()) {
            let address = canonical(address);
            let mapped = Candidate::new(Kind::Mapped, address, 0);
            match self.ours.iter_mut().find(|one| one.address == address) {
                // The address is already known as reflexive: a router preserves the port of the
                // socket if it can.
                Some(seen) if seen.kind != Kind::Host => *seen = mapped,
                Some(_) => {}
                None => self.announce(mapped),
            }
        }
        self.drive(now);
    }

    /// Handles a STUN datagram from `from`, which arrived at the address `at` of this machine.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        (from, at): (SocketAddr, Option<IpAddr>),
        datagram: &[u8],
    ) {
        let from = canonical(from);
        if let Some(seen) = self.queries.answered(from, datagram) {
            self.is_news = true;
            // An address that a server forges must not become a destination of the peer.
            if self.settings.refusal(seen).is_none() {
                self.announce_reflexive(seen);
            }
            if self.hosts.contains(seen) {
                self.opening.end_of(seen.is_ipv4());
            }
            self.admit(now);
        } else {
            self.check(now, (from, at), datagram);
        }
        self.drive(now);
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.open(now);
        if self.agent_due().is_some_and(|at| at <= now) && self.state != State::Over {
            self.agent.handle_timeout(now);
        }
        if self.queries.handle_timeout(now, &mut self.datagrams) {
            // The queries are complete: announce the resulting NAT behaviour to the peer.
            self.is_news = true;
        }
        self.drive(now);
    }

    /// Records that the path towards `remote` is in use: the publisher has accepted a connection
    /// from there, or the connection has migrated there.
    pub fn adopt(&mut self, now: Instant, remote: SocketAddr) {
        let remote = canonical(remote);
        let is_same = matches!(self.state, State::InUse(present, _) if present == remote);
        let is_refused = self.settings.refusal(remote).is_some();
        if self.state != State::Over && !is_same && !is_refused {
            self.state = State::InUse(remote, now);
            self.opening.end();
        }
    }

    /// The path in use.
    #[must_use]
    pub fn pair(&self) -> Option<Pair> {
        match self.state {
            State::InUse(remote, _) => Some(self.pair_to(remote)),
            State::Checking | State::Settling(..) | State::Over => None,
        }
    }

    /// The next datagram to send.
    pub fn poll_datagram(&mut self) -> Option<Datagram> {
        self.datagrams.pop_front()
    }

    /// The next signal to the peer.
    pub fn poll_signal(&mut self) -> Option<Vec<u8>> {
        if self.is_first_to_hear() {
            return None;
        }
        let is_due = std::mem::take(&mut self.is_news);
        if !is_due || !matches!(self.state, State::Checking | State::Settling(..)) {
            return None;
        }
        for one in self.ours.iter().filter(|one| one.kind == Kind::Reflexive) {
            let announced =
                if one.address.is_ipv4() { &mut self.announced.0 } else { &mut self.announced.1 };
            *announced = announced.or(Some(self.now));
        }
        let theirs = self.offer.iter().flat_map(|offer| &offer.candidates);
        let theirs = theirs.map(|one| one.address);
        let offer = Offer {
            credentials: self.credentials.clone(),
            candidates: self.ours.clone(),
            nat: self.nat(),
            more: self.is_mapping || !self.queries.are_over(),
            opened: Some(self.opening.steps(theirs)),
        };
        Some(Signal { round: self.round, body: Body::Offer(offer) }.encode())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The time at which [`Self::handle_timeout`] is due; `None` if the attempt is over.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let own = match self.state {
            State::Checking => self.began + LIMIT,
            State::Settling(_, decides) => decides,
            State::InUse(remote, since) => self.peers.answered(remote, since) + CONSENT,
            State::Over => return None,
        };
        [Some(own), self.agent_due(), self.queries.poll_timeout(), self.opening_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The time at which the agent may send its next check; NAT-opening datagrams count for the
    /// pacing as well.
    fn agent_due(&mut self) -> Option<Instant> {
        let opened = self.opened;
        self.agent.poll_timeout().map(|at| opened.map_or(at, |opened| at.max(opened + PACE)))
    }

    /// The time at which the next step to open our NATs is due.
    fn opening_due(&self) -> Option<Instant> {
        if !matches!(self.state, State::Checking | State::Settling(..)) {
            return None;
        }
        let due = self.opening.poll_timeout(self.opener())?;
        Some(self.sent.map_or(due, |sent| due.max(sent + PACE)))
    }

    /// The steps of the peer towards our addresses, by the family of an address of the peer.
    fn opener(&self) -> impl Fn(SocketAddr) -> opening::PeerSteps + use<> {
        let of_family = |is_v4: bool, announced| {
            let offer = self.offer.as_ref();
            let steps = offer.and_then(|offer| offer.opened.as_ref()).map(|steps| {
                let is_one =
                    |one: &Candidate| one.kind == Kind::Reflexive && one.address.is_ipv4() == is_v4;
                let ours = self.ours.iter().enumerate().filter(|(_, one)| is_one(one));
                let steps = ours.map(|(nth, _)| steps.get(nth).copied().unwrap_or(0));
                steps.min().unwrap_or(0)
            });
            opening::PeerSteps { steps, announced }
        };
        let (v4, v6) = (of_family(true, self.announced.0), of_family(false, self.announced.1));
        move |remote| if remote.is_ipv4() { v4 } else { v6 }
    }

    /// Performs the steps to open our NATs that are due.
    fn open(&mut self, now: Instant) {
        while self.opening_due().is_some_and(|due| due <= now) {
            let Some((to, hops)) = self.opening.step(now, self.opener()) else { return };
            self.is_news = true;
            if hops.is_some() {
                let bytes = stun::request(self.opens).to_vec();
                let purpose = Purpose::Opens;
                self.datagrams.push_back(Datagram { to, from: None, purpose, hops, bytes });
                (self.sent, self.opened) = (Some(now), Some(now));
            }
        }
    }

    /// Records that a NAT-opening datagram was not sent.
    pub fn unsent(&mut self, now: Instant, to: SocketAddr) {
        self.opening.unsent(now, canonical(to));
    }

    /// Whether no check may be sent to a reflexive address of the peer before our own NAT is open.
    /// If one end has no NAT, its port is open; behind a common NAT there is nothing to open;
    /// without STUN the peer cannot wait for us.
    fn needs_opening(&self, theirs: Nat, address: SocketAddr) -> bool {
        let of_family = || self.queries.seen().filter(|one| one.is_ipv4() == address.is_ipv4());
        let is_bare = of_family().any(|seen| self.hosts.contains(seen));
        let is_around = of_family().any(|seen| seen.ip() == address.ip());
        let is_known = self.peers.is_proven(address);
        theirs.mapping != Mapping::None
            && !(is_bare || is_around || is_known || self.queries.is_empty())
    }

    /// Announces the best of our host addresses. The visitor knows no address of the peer at first,
    /// and later announces those in the networks of the peer.
    fn announce_hosts(&mut self) {
        let offer = self.offer.as_ref();
        if !self.settings.kinds.host || self.is_first_to_hear() {
            return;
        }
        let near: Vec<_> = offer.into_iter().flat_map(|offer| self.hosts.near(offer)).collect();
        let all: Vec<_> = self.hosts.worth(offer).map(|host| host.address).collect();
        for (addresses, most, first) in [(near, HOSTS + NEAR, 0), (all, HOSTS, NEAR)] {
            for (nth, address) in addresses.into_iter().enumerate() {
                if self.ours.iter().filter(|one| one.kind == Kind::Host).count() < most {
                    // As long as there are few neighbour addresses, they are preferred to all
                    // others.
                    self.announce(Candidate::new(Kind::Host, address, first + nth));
                }
            }
        }
    }

    fn announce_reflexive(&mut self, seen: SocketAddr) {
        let is_v4 = canonical(seen).is_ipv4();
        let of_family =
            |one: &&Candidate| one.kind == Kind::Reflexive && one.address.is_ipv4() == is_v4;
        let known = self.ours.iter().filter(of_family).count();
        if known < REFLEXIVE {
            self.announce(Candidate::new(Kind::Reflexive, seen, known));
        }
    }

    fn announce(&mut self, candidate: Candidate) {
        let is_known = self.ours.iter().any(|one| one.address == candidate.address);
        if !is_known && self.ours.len() < CANDIDATES {
            self.ours.push(candidate);
            self.is_news = true;
        }
    }

    /// Whether this end waits for the first offer of the visitor, to select its addresses
    /// accordingly.
    fn is_first_to_hear(&self) -> bool {
        self.role == Role::Publisher && self.offer.is_none()
    }

    fn take(&mut self, now: Instant, offer: Offer) {
        match &self.offer {
            // All checks of an attempt use the same credentials.
            Some(known) if known.credentials != offer.credentials => return,
            Some(_) => {}
            None => {
                let Credentials { ufrag, password } = offer.credentials.clone();
                self.agent.set_remote_credentials(IceCreds { ufrag, pass: password });
            }
        }
        self.offer = Some(offer);
        self.announce_hosts();
        self.admit(now);
    }

    /// Passes the candidates of the peer that are permitted as destinations to the agent.
    fn admit(&mut self, now: Instant) {
        let Some(offer) = &self.offer else { return };
        let is_open = self.is_private_allowed();
        let mut candidates = offer.candidates.clone();
        candidates.sort_by_key(|one| Reverse(self.worth(one)));
        for candidate in candidates {
            let address = candidate.address;
            if self.admitted.contains(&address) || self.admitted.len() >= CANDIDATES {
                continue;
            }
            if let Some(why) = self.settings.refusal(address) {
                tracing::debug!("a candidate of the peer is {why}, so nothing is sent to it");
                continue;
            }
            let is_closed = is_private(address.ip()) && !is_open;
            let is_ours = self.hosts.contains(address)
                || (candidate.kind == Kind::Host && self.hosts.share(offer, address.ip()));
            if is_closed || is_ours || !self.settings.takes(address.ip()) {
                continue;
            }
            self.admitted.push(address);
            if candidate.kind == Kind::Reflexive && self.needs_opening(offer.nat, address) {
                self.opening.begin(now, address);
            }
            let priority = self.worth(&candidate);
            self.agent.add_remote_candidate(ice::remote(&Candidate { priority, ..candidate }));
        }
    }

    /// The priority of an address of the peer, as announced, or raised for a neighbour.
    fn worth(&self, theirs: &Candidate) -> u32 {
        let is_near = theirs.kind == Kind::Host && self.hosts.are_near(theirs.address.ip());
        if is_near { NEIGHBOUR | theirs.priority & 0xff_ffff } else { theirs.priority }
    }

    /// Whether private addresses of the peer are permitted: if the configuration announces such
    /// addresses to peers, if our mapped address is private, so that both ends are in one private
    /// network, or if both ends are proved to be behind one address. The announcement of the peer
    /// is not a proof, as it could contain any address of our network.
    fn is_private_allowed(&self) -> bool {
        self.settings.kinds.host || self.outer().any(is_private) || self.around.is_proven()
    }

    /// Our mapped addresses, as reported by STUN servers.
    fn outer(&self) -> impl Iterator<Item = IpAddr> {
        self.queries.answers().into_iter().map(|(_, seen)| seen.ip())
    }

    /// Handles a check of the peer, or the response to one of ours.
    fn check(&mut self, now: Instant, (from, at): (SocketAddr, Option<IpAddr>), datagram: &[u8]) {
        if self.state == State::Over || self.settings.refusal(from).is_some() {
            return;
        }
        let Some(base) = self.bases.of(from.ip()) else { return };
        let Ok(message) = is::stun::StunMessage::parse(datagram) else { return };
        let is_answer = message.is_successful_binding_response();
        // The agent cannot verify a response without the password of the peer.
        if (is_answer || message.is_failed_binding_response()) && self.offer.is_none() {
            return;
        }
        let named = message.mapped_address().filter(|_| is_answer);
        // The agent stores each mapped address of ours that a response reports.
        let is_bounded = !is_answer || named.is_some_and(|named| self.peers.may_name(named));
        if !is_bounded || !self.peers.has_room(now, from) {
            return;
        }
        // The agent verifies the password.
        if !self.agent.handle_packet(now, ice::packet(from, base, message)) {
            return;
        }
        self.peers.heard(now, from, at);
        self.opening.is_open(from);
        if is_answer {
            self.peers.answer(now, from, named);
            self.around.answered(from, datagram);
            self.admit(now);
        }
    }

    /// Processes the output of the agent, and timers of the attempt.
    fn drive(&mut self, now: Instant) {
        self.now = now;
        self.open(now);
        while let Some(event) = self.agent.poll_event() {
            if let IceAgentEvent::NominatedSend { destination, .. } = event {
                self.nominate(now, destination);
            }
        }
        while let Some(transmit) = self.agent.poll_transmit() {
            let to = transmit.destination;
            if self.may_send(now, to, &transmit.contents) {
                if self.outer().any(|ours| ours == to.ip()) {
                    self.around.sent(to, &transmit.contents);
                }
                let (from, bytes) = (self.peers.heard_at(to), transmit.contents.to_vec());
                let purpose = match stun::is_request(&bytes) {
                    false => Purpose::Other,
                    true if self.peers.has_answered(to) => Purpose::Known,
                    true => Purpose::Unknown,
                };
                let is_check = stun::is_request(&bytes);
                let hops = self.opening.hops(to).filter(|_| is_check);
                if is_check {
                    self.sent = Some(now);
                }
                self.datagrams.push_back(Datagram { to, from, purpose, hops, bytes });
            }
        }
        match self.state {
            State::Checking if now >= self.began + LIMIT => self.fail(self.why()),
            State::Settling(remote, decides) if now >= decides => {
                self.state = State::InUse(remote, now);
                self.opening.end();
                self.events.push_back(Event::Found(self.pair_to(remote)));
            }
            State::InUse(remote, since) if now >= self.peers.answered(remote, since) + CONSENT => {
                self.state = State::Over;
                self.events.push_back(Event::Lost);
            }
            State::Checking | State::Settling(..) | State::InUse(..) | State::Over => {}
        }
    }

    /// Responses are sent to every peer that knows our password. Checks end with the timeout of the
    /// attempt, except to authenticated addresses of the peer, which include an address to which it
    /// has migrated.
    fn may_send(&self, now: Instant, to: SocketAddr, message: &[u8]) -> bool {
        !stun::is_request(message)
            || (self.state != State::Over && (now < self.began + LIMIT || self.peers.is_proven(to)))
    }

    fn nominate(&mut self, now: Instant, remote: SocketAddr) {
        // The publisher learns the selected pair from the visitor's connection.
        if self.role == Role::Publisher {
            return;
        }
        let decides = match self.state {
            State::Checking => now + SETTLE,
            State::Settling(_, decides) => decides,
            State::InUse(..) | State::Over => return,
        };
        let is_best = self.offer.as_ref().is_some_and(|offer| {
            let all = offer.candidates.iter().filter(|one| self.admitted.contains(&one.address));
            all.max_by_key(|one| self.worth(one)).is_some_and(|best| best.address == remote)
        });
        self.state = State::Settling(remote, if is_best { now } else { decides });
    }

    fn fail(&mut self, why: Why) {
        if matches!(self.state, State::Checking | State::Settling(..)) {
            self.state = State::Over;
            self.events.push_back(Event::Failed(why));
        }
    }

    fn why(&self) -> Why {
        match &self.offer {
            None => Why::Silent,
            Some(offer) if !self.shares_a_family(offer) => Why::Families,
            Some(offer) => {
                let ours = with_port(self.nat(), &self.ours);
                let theirs = with_port(offer.nat, &offer.candidates);
                Why::of(ours, theirs, !self.peers.is_empty())
            }
        }
    }

    fn shares_a_family(&self, offer: &Offer) -> bool {
        let has = |all: &[Candidate], is_v4| all.iter().any(|one| one.address.is_ipv4() == is_v4);
        let [ours, theirs] = [&self.ours, &offer.candidates];
        // An end that announces no address may still be discovered by its checks.
        ours.is_empty()
            || theirs.is_empty()
            || [true, false].iter().any(|is_v4| has(ours, *is_v4) && has(theirs, *is_v4))
    }

    fn pair_to(&self, remote: SocketAddr) -> Pair {
        let announced = self.offer.as_ref().map_or(&[][..], |offer| &offer.candidates);
        let is_host = |address| self.hosts.contains(address);
        let local = self.peers.seen_as(remote).map(|seen| pair::end(&self.ours, is_host, seen));
        Pair {
            local,
            remote: pair::end(announced, |_| false, remote),
            round_trip: self.agent.nominated_pair_rtt(),
        }
    }
}

/// The NAT behaviour of an end with these candidates. A mapped port of its router is fixed and not
/// filtered.
fn with_port(nat: Nat, announced: &[Candidate]) -> Nat {
    if announced.iter().any(|one| one.kind == Kind::Mapped) { nat.with_port() } else { nat }
}

/// Converts an IPv4-mapped address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
