//! The rights of clients to bind and to dial. These are pure functions on the model, so that the
//! server's decision can be tested without a socket. Names and addresses are normalised before they
//! are compared (reliability 29).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use proto::{Special, UnixAddr};

use crate::endpoint::{Host, no_zone, ports, split};
use crate::{BadValue, Net, Over};

/// The largest number of ports that a client of the server's files may publish without
/// `limits.ports`. Each port needs a descriptor on each worker.
pub const CLIENT_PORTS: u32 = 1024;

/// As [`CLIENT_PORTS`], for clients that the files do not name: those of `auth.http` and
/// `allow_any_client`.
pub const GUEST_PORTS: u32 = 64;

/// A right of `allow.tcp` and `allow.udp`: `5203`, `10000-10100` or `127.0.0.1:10000-10100`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRight {
    bind: Option<IpAddr>,
    first: u16,
    last: u16,
}

impl PortRight {
    /// Whether this right permits everything that `other` permits. A right without an address
    /// cannot be compared with a right with an address.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.bind == other.bind && self.first <= other.first && other.last <= self.last
    }

    /// The ports of this right that are not in `gone`; `None` if they have no port in common.
    /// Rights at different addresses have no port in common.
    #[must_use]
    pub fn without(&self, gone: &Self) -> Option<Vec<Self>> {
        if self.bind != gone.bind || gone.last < self.first || self.last < gone.first {
            return None;
        }
        let below = (self.first < gone.first)
            .then(|| Self { last: gone.first.saturating_sub(1), ..self.clone() });
        let above = (gone.last < self.last)
            .then(|| Self { first: gone.last.saturating_add(1), ..self.clone() });
        Some(below.into_iter().chain(above).collect())
    }
}

impl FromStr for PortRight {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (bind, range) = match split(text)? {
            (host, Some(range)) => match host.parse()? {
                Host::Ip(ip) => (Some(ip.to_canonical()), range),
                Host::Scoped(_) => return Err(no_zone(text, RIGHTS)),
                Host::Name(name) => {
                    return Err(BadValue::new(format!("`{name}` is not an address"))
                        .hint("a port right binds to an address: 127.0.0.1:10000-10100"));
                }
            },
            (range, None) => (None, range),
        };
        let (first, last) = ports(range)?;
        if first == 0 {
            return Err(BadValue::new("port 0 cannot be allowed").hint("1-65535 allows every port"));
        }
        Ok(Self { bind, first, last })
    }
}

impl fmt::Display for PortRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ip) = self.bind {
            write!(f, "{}:", Host::Ip(ip))?;
        }
        write!(f, "{}", self.first)?;
        if self.last != self.first {
            write!(f, "-{}", self.last)?;
        }
        Ok(())
    }
}

/// The remedy for a right with a zone.
const RIGHTS: &str = "a right without a zone holds for the address on every link";

/// The first port that is not a system port, also called well-known (RFC 6335 section 6).
const USER_PORTS: u16 = 1024;

/// The ports that a client may publish; an empty list permits none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortRights {
    /// The server's `public_bind`: the address of rights without an address.
    pub default_bind: Option<IpAddr>,
    /// The entries.
    pub rights: Vec<PortRight>,
}

impl PortRights {
    /// Whether a listener on exactly this address and port is permitted. A right without an address
    /// applies to the server's `public_bind` only. Port 0 (the server chooses) is never permitted
    /// by itself: the server chooses from the permitted ports, see [`PortRights::to_choose_from`].
    #[must_use]
    pub fn permits(&self, bind: IpAddr, port: u16) -> bool {
        let bind = bind.to_canonical();
        let default = self.default_bind.map(|ip| ip.to_canonical());
        port != 0
            && self.rights.iter().any(|r| {
                (r.first..=r.last).contains(&port)
                    && r.bind.or(default).is_some_and(|ip| ip == bind)
            })
    }

    /// The number of ports that all rights cover.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.rights.iter().map(|right| u32::from(right.last - right.first) + 1).sum()
    }

    /// The first and last port of each run of ports at `bind` from which the server may choose:
    /// ports from `USER_PORTS` on. Well-known ports are chosen only where the rights have no
    /// others, because clients expect a particular service at a port such as 22 or 80, and the
    /// chosen port may serve any.
    #[must_use]
    pub fn to_choose_from(&self, bind: IpAddr) -> Vec<(u16, u16)> {
        let bind = bind.to_canonical();
        let default = self.default_bind.map(|ip| ip.to_canonical());
        let covers = move |r: &&PortRight| r.bind.or(default) == Some(bind);
        let ranges = || self.rights.iter().filter(covers).map(|r| (r.first, r.last));
        let usual = ranges().map(|(first, last)| (first.max(USER_PORTS), last));
        let usual: Vec<_> = usual.filter(|(first, last)| first <= last).collect();
        if usual.is_empty() { ranges().collect() } else { usual }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// Every address.
    Any,
    Name(String),
    Net(Net),
}

impl Scope {
    /// Whether the place includes `ip`, an address of the host `asked`. `is_own`: whether an
    /// address belongs to the machine that dials.
    fn has(&self, asked: &str, ip: IpAddr, is_own: &dyn Fn(IpAddr) -> bool) -> bool {
        let is_ordinary = || Special::of(ip).is_none() && !Special::forms(ip).any(is_own);
        match self {
            Self::Any => is_ordinary(),
            Self::Name(name) => {
                let may = match Special::of(ip) {
                    None => true,
                    Some(Special::Loopback) => is_localhost(name) && ip.is_loopback(),
                    Some(_) => false,
                };
                may && name.eq_ignore_ascii_case(asked)
            }
            // A right to all addresses does not name the addresses of this machine.
            Self::Net(net) if net.network().is_all() => net.network().names(ip) && is_ordinary(),
            Self::Net(net) => net.network().names(ip),
        }
    }
}

/// Whether the name stands for loopback (RFC 6761 section 6.3).
fn is_localhost(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

/// A right of `allow.forward`: `10.0.0.0/8:*`, `127.0.0.1:5201`, `db.internal:5432`, `[::1]:80`,
/// `*:443`, `udp://10.0.0.53:53`, `unix:/run/app.sock`, `unix:@name`. Without `tcp://` or `udp://`
/// it covers both protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardRight(Reach);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    Port {
        /// `None`: both protocols.
        over: Option<Over>,
        place: Scope,
        /// The first and the last port are included; `*` is 1-65535.
        first: u16,
        last: u16,
    },
    Unix(UnixAddr),
}

impl ForwardRight {
    /// Whether it is a right to a Unix socket.
    pub(crate) const fn is_unix(&self) -> bool {
        match self.0 {
            Reach::Unix(_) => true,
            Reach::Port { .. } => false,
        }
    }

    /// Whether it is a right to one protocol, which is `wanted`.
    pub(crate) fn is_over(&self, wanted: Over) -> bool {
        match &self.0 {
            Reach::Unix(_) => false,
            Reach::Port { over, .. } => *over == Some(wanted),
        }
    }
}

impl FromStr for ForwardRight {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hint = "a forward right is host:port or address/prefix:ports, with * for all: 10.0.0.0/8:*, \
                    db.internal:5432, *:443, udp://10.0.0.53:53";
        let bad = || BadValue::new(format!("`{text}` is not a forward right")).hint(hint);
        if let Some(place) = text.strip_prefix("unix:") {
            // The notation of targets, `unix:///run/app.sock`, is accepted as well.
            let address = UnixAddr::new(place.strip_prefix("//").unwrap_or(place));
            return match address {
                Ok(address) => Ok(Self(Reach::Unix(address))),
                Err(rule) => Err(BadValue::new(format!("`{text}` is not a forward right"))
                    .hint(format!("{rule}; as a right unix:/run/app.sock or unix:@name"))),
            };
        }
        let (over, rest) = match text.split_once("://") {
            Some(("tcp", rest)) => (Some(Over::Tcp), rest),
            Some(("udp", rest)) => (Some(Over::Udp), rest),
            Some(_) => return Err(bad()),
            None => (None, text),
        };
        let (place, range) = rest.rsplit_once(':').ok_or_else(bad)?;
        let (first, last) = if range == "*" { (1, u16::MAX) } else { ports(range)? };
        if first == 0 {
            return Err(bad());
        }
        if place == "*" {
            return Ok(Self(Reach::Port { over, place: Scope::Any, first, last }));
        }
        let (host, prefix) = match place.split_once('/') {
            Some((host, prefix)) => (host, Some(prefix)),
            None => (place, None),
        };
        let place = match (host.parse::<Host>()?, prefix) {
            (Host::Name(name), None) => Scope::Name(name),
            (Host::Name(_), Some(_)) => return Err(bad()),
            (Host::Scoped(_), _) => return Err(no_zone(text, RIGHTS)),
            (Host::Ip(ip), prefix) => Net::new(ip, prefix).map(Scope::Net).ok_or_else(bad)?,
        };
        Ok(Self(Reach::Port { over, place, first, last }))
    }
}

impl fmt::Display for ForwardRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (over, place, first, last) = match &self.0 {
            Reach::Unix(address) => return write!(f, "unix:{}", address.place()),
            Reach::Port { over, place, first, last } => (over, place, *first, *last),
        };
        if let Some(over) = over {
            write!(f, "{over}://")?;
        }
        match place {
            Scope::Any => f.write_str("*:")?,
            Scope::Name(name) => write!(f, "{name}:")?,
            Scope::Net(net) => write!(f, "{net}:")?,
        }
        match (first, last) {
            (1, u16::MAX) => f.write_str("*"),
            (a, b) if a == b => write!(f, "{a}"),
            (a, b) => write!(f, "{a}-{b}"),
        }
    }
}

/// The targets that a client may reach from the server's side, or that a visitor of an exit may
/// reach from the client's side; empty permits none. Addresses that are no ordinary destination
/// ([`Special`]) are permitted only by an entry that names exactly them: `127.0.0.0/8:*`,
/// `169.254.169.254:80`, and for loopback the name `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardRights(pub Vec<ForwardRight>);

impl ForwardRights {
    /// The right `*:*`: every ordinary destination, but no Unix socket.
    #[must_use]
    pub fn ordinary() -> Self {
        let (first, last) = (1, u16::MAX);
        Self(vec![ForwardRight(Reach::Port { over: None, place: Scope::Any, first, last })])
    }

    /// Whether a dial or a datagram to `resolved`, an address of the host `asked`, is permitted. A
    /// right by address applies to the dialled address. A right by name applies to the requested
    /// name, and permits every ordinary address that the resolver returns for it. A right to all
    /// addresses (`*`, `0.0.0.0/0`) excludes addresses of the dialling machine, as `is_own`
    /// reports: other services of the machine trust connections from itself. Check each address
    /// before dialling it.
    #[must_use]
    pub fn permits(
        &self,
        over: Over,
        asked: &str,
        (resolved, port): (IpAddr, u16),
        is_own: &dyn Fn(IpAddr) -> bool,
    ) -> bool {
        let name = asked.strip_suffix('.').unwrap_or(asked);
        let ip = resolved.to_canonical();
        self.places(over, port).any(|place| place.has(name, ip, is_own))
    }

    /// Whether a dial to the host name `asked` can be permitted, before the name is resolved: a
    /// right covers the name, or a right covers a network on this port. A name that no right can
    /// cover is not looked up, so a client without rights causes no lookup and cannot send data by
    /// DNS.
    #[must_use]
    pub fn may_permit(&self, over: Over, asked: &str, port: u16) -> bool {
        let name = asked.strip_suffix('.').unwrap_or(asked);
        self.places(over, port).any(|place| match place {
            Scope::Name(allowed) => allowed.eq_ignore_ascii_case(name),
            Scope::Any | Scope::Net(_) => true,
        })
    }

    /// The places of the rights that cover this port.
    fn places(&self, over: Over, port: u16) -> impl Iterator<Item = &Scope> {
        self.0.iter().filter_map(move |ForwardRight(right)| match right {
            Reach::Unix(_) => None,
            Reach::Port { over: of, place, first, last } => {
                let has = of.is_none_or(|of| of == over) && (*first..=*last).contains(&port);
                has.then_some(place)
            }
        })
    }

    /// Whether a dial to this Unix socket is permitted. The path is compared as written; symbolic
    /// links are under the control of the server's owner.
    #[must_use]
    pub fn permits_unix(&self, address: &UnixAddr) -> bool {
        self.0.iter().any(|right| matches!(&right.0, Reach::Unix(allowed) if allowed == address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_shown_port_right_reads_back(a in 1u16.., b in 1u16.., bind: Option<IpAddr>) {
            let bind = bind.map(|ip| ip.to_canonical());
            let right = PortRight { bind, first: a.min(b), last: a.max(b) };
            prop_assert_eq!(right.to_string().parse(), Ok(right));
        }
    }

    #[test]
    fn a_well_known_port_is_chosen_only_where_the_rights_have_no_other() {
        let any = IpAddr::from([0, 0, 0, 0]);
        let of = |rights: &[&str]| {
            let rights = rights.iter().map(|right| right.parse().unwrap()).collect();
            PortRights { default_bind: Some(any), rights }.to_choose_from(any)
        };
        assert_eq!(of(&["1-65535"]), [(1024, 65535)]);
        assert_eq!(of(&["22", "80-2000", "5000"]), [(1024, 2000), (5000, 5000)]);
        assert_eq!(of(&["22", "80-90"]), [(22, 22), (80, 90)]);
        // The port above is one of another address.
        assert_eq!(of(&["443", "127.0.0.1:8080"]), [(443, 443)]);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn forward_rights_hold_against_dots_case_and_mapped_addresses() {
        let table = [
            ("10.0.0.0/8:*", "x", "10.1.2.3", 80, true),
            ("10.0.0.0/8:*", "x", "::ffff:10.1.2.3", 80, true),
            ("10.0.0.0/8:*", "x", "11.0.0.1", 80, false),
            ("10.0.0.0/8:*", "10.1.2.3", "127.0.0.1", 80, false),
            ("[::ffff:10.0.0.0]/104:*", "x", "10.1.2.3", 80, true),
            ("127.0.0.1:5201", "localhost", "127.0.0.1", 5201, true),
            ("127.0.0.1:5201", "localhost", "127.0.0.1", 5202, false),
            ("127.0.0.1:5201", "localhost", "::1", 5201, false),
            ("localhost:5201", "localhost", "127.0.0.1", 5201, true),
            ("db.localhost:5201", "DB.localhost.", "::1", 5201, true),
            ("localhost:5201", "localhost", "169.254.169.254", 5201, false),
            ("[::1]:80", "[::1]", "::1", 80, true),
            ("[2001:db8::]/32:1-99", "x", "2001:db8:1::1", 99, true),
            ("[2001:db8::]/32:1-99", "x", "2001:db9::1", 99, false),
            ("db.internal:5432", "DB.internal.", "10.9.9.9", 5432, true),
            ("DB.Internal.:5432", "db.internal", "10.9.9.9", 5432, true),
            ("db.internal:5432", "db.internal..", "10.9.9.9", 5432, false),
            ("db.internal:5432", "xdb.internal", "10.9.9.9", 5432, false),
            ("db.internal:5432", "db.internal.evil.com", "10.9.9.9", 5432, false),
            ("0.0.0.0/0:*", "x", "1.2.3.4", 1, true),
            ("0.0.0.0/0:*", "x", "::1", 1, false),
            ("[::]/0:*", "x", "::ffff:1.2.3.4", 1, false),
        ];
        for (right, asked, ip, port, want) in table {
            let rights = ForwardRights(vec![right.parse().unwrap()]);
            assert_eq!(
                rights.permits(Over::Tcp, asked, (ip.parse().unwrap(), port), &|_| false),
                want,
                "{right} {asked} {ip} {port}"
            );
        }
        let none = ForwardRights::default();
        assert!(!none.permits(Over::Tcp, "a", ("10.0.0.1".parse().unwrap(), 1), &|_| false));
    }

    #[test]
    fn addresses_of_the_machine_that_dials_are_reached_only_by_a_right_that_names_them() {
        let own = ["10.0.0.5", "203.0.113.7", "2001:db8::7"];
        let is_own = |ip: IpAddr| own.iter().any(|own| own.parse() == Ok(ip));
        for (right, ip, want) in [
            ("*:*", "10.0.0.5", false),
            ("*:*", "::ffff:10.0.0.5", false),
            ("*:*", "64:ff9b::10.0.0.5", false),
            ("*:*", "2002:a00:5::1", false),
            ("*:80", "203.0.113.7", false),
            ("*:*", "2001:db8::7", false),
            ("0.0.0.0/0:*", "203.0.113.7", false),
            ("[::]/0:*", "2001:db8::7", false),
            ("*:*", "10.0.0.6", true),
            ("0.0.0.0/0:*", "10.0.0.6", true),
            ("10.0.0.0/24:*", "10.0.0.5", true),
            ("10.0.0.5:80", "10.0.0.5", true),
            ("own.example:80", "203.0.113.7", true),
            ("[2001:db8::7]:80", "2001:db8::7", true),
        ] {
            let rights = ForwardRights(vec![right.parse().unwrap()]);
            let ip = ip.parse().unwrap();
            let may = rights.permits(Over::Tcp, "own.example", (ip, 80), &is_own);
            assert_eq!(may, want, "{right} {ip}");
        }
    }

    #[test]
    fn special_addresses_are_reached_only_by_a_right_to_them_alone() {
        let special = [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::169.254.169.254",
            "2002:7f00:1::1",
        ];
        let wide = [
            "*:*",
            "0.0.0.0/0:*",
            "0.0.0.0/1:*",
            "126.0.0.0/7:*",
            "[::]/0:*",
            "[::]/96:*",
            "[::ffff:0.0.0.0]/96:*",
            "[64:ff9b::]/96:*",
            "[2002::]/16:*",
            "[fd00::]/8:*",
            "[fe80::]/9:*",
            "100.100.100.0/24:*",
            "evil.example:*",
        ];
        let permits = |right: &str, ip: &str| {
            let rights = ForwardRights(vec![right.parse().unwrap()]);
            let ip = ip.parse().unwrap();
            [Over::Tcp, Over::Udp]
                .map(|over| rights.permits(over, "evil.example", (ip, 80), &|_| false))
        };
        for right in wide {
            for ip in special {
                assert_eq!(permits(right, ip), [false, false], "{right} {ip}");
            }
        }
        for (right, ip, want) in [
            ("127.0.0.0/8:*", "127.0.0.1", true),
            ("127.0.0.0/8:*", "::ffff:127.0.0.1", true),
            ("[::ffff:127.0.0.0]/104:*", "127.0.0.1", true),
            ("169.254.169.254:80", "169.254.169.254", true),
            ("169.254.169.254:80", "169.254.169.253", false),
            ("169.254.0.0/16:*", "169.254.1.1", true),
            // Link-local, and more than that.
            ("169.254.0.0/16:*", "169.254.169.254", false),
            ("224.0.0.0/4:*", "224.0.0.251", true),
            ("*:*", "224.0.0.251", false),
            ("*:*", "255.255.255.255", false),
            ("[fe80::]/10:*", "fe80::1", true),
            ("[::1]:80", "::1", true),
            ("[fd00:ec2::254]:80", "fd00:ec2::254", true),
            ("100.100.100.200:80", "100.100.100.200", true),
            // A translated address is another address than the one that it stands for.
            ("127.0.0.0/8:*", "64:ff9b::127.0.0.1", false),
            ("[64:ff9b::7f00:0]/104:*", "64:ff9b::127.0.0.1", true),
            ("*:*", "64:ff9b::8.8.8.8", true),
            ("*:*", "8.8.8.8", true),
            ("*:*", "10.0.0.1", true),
            ("*:*", "2001:db8::1", true),
            ("*:443", "8.8.8.8", false),
        ] {
            assert_eq!(permits(right, ip), [want, want], "{right} {ip}");
        }
        let all = ForwardRights::ordinary();
        assert_eq!(all, ForwardRights(vec!["*:*".parse().unwrap()]));
        assert!(!all.permits_unix(&UnixAddr::new("@app").unwrap()));
    }

    #[test]
    fn a_right_is_to_both_protocols_unless_it_names_one() {
        let ip = "10.0.0.53".parse().unwrap();
        for (right, tcp, udp) in [
            ("10.0.0.0/8:53", true, true),
            ("tcp://10.0.0.0/8:53", true, false),
            ("udp://10.0.0.0/8:53", false, true),
            ("udp://*:53", false, true),
            ("udp://dns.internal:50-60", false, true),
        ] {
            let parsed: ForwardRight = right.parse().unwrap();
            assert_eq!(parsed.to_string(), right, "it reads back");
            let rights = ForwardRights(vec![parsed]);
            let permits = |over| rights.permits(over, "dns.internal", (ip, 53), &|_| false);
            assert_eq!((permits(Over::Tcp), permits(Over::Udp)), (tcp, udp), "{right}");
            let may = |over| rights.may_permit(over, "dns.internal", 53);
            assert_eq!((may(Over::Tcp), may(Over::Udp)), (tcp, udp), "{right}");
        }
        for bad in ["quic://10.0.0.1:53", "udp:10.0.0.1:53", "udp://", "udp://*", "*", "*:0"] {
            assert!(bad.parse::<ForwardRight>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_looked_up_only_where_a_right_can_cover_it() {
        let table = [
            ("db.internal:5432", "DB.internal.", 5432, true),
            ("db.internal:5432", "db.internal", 5433, false),
            ("db.internal:5432", "leak.evil.example", 5432, false),
            ("10.0.0.0/8:80-90", "anything.example", 85, true),
            ("10.0.0.0/8:80-90", "anything.example", 91, false),
            ("unix:/run/app.sock", "run", 80, false),
        ];
        for (right, asked, port, want) in table {
            let rights = ForwardRights(vec![right.parse().unwrap()]);
            assert_eq!(rights.may_permit(Over::Tcp, asked, port), want, "{right} {asked} {port}");
        }
        assert!(!ForwardRights::default().may_permit(Over::Tcp, "a.example", 80));
    }

    #[test]
    fn a_right_to_a_unix_socket_is_to_that_one_only() {
        for text in ["unix:/run/app.sock", "unix:///run/app.sock"] {
            let right: ForwardRight = text.parse().unwrap();
            assert_eq!(right.to_string(), "unix:/run/app.sock");
            let rights = ForwardRights(vec![right]);
            let permits = |place| rights.permits_unix(&UnixAddr::new(place).unwrap());
            assert!(permits("/run/app.sock"));
            for other in ["/run/app.sockx", "/run/app", "/run/App.sock", "@/run/app.sock"] {
                assert!(!permits(other), "{other}");
            }
            assert!(!rights.permits(
                Over::Tcp,
                "/run/app.sock",
                ("10.0.0.1".parse().unwrap(), 1),
                &|_| false
            ));
        }
        let all = ForwardRights(vec!["0.0.0.0/0:*".parse().unwrap(), "[::]/0:*".parse().unwrap()]);
        assert!(!all.permits_unix(&UnixAddr::new("@app").unwrap()));
        let named = ForwardRights(vec!["unix:@app".parse().unwrap()]);
        assert!(named.permits_unix(&UnixAddr::new("@app").unwrap()));
        for bad in ["unix:", "unix:app", "unix:/a/../b", "unix:/a/", "unix:@"] {
            assert!(bad.parse::<ForwardRight>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_right_without_an_address_is_about_the_public_bind_only() {
        let bind: IpAddr = "::".parse().unwrap();
        let rights = vec!["5203".parse().unwrap(), "127.0.0.1:10-20".parse().unwrap()];
        let rights = PortRights { default_bind: Some(bind), rights };
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(rights.permits(bind, 5203) && !rights.permits(lo, 5203));
        assert!(rights.permits(lo, 20) && rights.permits("::ffff:127.0.0.1".parse().unwrap(), 10));
        assert!(!rights.permits(lo, 21) && !rights.permits(bind, 15) && !rights.permits(bind, 0));
    }
}
