//! The ICE agent: its initial settings, and conversions to types of the crate `is`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use is::stun::{StunMessage, StunPacket};
use is::{CandidateKind, IceAgent, IceCreds, Protocol};

use super::{CONSENT_CHECK, PACE, PAIRS, Random, Role, Settings};
use crate::signal::Credentials;
use crate::{Candidate, Kind};

/// The ICE characters (RFC 8839 section 5.4), six bits each.
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Length of a ufrag in characters: 48 bits. RFC 8445 section 5.3 requires 24.
const UFRAG: usize = 8;

/// Length of a password in characters: 144 bits. RFC 8445 section 5.3 requires 128.
const PASSWORD: usize = 24;

/// Placeholder addresses of the socket for the agent, one per family: reserved addresses (RFC 7600,
/// RFC 6666), which never leave this process.
const NAME_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8));
const NAME_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1));
const NAME_PORT: u16 = 9;

/// The local candidates of the agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bases {
    ipv4: Option<SocketAddr>,
    ipv6: Option<SocketAddr>,
}

impl Bases {
    /// The local candidate for a path to `ip`.
    pub(super) const fn of(&self, ip: IpAddr) -> Option<SocketAddr> {
        match ip {
            IpAddr::V4(_) => self.ipv4,
            IpAddr::V6(_) => self.ipv6,
        }
    }
}

pub(super) fn credentials(random: Random<'_>) -> Credentials {
    let mut text = |length| {
        let mut bytes = vec![0; length];
        random(&mut bytes);
        bytes.into_iter().map(|byte: u8| char::from(CHARACTERS[usize::from(byte & 63)])).collect()
    };
    Credentials { ufrag: text(UFRAG), password: text(PASSWORD) }
}

pub(super) fn agent(
    role: Role,
    credentials: &Credentials,
    settings: &Settings,
) -> (IceAgent, Bases) {
    let Credentials { ufrag, password } = credentials.clone();
    let mut agent = IceAgent::new(IceCreds { ufrag, pass: password });
    agent.set_controlling(role == Role::Visitor);
    agent.set_timing_advance(PACE);
    agent.set_max_stun_rto(CONSENT_CHECK);
    agent.set_max_candidate_pairs(PAIRS);
    let named = |is_there: bool, ip| is_there.then(|| SocketAddr::new(ip, NAME_PORT));
    let bases = Bases { ipv4: named(settings.ipv4, NAME_V4), ipv6: named(settings.ipv6, NAME_V6) };
    for base in [bases.ipv4, bases.ipv6].into_iter().flatten() {
        if let Ok(candidate) = is::Candidate::host(base, Protocol::Udp) {
            agent.add_local_candidate(candidate);
        }
    }
    (agent, bases)
}

/// Converts a candidate of the peer.
pub(super) fn remote(candidate: &Candidate) -> is::Candidate {
    let kind = match candidate.kind {
        Kind::Host => CandidateKind::Host,
        Kind::Mapped | Kind::Reflexive => CandidateKind::ServerReflexive,
        Kind::Discovered => CandidateKind::PeerReflexive,
    };
    let foundation = candidate.kind.word().to_owned();
    let Candidate { address, priority, .. } = *candidate;
    is::Candidate::from_parts(
        foundation,
        1,
        Protocol::Udp,
        priority,
        address,
        kind,
        None,
        None,
        None,
    )
}

pub(super) const fn packet(
    source: SocketAddr,
    destination: SocketAddr,
    message: StunMessage<'_>,
) -> StunPacket<'_> {
    StunPacket { proto: Protocol::Udp, source, destination, message }
}
