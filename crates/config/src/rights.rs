//! The rights of clients to bind and to dial. These are pure functions on the model, so that the
//! server's decision can be tested without a socket. Names and addresses are normalised before they
//! are compared (reliability 29).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use proto::UnixAddr;

use crate::endpoint::{Host, ports, split};
use crate::{BadValue, Net};

/// A right of `allow.tcp`: `5203`, `10000-10100` or `127.0.0.1:10000-10100`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRight {
    bind: Option<IpAddr>,
    first: u16,
    last: u16,
}

impl PortRight {
    /// Whether this right permits everything that `other` permits. A right without an address is
    /// not compared with a right that has one.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.bind == other.bind && self.first <= other.first && other.last <= self.last
    }
}

impl FromStr for PortRight {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (bind, range) = match split(text)? {
            (host, Some(range)) => match host.parse()? {
                Host::Ip(ip) => (Some(ip.to_canonical()), range),
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

/// The ports that a client may publish; empty permits none.
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
    /// itself: the server chooses from the permitted ports, see [`PortRights::ranges`].
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

    /// The number of ports in all rights.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.rights.iter().map(|right| u32::from(right.last - right.first) + 1).sum()
    }

    /// First and last port of each right that covers `bind`.
    pub fn ranges(&self, bind: IpAddr) -> impl Iterator<Item = (u16, u16)> + '_ {
        let bind = bind.to_canonical();
        let default = self.default_bind.map(|ip| ip.to_canonical());
        let covers = move |r: &&PortRight| r.bind.or(default) == Some(bind);
        self.rights.iter().filter(covers).map(|r| (r.first, r.last))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Name(String),
    Net(Net),
}

/// A right of `allow.forward`: `10.0.0.0/8:*`, `127.0.0.1:5201`, `db.internal:5432`, `[::1]:80`,
/// `unix:/run/app.sock`, `unix:@name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardRight(Reach);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    Tcp {
        place: Place,
        /// The first and the last port are included; `*` is 1-65535.
        first: u16,
        last: u16,
    },
    Unix(UnixAddr),
}

impl FromStr for ForwardRight {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hint = "a forward right is host:port, address/prefix:ports or *: 10.0.0.0/8:*, db.internal:5432";
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
        let (place, range) = text.rsplit_once(':').ok_or_else(bad)?;
        let (first, last) = if range == "*" { (1, u16::MAX) } else { ports(range)? };
        if first == 0 {
            return Err(bad());
        }
        let (host, prefix) = match place.split_once('/') {
            Some((host, prefix)) => (host, Some(prefix)),
            None => (place, None),
        };
        let place = match (host.parse::<Host>()?, prefix) {
            (Host::Name(name), None) => Place::Name(name),
            (Host::Name(_), Some(_)) => return Err(bad()),
            (Host::Ip(ip), prefix) => Net::new(ip, prefix).map(Place::Net).ok_or_else(bad)?,
        };
        Ok(Self(Reach::Tcp { place, first, last }))
    }
}

impl fmt::Display for ForwardRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, first, last) = match &self.0 {
            Reach::Unix(address) => return write!(f, "unix:{}", address.place()),
            Reach::Tcp { place, first, last } => (place, *first, *last),
        };
        match place {
            Place::Name(name) => write!(f, "{name}:")?,
            Place::Net(net) => write!(f, "{net}:")?,
        }
        match (first, last) {
            (1, u16::MAX) => f.write_str("*"),
            (a, b) if a == b => write!(f, "{a}"),
            (a, b) => write!(f, "{a}-{b}"),
        }
    }
}

/// The targets that a client may reach from the server's side; empty permits none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardRights(pub Vec<ForwardRight>);

impl ForwardRights {
    /// Whether a dial to `resolved`, an address of the host `asked`, is permitted. A right by
    /// address applies to the dialled address. A right by name applies to the requested name, and
    /// permits every address that the server's resolver returns for it. Check each address before
    /// dialling it.
    #[must_use]
    pub fn permits(&self, asked: &str, resolved: IpAddr, port: u16) -> bool {
        let name = asked.strip_suffix('.').unwrap_or(asked);
        let ip = resolved.to_canonical();
        self.0.iter().any(|ForwardRight(right)| match right {
            Reach::Unix(_) => false,
            Reach::Tcp { first, last, .. } if !(*first..=*last).contains(&port) => false,
            Reach::Tcp { place: Place::Name(allowed), .. } => allowed.eq_ignore_ascii_case(name),
            Reach::Tcp { place: Place::Net(net), .. } => net.contains(ip),
        })
    }

    /// Whether a dial to the host name `asked` can be permitted, before the name is resolved: a
    /// right covers the name, or a right covers some network on this port. A name that no right can
    /// cover is not looked up, so a client without rights costs no lookup and sends no data by DNS.
    #[must_use]
    pub fn may_permit(&self, asked: &str, port: u16) -> bool {
        let name = asked.strip_suffix('.').unwrap_or(asked);
        self.0.iter().any(|ForwardRight(right)| match right {
            Reach::Unix(_) => false,
            Reach::Tcp { first, last, .. } if !(*first..=*last).contains(&port) => false,
            Reach::Tcp { place: Place::Name(allowed), .. } => allowed.eq_ignore_ascii_case(name),
            Reach::Tcp { place: Place::Net(_), .. } => true,
        })
    }

    /// Whether a dial to this Unix socket is permitted. The path is compared as written; links in
    /// the file system are under the control of the server's owner.
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
                rights.permits(asked, ip.parse().unwrap(), port),
                want,
                "{right} {asked} {ip} {port}"
            );
        }
        assert!(!ForwardRights::default().permits("a", "127.0.0.1".parse().unwrap(), 1));
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
            assert_eq!(rights.may_permit(asked, port), want, "{right} {asked} {port}");
        }
        assert!(!ForwardRights::default().may_permit("a.example", 80));
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
            assert!(!rights.permits("/run/app.sock", "127.0.0.1".parse().unwrap(), 1));
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
