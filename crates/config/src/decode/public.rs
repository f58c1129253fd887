//! `public`: the addresses of a service, that is ports and names, which must be unique among all
//! services.

use std::collections::BTreeMap;

use proto::control::ADDRESSES_MAX;

use crate::address::{Kind, Ports, Role, unix};
use crate::endpoint::{NO_ZONE, no_zone};
use crate::lists::{PUBLISHED_MAX, twice};
use crate::model::Public;
use crate::names::{NameKind, public_name};
use crate::published::PublishedAt;
use crate::section::{Item, Section};
use crate::taken::{Bind, Clash};
use crate::{BadValue, Host, Over};

/// The largest number of ports in the range of a service: each port is a listener on the server.
const RANGE_MAX: u16 = 1000;

/// The addresses that services occupy so far.
#[derive(Default)]
pub(super) struct Published {
    places: PublishedAt,
    /// Number of addresses so far. Decoding ends when the number exceeds the limit.
    pub(super) count: usize,
}

/// An entry of `public`.
pub(super) struct Address {
    item: Item,
    place: Resource,
}

enum Resource {
    /// Ports from the first to the last.
    Ports(Over, Bind, u16, u16),
    Name(NameKind, String),
}

impl Address {
    /// The number of ports after the first.
    pub(super) const fn width(&self) -> u16 {
        match self.ports() {
            Some((first, last)) => last - first,
            None => 0,
        }
    }

    /// The first and the last port; `None` for a name.
    pub(super) const fn ports(&self) -> Option<(u16, u16)> {
        match self.place {
            Resource::Ports(_, _, first, last) => Some((first, last)),
            Resource::Name(..) => None,
        }
    }
}

/// Decodes `public`. An entry with a problem becomes `None`.
pub(super) fn entries(s: &Section<'_>) -> Vec<Option<Address>> {
    let items = s.one_or_list("public");
    if items.is_empty() {
        s.missing(
            "public",
            "where visitors come: tcp://:10022, tcp://:0 for any port, udp://:5353, or \
             http://app.example.com",
        );
    }
    if items.len() > ADDRESSES_MAX {
        s.bad("public", BadValue::new(format!("more than {ADDRESSES_MAX} addresses")));
        return Vec::new();
    }
    let read = |item: Item| {
        let place = s.cx.value(&item, place)?;
        Some(Address { item, place })
    };
    let entries: Vec<_> = items.into_iter().map(read).collect();
    let is_name = |entry: &Address| matches!(entry.place, Resource::Name(..));
    if let Some(name) = entries.iter().flatten().find(|entry| is_name(entry))
        && entries.iter().flatten().any(|entry| entry.width() > 0)
    {
        let bad = BadValue::new("a name beside a range of ports");
        s.cx.problem(name.item.at(), &name.item.path, bad.hint("make it a service of its own"));
        return entries.into_iter().map(|_| None).collect();
    }
    entries
}

fn place(text: &str) -> Result<Resource, BadValue> {
    if let Some(name) = public_name(text) {
        return name.map(|(kind, host)| Resource::Name(kind, host));
    }
    if unix(text).is_some() {
        return Err(BadValue::new("a service cannot be published at a Unix socket of the server")
            .hint("tcp://127.0.0.1:10022 is for programs on the server alone"));
    }
    let Ports { kind, host, first, last } = Ports::parse(text, Role::Public)?;
    let over = if kind == Some(Kind::Udp) { Over::Udp } else { Over::Tcp };
    let bind = match host {
        None => Bind::Public,
        Some(Host::Ip(ip)) => Bind::Ip(ip),
        Some(Host::Scoped(_)) => return Err(no_zone(text, NO_ZONE)),
        Some(Host::Name(name)) => {
            return Err(BadValue::new(format!("`{name}` is not an address of the server"))
                .hint(format!("{over}://:{first} binds the server's public_bind")));
        }
    };
    if last - first >= RANGE_MAX {
        return Err(BadValue::new(format!("a range of more than {RANGE_MAX} ports")));
    }
    Ok(Resource::Ports(over, bind, first, last))
}

/// Records and returns all addresses of a service at these servers, for the requests below `path`.
/// `None` if there is no address or an entry has a problem.
pub(super) fn publish(
    s: &Section<'_>,
    entries: &[Option<Address>],
    (path, servers): (Option<&str>, &[String]),
    seen: &mut Published,
) -> Option<Vec<Public>> {
    let mut all = Vec::new();
    for Address { item, place } in entries.iter().flatten() {
        let bad = match place {
            Resource::Ports(over, bind, first, last) => {
                for port in *first..=*last {
                    if seen.count > PUBLISHED_MAX {
                        return None;
                    }
                    seen.count += 1;
                    if let Some(clash) = seen.places.take(servers, (*over, *bind, port)) {
                        // Reported once per entry: the other ports of a range would repeat the same
                        // message.
                        s.cx.problem(item.at(), &item.path, clashing(*over, *bind, port, clash));
                        break;
                    }
                    let bind = match bind {
                        Bind::Public => None,
                        Bind::Ip(ip) => Some(*ip),
                    };
                    all.push(Public::of_port(*over, bind, port));
                }
                continue;
            }
            Resource::Name(kind, host) => {
                seen.count += 1;
                let name = Public::Name { kind: *kind, host: host.clone() };
                let is_free = seen.places.take_name(servers, (*kind, host), path);
                let bad = (!is_free).then(|| twice(&name));
                all.push(name);
                bad
            }
        };
        if let Some(bad) = bad {
            s.cx.problem(item.at(), &item.path, bad);
        }
    }
    let complete = !entries.is_empty() && entries.iter().all(Option::is_some);
    complete.then_some(all)
}

fn clashing(over: Over, bind: Bind, port: u16, clash: Clash) -> BadValue {
    let here = bind.url(over, port);
    match clash {
        Clash::Same => BadValue::new(format!("{here} is published twice")).hint("keep one of them"),
        Clash::Covers(other) => {
            BadValue::new(format!("{here} and {} overlap", other.url(over, port)))
                .hint("keep the wider one, or name each address")
        }
    }
}

/// Groups ports, because the same port on several addresses, or of both protocols, is one service.
pub(super) fn ports(all: &[Public]) -> BTreeMap<u16, Vec<Public>> {
    let mut ports = BTreeMap::<u16, Vec<Public>>::new();
    for public in all {
        match public {
            Public::Tcp { port, .. } | Public::Udp { port, .. } => {
                ports.entry(*port).or_default().push(public.clone())
            }
            Public::Name { .. } => {}
        }
    }
    ports
}
