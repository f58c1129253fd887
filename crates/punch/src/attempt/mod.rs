//! One attempt at a direct path, and the care for the path that it found.
//!
//! An [`Attempt`] is a plain value. Its owner has the socket, the clock and the link to the peer:
//! it calls `handle_*` with what happens, and then all of `poll_*` until they return `None`. It
//! must call [`Attempt::handle_timeout`] at the time of [`Attempt::poll_timeout`].
//!
//! ```text
//!  STUN servers answer ─> our candidates ─> Signal to the peer      (trickled, RFC 8838)
//!  Signal of the peer ─> filter ─> checks, one per 50 ms ─> a pair ─> Event::Found
//!  10 s without a pair ─> Event::Failed; 30 s without an answer on the pair ─> Event::Lost
//! ```
//!
//! The agent of `is` has one local candidate per address family, a name for the whole socket: the
//! socket is bound to no address and the kernel chooses the route, so pairs that differ in the
//! address of this machine alone would be the same path.

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

/// An attempt ends after this time without a pair. The checks of a pair that works take two round
/// trips, and a NAT that drops the first ones makes it three.
pub const LIMIT: Duration = Duration::from_secs(10);

/// A path is given up when no check on it was answered for this time (RFC 7675 section 5.1).
pub const CONSENT: Duration = Duration::from_secs(30);

/// Checks leave at most this often (Ta of RFC 8445 section 14.2).
pub(crate) const PACE: Duration = Duration::from_millis(50);

/// The interval of the checks on a pair that works (RFC 7675 section 5.1).
const CONSENT_CHECK: Duration = Duration::from_secs(5);

/// Addresses of interfaces that the peer is told without regard to its own, at most.
pub const HOSTS: usize = 9;

/// Further ones, in whose network the peer has told an address.
const NEAR: usize = 2;

/// Addresses that STUN servers see, of each family. Behind a NAT that takes another port for each
/// server, none of them is where a check of the peer arrives. One of the [`CANDIDATES`] is left for
/// a port of the router.
const REFLEXIVE: usize = 2;

/// The priority of an address of the peer in the network of one of our interfaces: above that of
/// all that a peer may tell.
const NEIGHBOUR: u32 = 127 << 24;

/// Pairs at most: the candidates of the peer, and as many addresses that the peer's checks show.
const PAIRS: usize = 2 * CANDIDATES;

/// A pair that works waits this long for a better pair. The checks of a better pair leave first, so
/// its answer is about as far.
const SETTLE: Duration = Duration::from_millis(100);

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it goes; never an IPv6 form of an IPv4 address.
    pub to: SocketAddr,
    /// The address of this machine that the destination knows; `None` leaves it to the route.
    pub from: Option<IpAddr>,
    /// What the datagram is for.
    pub purpose: Purpose,
    /// After so many hops the datagram ends; `None`: it lives as long as usual.
    pub hops: Option<u8>,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// What a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A question to a STUN server, or the answer to a check.
    Other,
    /// A check at an address that has answered a check of this attempt.
    Known,
    /// A check at an address that has not answered. The peer names it, so the owner bounds such
    /// checks over all attempts with one peer ([`Pace`](crate::Pace)).
    Unknown,
    /// Opens our own NAT towards such an address. It keeps the same bound; the owner tells where it
    /// does not leave ([`Attempt::unsent`]).
    Opens,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pair works, and the visitor may connect over it.
    Found(Pair),
    /// No pair was found. The attempt is over.
    Failed(Why),
    /// The path that was found does not answer any more: nothing may be sent on it.
    Lost,
}

/// How far an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Pairs are being checked.
    Checking,
    /// A pair works. The visitor decides at this time, unless a better pair comes.
    Settling(SocketAddr, Instant),
    /// A path is in use towards this address, since this time.
    InUse(SocketAddr, Instant),
    /// Failed or lost.
    Over,
}

/// One attempt at a direct path, and the care for the path that it found.
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
    /// What the peer is told.
    ours: Vec<Candidate>,
    /// Whether a port may still be mapped.
    is_mapping: bool,
    /// What the peer said last.
    offer: Option<Offer>,
    /// Those of its candidates that are checked.
    admitted: Vec<SocketAddr>,
    peers: Peers,
    around: Around,
    opening: NatOpening,
    /// The number of the datagrams that open our NATs, which nobody answers.
    opens: stun::Id,
    /// When a check or such a datagram was last sent, and such a datagram.
    sent: Option<Instant>,
    opened: Option<Instant>,
    /// When the peer was told addresses of ours outside of our NATs, of IPv4 and IPv6.
    announced: (Option<Instant>, Option<Instant>),
    /// Whether the peer does not know our latest candidates.
    is_news: bool,
    datagrams: VecDeque<Datagram>,
    events: VecDeque<Event>,
}

impl Attempt {
    /// Begins an attempt. `hosts` are the addresses of this machine with the port of the socket,
    /// best first, and `servers` those of STUN servers, of which the first [`QUERIES`] are asked.
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

    /// What is known of the network of this end.
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

    /// What the peer said of its network.
    #[must_use]
    pub fn nat_of_peer(&self) -> Nat {
        self.offer.as_ref().map(|offer| offer.nat).unwrap_or_default()
    }

    /// The candidates that the peer is told.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.ours
    }

    /// Whether the peer at this address has proved that it knows our password. Before that, nothing
    /// but STUN is taken from it.
    #[must_use]
    pub fn is_proven(&self, address: SocketAddr) -> bool {
        self.peers.is_proven(canonical(address))
    }

    /// Takes a signal of the peer. Signals of another attempt are ignored.
    ///
    /// # Errors
    /// The signal cannot be understood; the attempt goes on without it.
    pub fn handle_signal(&mut self, now: Instant, signal: &[u8]) -> Result<(), SignalError> {
        let Signal { round, body } = Signal::decode(signal)?;
        if round != self.round {
            return Ok(());
        }
        match body {
            Body::Offer(offer) => self.take(now, offer),
            Body::Decline(why) => self.fail(Why::Declined(why)),
            // A round of WebRTC is no attempt of this kind.
            Body::Description(..) => {}
        }
        self.drive(now);
        Ok(())
    }

    /// A port of the router leads to our socket; `None`: no port could be mapped.
    pub fn mapped(&mut self, now: Instant, address: Option<SocketAddr>) {
        self.is_mapping = false;
        self.is_news = true;
        if let Some(address) = address.filter(|one| self.settings.refusal(*one).is_none()) {
            let address = canonical(address);
            let mapped = Candidate::new(Kind::Mapped, address, 0);
            match self.ours.iter_mut().find(|one| one.address == address) {
                // A server has seen it before: a router keeps the port of the socket if it can.
                Some(seen) if seen.kind != Kind::Host => *seen = mapped,
                Some(_) => {}
                None => self.announce(mapped),
            }
        }
        self.drive(now);
    }

    /// Takes a datagram of STUN from `from`, which arrived at the address `at` of this machine.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        (from, at): (SocketAddr, Option<IpAddr>),
        datagram: &[u8],
    ) {
        let from = canonical(from);
        if let Some(seen) = self.queries.answered(from, datagram) {
            self.is_news = true;
            // An address that a server invents must not become one that the peer sends to.
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

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.open(now);
        if self.agent_due().is_some_and(|at| at <= now) && self.state != State::Over {
            self.agent.handle_timeout(now);
        }
        if self.queries.handle_timeout(now, &mut self.datagrams) {
            // No further answer comes: the peer learns what that says of our network.
            self.is_news = true;
        }
        self.drive(now);
    }

    /// The path towards `remote` is in use: the publisher has got a connection from there, or the
    /// connection has moved there.
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

    /// When [`Self::handle_timeout`] is due; `None` when the attempt is over.
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

    /// When the agent may send its next check: those that open our NATs count as well.
    fn agent_due(&mut self) -> Option<Instant> {
        let opened = self.opened;
        self.agent.poll_timeout().map(|at| opened.map_or(at, |opened| at.max(opened + PACE)))
    }

    /// When a NAT of ours is to be opened further.
    fn opening_due(&self) -> Option<Instant> {
        if !matches!(self.state, State::Checking | State::Settling(..)) {
            return None;
        }
        let due = self.opening.poll_timeout(self.opener())?;
        Some(self.sent.map_or(due, |sent| due.max(sent + PACE)))
    }

    /// What is known of the peer towards our addresses, by the family of an address of its own.
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

    /// Opens our NATs, where a step is due.
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

    /// A datagram that opens our NAT has not left.
    pub fn unsent(&mut self, now: Instant, to: SocketAddr) {
        self.opening.unsent(now, canonical(to));
    }

    /// Whether an address outside of the peer's NAT must not get a check before our own NAT is
    /// open. Where one end has no NAT, its port is open; behind one NAT there is nothing to open;
    /// without STUN the peer cannot wait for us.
    fn needs_opening(&self, theirs: Nat, address: SocketAddr) -> bool {
        let of_family = || self.queries.seen().filter(|one| one.is_ipv4() == address.is_ipv4());
        let is_bare = of_family().any(|seen| self.hosts.contains(seen));
        let is_around = of_family().any(|seen| seen.ip() == address.ip());
        let is_known = self.peers.is_proven(address);
        theirs.mapping != Mapping::None
            && !(is_bare || is_around || is_known || self.queries.is_empty())
    }

    /// Tells the best of our addresses. The visitor knows no address of the peer at first, and
    /// tells later those in whose network the peer is.
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
                    // As long as there are few neighbours, each is above all others.
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

    /// Whether this end speaks when the other one has spoken: its addresses then fit those of the
    /// visitor.
    fn is_first_to_hear(&self) -> bool {
        self.role == Role::Publisher && self.offer.is_none()
    }

    fn take(&mut self, now: Instant, offer: Offer) {
        match &self.offer {
            // The checks of one attempt have one key.
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

    /// Gives the agent those candidates of the peer that may be sent to.
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

    /// The priority of an address of the peer, by its word, and by what this machine knows.
    fn worth(&self, theirs: &Candidate) -> u32 {
        let is_near = theirs.kind == Kind::Host && self.hosts.are_near(theirs.address.ip());
        if is_near { NEIGHBOUR | theirs.priority & 0xff_ffff } else { theirs.priority }
    }

    /// Whether private addresses of the peer are sent to: where the configuration tells peers such
    /// addresses, and where both ends are in one private network, or are proved to be behind one
    /// address. The word of the peer is no proof, as it could name any address of our network.
    fn is_private_allowed(&self) -> bool {
        self.settings.kinds.host || self.outer().any(is_private) || self.around.is_proven()
    }

    /// Our addresses, as STUN servers see them.
    fn outer(&self) -> impl Iterator<Item = IpAddr> {
        self.queries.answers().into_iter().map(|(_, seen)| seen.ip())
    }

    /// A check of the peer, or the answer to one of ours.
    fn check(&mut self, now: Instant, (from, at): (SocketAddr, Option<IpAddr>), datagram: &[u8]) {
        if self.state == State::Over || self.settings.refusal(from).is_some() {
            return;
        }
        let Some(base) = self.bases.of(from.ip()) else { return };
        let Ok(message) = is::stun::StunMessage::parse(datagram) else { return };
        let is_answer = message.is_successful_binding_response();
        // The agent could not verify an answer without the password of the peer.
        if (is_answer || message.is_failed_binding_response()) && self.offer.is_none() {
            return;
        }
        let named = message.mapped_address().filter(|_| is_answer);
        // The agent keeps each address of ours that an answer names.
        let is_bounded = !is_answer || named.is_some_and(|named| self.peers.may_name(named));
        if !is_bounded || !self.peers.has_room(now, from) {
            return;
        }
        // The agent judges the password.
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

    /// Carries on what the agent, the queries and the clock have changed.
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

    /// Answers go to whoever knows our password. Checks end with the time of the attempt, but for
    /// those of addresses from which the peer has spoken, among them the one to which it has moved.
    fn may_send(&self, now: Instant, to: SocketAddr, message: &[u8]) -> bool {
        !stun::is_request(message)
            || (self.state != State::Over && (now < self.began + LIMIT || self.peers.is_proven(to)))
    }

    fn nominate(&mut self, now: Instant, remote: SocketAddr) {
        // The publisher learns from the visitor's connection which pair is in use.
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
        // An end that tells no address may still be found by its checks.
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

/// The network of an end that has told these candidates. A port of its router does not move, and
/// admits everybody.
fn with_port(nat: Nat, announced: &[Candidate]) -> Nat {
    if announced.iter().any(|one| one.kind == Kind::Mapped) { nat.with_port() } else { nat }
}

/// An address of IPv4 in its own form.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
