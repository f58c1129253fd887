//! ICE candidates (RFC 8445, RFC 8839 section 5.1): how a line is parsed and written, and to which
//! addresses of an unauthenticated peer this end sends.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};

use punch::{HOSTS, Refused, is_private, refusal};

/// The maximum number of candidates of a peer that are used. RFC 8445 section 5.1.3 leaves the
/// number open.
pub const MAX_CANDIDATES: usize = 16;

/// The number of server-reflexive candidates that take precedence over those of interfaces. The
/// library sends requests from the socket of each interface.
const REFLEXIVE_FIRST: usize = MAX_CANDIDATES - HOSTS;

/// The type of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An interface of the peer.
    Host,
    /// The peer's NAT, as a STUN server saw it.
    Reflexive,
    /// A relay (TURN).
    Relay,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Reflexive => "srflx",
            Self::Relay => "relay",
        }
    }
}

/// An address of a peer, over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Candidates with the same kind, base and server have the same foundation.
    pub foundation: String,
    /// Higher values are tried earlier.
    pub priority: u32,
    /// The address.
    pub address: SocketAddr,
    /// The type of the candidate.
    pub kind: Kind,
}

impl Candidate {
    /// Parses the text after `a=`. `None`: not a candidate, or a candidate without use here: TCP,
    /// an mDNS name, another component.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("candidate:")?.split_ascii_whitespace();
        let foundation = words.next()?;
        let is_ice = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        // RFC 8839 allows 32 characters; browsers and the crate webrtc comply.
        if foundation.len() > 32 || !foundation.chars().all(is_ice) {
            return None;
        }
        let component = words.next()?;
        let transport = words.next()?;
        let priority = words.next()?.parse().ok()?;
        let ip: IpAddr = words.next()?.parse().ok()?;
        let port = words.next()?.parse().ok()?;
        if component != "1" || !transport.eq_ignore_ascii_case("udp") || words.next()? != "typ" {
            return None;
        }
        let kind = match words.next()? {
            "host" => Kind::Host,
            // A peer may have learned of an address from one of its own checks.
            "srflx" | "prflx" => Kind::Reflexive,
            "relay" => Kind::Relay,
            _ => return None,
        };
        let address = SocketAddr::new(ip.to_canonical(), port);
        Some(Self { foundation: foundation.to_owned(), priority, address, kind })
    }
}

impl fmt::Display for Candidate {
    /// The related address behind a NAT, which the grammar requires, is not revealed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { foundation, priority, address, kind } = self;
        write!(
            f,
            "candidate:{foundation} 1 udp {priority} {} {} typ {}",
            address.ip(),
            address.port(),
            kind.name()
        )?;
        match (kind, address.ip()) {
            (Kind::Host, _) => Ok(()),
            (_, IpAddr::V4(_)) => f.write_str(" raddr 0.0.0.0 rport 0"),
            (_, IpAddr::V6(_)) => f.write_str(" raddr :: rport 0"),
        }
    }
}

/// The addresses of a peer to which this end may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Addresses of this machine, for peers on the same machine.
    pub loopback: bool,
    /// Private addresses (RFC 1918, RFC 4193, RFC 6598).
    pub private: bool,
}

impl Admission {
    /// Keeps the candidates of a peer to which this end sends, at most [`MAX_CANDIDATES`]: the best
    /// ones, with some of each kind. `own` are the candidates of this end. If both ends have the
    /// same interface address, it leads to the peer only if both are on one machine. Private
    /// addresses need the permission of the settings, or a STUN server that has seen this end at a
    /// private address. The claim of the peer does not prove that it is near: it could name any
    /// address of our network.
    #[must_use]
    pub fn admitted(self, candidates: &[Candidate], own: &[Candidate]) -> Vec<Candidate> {
        let is_outer = |one: &Candidate| one.kind == Kind::Reflexive;
        let is_inside = own.iter().any(|one| is_outer(one) && is_private(one.address.ip()));
        let takes_private = self.private || is_inside;
        let of_interface = |one: &&Candidate| one.kind == Kind::Host;
        let is_ours = |one: &Candidate| {
            let ip = one.address.ip();
            own.iter().filter(of_interface).any(|ours| ours.address.ip() == ip)
        };
        let is_elsewhere = candidates.iter().filter(of_interface).any(|one| !is_ours(one));
        let mut sorted: Vec<&Candidate> = candidates.iter().collect();
        sorted.sort_by_key(|one| Reverse(one.priority));
        let (mut hosts, mut others): (Vec<_>, Vec<_>) =
            sorted.into_iter().partition(|one| of_interface(one));
        hosts.retain(|one| !is_elsewhere || !is_ours(one));
        let more = hosts.split_off(HOSTS.min(hosts.len()));
        let further = others.split_off(REFLEXIVE_FIRST.min(others.len()));
        let mut admitted: Vec<Candidate> = Vec::new();
        for candidate in hosts.into_iter().chain(others).chain(more).chain(further) {
            let is_there = |one: &Candidate| one.address == candidate.address;
            let is_known = own.iter().any(is_there) || admitted.iter().any(is_there);
            let is_closed = is_private(candidate.address.ip()) && !takes_private;
            let is_bounded = admitted.len() < MAX_CANDIDATES;
            if is_bounded && !is_known && !is_closed && !self.refuses(candidate.address) {
                admitted.push(candidate.clone());
            }
        }
        admitted
    }

    /// Keeps the candidates of this end that are sent to a peer: a STUN server may have reported a
    /// forged address. Some server-reflexive candidates take precedence over those of many
    /// interfaces, and leave room for these.
    pub(crate) fn announced(self, own: &mut Vec<Candidate>) {
        own.retain(|one| !self.refuses(one.address));
        let (hosts, mut seen): (Vec<_>, Vec<_>) =
            own.drain(..).partition(|one| one.kind == Kind::Host);
        let more = seen.split_off(REFLEXIVE_FIRST.min(seen.len()));
        own.extend(seen.into_iter().chain(hosts).chain(more).take(MAX_CANDIDATES));
    }

    /// Whether an address must never be used, although a peer names it.
    pub(crate) fn refuses(self, address: SocketAddr) -> bool {
        match refusal(address) {
            Some(Refused::Loopback) => !self.loopback,
            Some(_) => true,
            None => false,
        }
    }
}

/// Writes each candidate as a line of a session description.
pub(crate) fn write_lines(candidates: &[Candidate], text: &mut String) {
    for candidate in candidates {
        // Writing to a string cannot fail.
        let _ = write!(text, "a={candidate}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(kind: Kind, address: &str) -> Candidate {
        let address: SocketAddr = address.parse().unwrap();
        Candidate { foundation: "1".into(), priority: 7, address, kind }
    }

    fn candidates(kind: Kind, addresses: &[&str]) -> Vec<Candidate> {
        addresses.iter().map(|address| candidate(kind, address)).collect()
    }

    fn addresses(candidates: &[Candidate]) -> Vec<String> {
        candidates.iter().map(|candidate| candidate.address.to_string()).collect()
    }

    /// `own`: the addresses at which STUN servers see this end.
    fn admitted(named: &[&str], admission: Admission, own: &[&str]) -> Vec<String> {
        let own = candidates(Kind::Reflexive, own);
        addresses(&admission.admitted(&candidates(Kind::Host, named), &own))
    }

    #[test]
    fn a_line_is_read_and_written() {
        let line = "candidate:842163049 1 udp 1677729535 192.0.2.9 46154 typ srflx raddr \
                    10.0.0.17 rport 46154 generation 0 ufrag EsAw network-cost 999";
        let candidate = Candidate::read(line).unwrap();
        assert_eq!(candidate.address.to_string(), "192.0.2.9:46154");
        assert_eq!(candidate.kind, Kind::Reflexive);
        let written = candidate.to_string();
        assert_eq!(
            written,
            "candidate:842163049 1 udp 1677729535 192.0.2.9 46154 typ srflx raddr 0.0.0.0 rport 0",
            "the address behind the NAT is not told"
        );
        assert_eq!(Candidate::read(&written), Some(candidate));
    }

    #[test]
    fn a_line_without_use_is_skipped() {
        for line in [
            "candidate:1 1 tcp 7 192.0.2.9 9 typ host tcptype active",
            "candidate:1 1 udp 7 0d4f5a2b-66c7.local 5000 typ host",
            "candidate:1 2 udp 7 192.0.2.9 5000 typ host",
            "candidate:1 1 udp 7 192.0.2.9 70000 typ host",
            "candidate:1 1 udp 7 192.0.2.9 5000 typ",
            "candidate:a\u{7}b 1 udp 7 192.0.2.9 5000 typ host",
            "candidate:",
            "ice-ufrag:abcd",
        ] {
            assert_eq!(Candidate::read(line), None, "{line}");
        }
    }

    #[test]
    fn addresses_that_no_peer_has_are_refused() {
        let refused = [
            "127.0.0.1:5000",
            "[::1]:5000",
            "[::ffff:127.0.0.1]:5000",
            "169.254.7.7:5000",
            "[fe80::7]:5000",
            "224.0.0.251:5353",
            "[ff02::fb]:5353",
            "255.255.255.255:9",
            "240.0.0.1:9",
            "0.0.0.0:9",
            "[::]:9",
            "192.0.2.1:0",
            "10.0.0.1:5000",
            "172.16.0.1:5000",
            "192.168.1.1:5000",
            "100.64.0.1:5000",
            "[fd00::1]:5000",
            "[2002:7f00:1::]:5000",
            "[2001:0:a00:1::]:5000",
            "[64:ff9b::a00:1]:5000",
            "168.63.129.16:80",
            "100.100.100.200:80",
        ];
        assert_eq!(admitted(&refused, Admission::default(), &[]), [""; 0]);
        let public = ["198.51.100.7:5000", "[2001:db8::7]:5000"];
        assert_eq!(admitted(&public, Admission::default(), &[]), public);
    }

    #[test]
    fn private_addresses_need_permission_or_a_private_network_around_this_end() {
        let offered = ["192.168.1.7:5000", "198.51.100.7:5000"];
        let public = ["198.51.100.7:5000"];
        let default = Admission::default();
        assert_eq!(admitted(&offered, default, &["203.0.113.1:7"]), public);
        // The peer names the public address of this end, which anybody may know.
        assert_eq!(admitted(&offered, default, &["198.51.100.7:7"]), offered[1..]);
        assert_eq!(admitted(&offered, default, &["10.9.0.1:7"]), offered);
        let private = Admission { private: true, ..default };
        let metadata = ["100.100.100.200:80", "[fd00:ec2::254]:80", "[fd20:ce::254]:80"];
        assert_eq!(admitted(&metadata, private, &["10.9.0.1:7"]), [""; 0]);
        assert_eq!(admitted(&offered, private, &[]), offered);
        let loopback = Admission { loopback: true, ..default };
        assert_eq!(admitted(&["127.0.0.1:7", "10.0.0.1:7"], loopback, &[]), ["127.0.0.1:7"]);
    }

    #[test]
    fn an_address_of_this_end_is_not_sent_to_and_no_address_twice() {
        let named = ["198.51.100.7:5000", "198.51.100.7:5000", "203.0.113.1:7", "203.0.113.1:8"];
        let own = ["203.0.113.1:7"];
        let kept = admitted(&named, Admission::default(), &own);
        assert_eq!(kept, ["198.51.100.7:5000", "203.0.113.1:8"]);
    }

    #[test]
    fn many_useless_addresses_of_a_peer_hide_no_better_ones() {
        let useless: Vec<_> = (1..30).map(|n| format!("172.17.{n}.1:5000")).collect();
        let useless: Vec<_> = useless.iter().map(String::as_str).collect();
        let mut named = candidates(Kind::Host, &useless);
        named.push(Candidate { priority: 9, ..candidate(Kind::Host, "192.168.7.2:5000") });
        named.push(candidate(Kind::Host, "172.17.0.1:5001"));
        named.push(candidate(Kind::Reflexive, "198.51.100.7:5000"));
        let own = candidates(Kind::Host, &["172.17.0.1:5000", "192.168.7.1:5000"]);
        let private = Admission { private: true, ..Admission::default() };
        let kept = addresses(&private.admitted(&named, &own));
        assert_eq!(kept.len(), MAX_CANDIDATES);
        assert_eq!(kept[0], "192.168.7.2:5000");
        assert!(kept.contains(&"198.51.100.7:5000".to_owned()));
        let of_both = |kept: &[String]| kept.contains(&"172.17.0.1:5001".to_owned());
        assert!(!of_both(&kept), "an address that both have");
        let one_machine = candidates(Kind::Host, &["172.17.0.1:5001"]);
        assert!(of_both(&addresses(&private.admitted(&one_machine, &own))));
    }

    #[test]
    fn a_peer_is_told_a_bounded_number_of_addresses_and_none_that_a_server_invents() {
        let hosts: Vec<_> = (1..40).map(|host| format!("10.0.0.{host}:5000")).collect();
        let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
        let mut own = candidates(Kind::Host, &hosts);
        own.extend(candidates(Kind::Reflexive, &["169.254.169.254:80", "198.51.100.7:5000"]));
        Admission::default().announced(&mut own);
        let announced = addresses(&own);
        assert_eq!(announced[..2], ["198.51.100.7:5000", "10.0.0.1:5000"]);
        assert_eq!(announced.len(), MAX_CANDIDATES);
    }

    #[test]
    fn many_addresses_that_servers_saw_leave_room_for_those_of_interfaces() {
        let seen: Vec<_> = (1..40).map(|port| format!("198.51.100.7:{port}")).collect();
        let seen: Vec<_> = seen.iter().map(String::as_str).collect();
        let mut own = candidates(Kind::Reflexive, &seen);
        own.extend(candidates(Kind::Host, &["10.0.0.1:5000", "192.168.7.1:5000"]));
        Admission::default().announced(&mut own);
        let announced = addresses(&own);
        assert_eq!(announced[REFLEXIVE_FIRST..][..2], ["10.0.0.1:5000", "192.168.7.1:5000"]);
        assert_eq!(announced.len(), MAX_CANDIDATES);
    }

    #[test]
    fn the_number_of_candidates_is_bounded() {
        let many: Vec<_> = (1..100).map(|port| format!("198.51.100.7:{port}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(admitted(&many, Admission::default(), &[]), many[..MAX_CANDIDATES]);
    }
}
