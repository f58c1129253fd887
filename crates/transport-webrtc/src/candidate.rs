//! ICE candidates (RFC 8445, RFC 8839 section 5.1): how a line is read and written, and which of a
//! stranger's addresses this end sends to.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The most candidates of a peer that are used. RFC 8445 section 5.1.3 leaves the number open.
pub const MAX_CANDIDATES: usize = 16;

/// Where an address of a candidate comes from.
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
    /// Candidates of one kind, base and server have the same.
    pub foundation: String,
    /// The higher, the earlier it is tried.
    pub priority: u32,
    /// The address.
    pub address: SocketAddr,
    /// Where the address comes from.
    pub kind: Kind,
}

impl Candidate {
    /// Reads what follows `a=`. `None`: no candidate, or a candidate without use here: TCP, a name
    /// of mDNS, another component.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("candidate:")?.split_ascii_whitespace();
        let foundation = words.next()?;
        let is_ice = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        // RFC 8839 has 32 characters; browsers and the crate webrtc keep to them.
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
            // A peer may have learned of an address by a check of its own.
            "srflx" | "prflx" => Kind::Reflexive,
            "relay" => Kind::Relay,
            _ => return None,
        };
        let address = SocketAddr::new(ip.to_canonical(), port);
        Some(Self { foundation: foundation.to_owned(), priority, address, kind })
    }
}

impl fmt::Display for Candidate {
    /// The address behind a NAT, which belongs to the grammar, is not told.
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

/// Which addresses of a peer are sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Addresses of this machine, for peers on it.
    pub loopback: bool,
    /// Private addresses (RFC 1918, RFC 4193, RFC 6598), even if both ends are not behind one
    /// public address.
    pub private: bool,
}

impl Admission {
    /// Keeps the candidates that this end sends to, at most [`MAX_CANDIDATES`], in their order.
    /// `own` are the addresses of this end: a peer behind a public one of them may be in the same
    /// private network.
    #[must_use]
    pub fn admitted(self, candidates: &[Candidate], own: &[IpAddr]) -> Vec<Candidate> {
        // Two private networks may use one private address.
        let is_shared = |ip: IpAddr| scope(ip) == Scope::Public && own.contains(&ip);
        let is_near = candidates.iter().any(|candidate| is_shared(candidate.address.ip()));
        let admits = |candidate: &&Candidate| self.admits(candidate.address, is_near);
        candidates.iter().filter(admits).take(MAX_CANDIDATES).cloned().collect()
    }

    fn admits(self, address: SocketAddr, is_near: bool) -> bool {
        if address.port() == 0 {
            return false;
        }
        match scope(address.ip().to_canonical()) {
            Scope::Public => true,
            Scope::Private => self.private || is_near,
            Scope::Loopback => self.loopback,
            Scope::Nobody => false,
        }
    }
}

/// The reach of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Public,
    Private,
    Loopback,
    /// No peer has it: link-local, multicast, unspecified, reserved, the metadata of a cloud.
    Nobody,
}

/// The services from which a machine in a cloud reads its secrets, outside of the link-local
/// ranges: Alibaba, Azure, Oracle, AWS.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

fn scope(ip: IpAddr) -> Scope {
    match ip {
        ip if METADATA.contains(&ip) => Scope::Nobody,
        IpAddr::V4(ip) => scope_of_v4(ip),
        IpAddr::V6(ip) => scope_of_v6(ip),
    }
}

fn scope_of_v4(ip: Ipv4Addr) -> Scope {
    let [first, second, ..] = ip.octets();
    let is_shared = first == 100 && second & 0xc0 == 64;
    if ip.is_loopback() {
        Scope::Loopback
    } else if ip.is_private() || is_shared {
        Scope::Private
    } else if first == 0 || first >= 224 || ip.is_link_local() {
        Scope::Nobody
    } else {
        Scope::Public
    }
}

fn scope_of_v6(ip: Ipv6Addr) -> Scope {
    let [first, second, ..] = ip.segments();
    // An IPv4 address inside, which a peer can name as such: 6to4 (RFC 3056), Teredo (RFC 4380).
    let is_embedded = first == 0x2002 || (first == 0x2001 && second == 0);
    if ip.is_loopback() {
        Scope::Loopback
    } else if first & 0xfe00 == 0xfc00 {
        Scope::Private
    } else if first & 0xe000 == 0x2000 && !is_embedded {
        Scope::Public
    } else {
        Scope::Nobody
    }
}

/// Writes each candidate as a line of a session description.
pub(crate) fn write_lines(candidates: &[Candidate], text: &mut String) {
    for candidate in candidates {
        // Writing into a String does not fail.
        let _ = write!(text, "a={candidate}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(address: &str) -> Candidate {
        let address: SocketAddr = address.parse().unwrap();
        Candidate { foundation: "1".into(), priority: 7, address, kind: Kind::Host }
    }

    fn admitted(addresses: &[&str], admission: Admission, own: &[&str]) -> Vec<String> {
        let candidates: Vec<_> = addresses.iter().map(|address| candidate(address)).collect();
        let own: Vec<IpAddr> = own.iter().map(|ip| ip.parse().unwrap()).collect();
        let kept = admission.admitted(&candidates, &own);
        kept.iter().map(|candidate| candidate.address.to_string()).collect()
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
    fn private_addresses_need_one_public_address_or_permission() {
        let offered = ["192.168.1.7:5000", "198.51.100.7:5000"];
        let default = Admission::default();
        assert_eq!(admitted(&offered, default, &["203.0.113.1"]), ["198.51.100.7:5000"]);
        assert_eq!(admitted(&offered, default, &["198.51.100.7"]), offered);
        assert_eq!(admitted(&offered, default, &["192.168.1.7"]), ["198.51.100.7:5000"]);
        let private = Admission { private: true, ..default };
        let metadata = ["100.100.100.200:80", "[fd00:ec2::254]:80"];
        assert_eq!(admitted(&metadata, private, &[]), [""; 0]);
        assert_eq!(admitted(&offered, private, &[]), offered);
        let loopback = Admission { loopback: true, ..default };
        assert_eq!(admitted(&["127.0.0.1:7", "10.0.0.1:7"], loopback, &[]), ["127.0.0.1:7"]);
    }

    #[test]
    fn the_number_of_candidates_is_bounded() {
        let many: Vec<_> = (1..100).map(|port| format!("198.51.100.7:{port}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(admitted(&many, Admission::default(), &[]), many[..MAX_CANDIDATES]);
    }
}
