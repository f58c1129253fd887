//! Where each record lies in the engine.
//!
//! | key below `/tunnel/<cluster>/1/` | record | lease | read by |
//! |---|---|---|---|
//! | `account/<digest>` | [`Blob`](crate::blob::Blob): an account at a certificate authority, at a [`BlobPlace`] | - | the server |
//! | `at/<client>` | [`At`](crate::record::At): the homes of a client | - | look-ups |
//! | `batch/<node>` | [`BatchMark`](crate::record::BatchMark): the last batch of a node | the node's | its node, when an answer is lost |
//! | `cert/<domain>`, `challenge/<token>`, `client/<name>`, `code/<hash>`, `tickets/<number>` | [`Blob`](crate::blob::Blob): bytes of the server, each at a [`BlobPlace`] | none, or one of its own | the server |
//! | `duty/acme` | [`Holding`](crate::record::Holding): the node that orders certificates | - | look-ups |
//! | `former/<node>/<key>` | [`Former`](crate::record::Former): a record that the node has lost | - | its node, each renewal |
//! | `host/<http or tls>/<labels reversed>` | [`Holding`](crate::record::Holding): who publishes a name | - | look-ups |
//! | `incarnation` | [`Incarnation`](crate::record::Incarnation): which life of the store this is | - | followed by all |
//! | `node/<id>` | [`Described`](crate::record::Described): a living node | the node's | followed by all |
//! | `port/<tcp or udp>/<class>/<number>` | [`Holding`](crate::record::Holding): who publishes a port | - | followed by all |
//! | `revoked/<client>` | [`Revoked`](crate::record::Revoked): a client without rights | - | followed by all |
//!
//! The followed keys are neighbours in the order of the engine, and no other key is between them.
//! So one watch has all of them, in the order of their changes, and the renewals of the own node
//! prove that this watch is alive.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::Range;
use crate::names::{Class, ClientName, Duty, Key, NAME_BYTES, NodeId, PortProtocol, Space};

/// The version of the layout of keys, which is a part of each key.
const LAYOUT: &str = "1";

/// The keys of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keyspace {
    prefix: String,
}

/// Where the server keeps bytes that all nodes share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobPlace {
    /// The account at a certificate authority, by a digest of its directory.
    Account(Arc<str>),
    /// A certificate with its sealed key.
    Certificate(Arc<str>),
    /// The answer to a challenge of a certificate authority, by its token.
    Challenge(Arc<str>),
    /// Who may log in as a client, and what the client may do.
    Client(ClientName),
    /// A code that is taken once, by its hash.
    Code(Arc<str>),
    /// That a client has no rights, which all nodes follow. It has no bytes of the server.
    Revoked(ClientName),
    /// Keys of session tickets.
    Tickets(u32),
}

/// A table whose records can be read page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PagedTable {
    /// `account`: accounts at certificate authorities.
    Accounts,
    /// `cert`: certificates.
    Certificates,
    /// `challenge`: answers to challenges.
    Challenges,
    /// `at`: the homes of clients.
    Homes,
    /// `tickets`: keys of session tickets.
    Tickets,
}

impl PagedTable {
    /// The first part of the keys of the table.
    const fn part(self) -> &'static str {
        match self {
            Self::Accounts => "account",
            Self::Certificates => "cert",
            Self::Challenges => "challenge",
            Self::Homes => "at",
            Self::Tickets => "tickets",
        }
    }
}

impl BlobPlace {
    /// Whether the text of the place is short enough for a key.
    #[must_use]
    pub fn fits(&self) -> bool {
        match self {
            Self::Account(text)
            | Self::Certificate(text)
            | Self::Challenge(text)
            | Self::Code(text) => (1..=NAME_BYTES).contains(&text.len()),
            Self::Client(_) | Self::Revoked(_) | Self::Tickets(_) => true,
        }
    }

    /// The record at this place.
    #[must_use]
    pub fn record(&self) -> RecordPlace {
        match self {
            Self::Revoked(client) => RecordPlace::Revoked(client.clone()),
            Self::Account(_)
            | Self::Certificate(_)
            | Self::Challenge(_)
            | Self::Client(_)
            | Self::Code(_)
            | Self::Tickets(_) => RecordPlace::Blob(self.clone()),
        }
    }
}

/// Which record a key has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordPlace {
    /// The homes of a client.
    At(ClientName),
    /// The last batch of a node.
    Batch(NodeId),
    /// Bytes of the server, at [`BlobPlace::record`].
    Blob(BlobPlace),
    /// A record that this node has lost. The record is that of the place.
    Former(NodeId, Box<Self>),
    /// The holder of a resource.
    Resource(Key),
    /// The life of the store.
    Incarnation,
    /// A living node.
    Node(NodeId),
    /// A client without rights.
    Revoked(ClientName),
}

impl Keyspace {
    /// The keys of the cluster with this name.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self { prefix: format!("/tunnel/{}/{LAYOUT}/", escaped(cluster)) }
    }

    /// The key of a record.
    #[must_use]
    pub fn of(&self, place: &RecordPlace) -> Bytes {
        format!("{}{}", self.prefix, suffix(place)).into()
    }

    /// The record that a key has; `None` for a key of another cluster or of another version.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> Option<RecordPlace> {
        let key = std::str::from_utf8(key).ok()?;
        let place = parsed(key.strip_prefix(&self.prefix)?)?;
        // A second spelling of a key would be a second record.
        (suffix(&place).as_str() == &key[self.prefix.len()..]).then_some(place)
    }

    /// All followed records: life of the store, nodes, ports, revocations.
    #[must_use]
    pub fn followed(&self) -> Range {
        let from = self.of(&RecordPlace::Incarnation);
        Range { from, to: self.below("revoked").to, limit: 0 }
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> Range {
        self.below("node")
    }

    /// All records that a node has lost.
    #[must_use]
    pub fn formers_of(&self, node: &NodeId) -> Range {
        Range::below(&format!("{}former/{}/", self.prefix, escaped(node.as_str())).into())
    }

    /// The tables whose records name an epoch and hang on no lease.
    #[must_use]
    pub fn unleased(&self) -> [Range; 4] {
        ["at", "former", "host", "port"].map(|table| self.below(table))
    }

    /// The records of a table whose names begin with a text, in the order of their keys: at most
    /// `limit` records behind the record `after`. A record of another table is before all of them,
    /// or behind all of them.
    #[must_use]
    pub fn page(
        &self,
        table: PagedTable,
        begins: &str,
        after: Option<&RecordPlace>,
        limit: u32,
    ) -> Range {
        let prefix = format!("{}{}/{}", self.prefix, table.part(), escaped(begins));
        let mut range = Range { limit, ..Range::below(&prefix.into()) };
        if let Some(after) = after {
            // The first key behind a key.
            let next: Bytes = [&*self.of(after), &[0]].concat().into();
            range.from = range.from.max(next);
        }
        range
    }

    /// A table.
    fn below(&self, table: &str) -> Range {
        Range::below(&format!("{}{table}/", self.prefix).into())
    }
}

/// The key of a place without the prefix.
pub(crate) fn suffix(place: &RecordPlace) -> String {
    match place {
        RecordPlace::At(client) => format!("at/{}", escaped(client.as_str())),
        RecordPlace::Batch(node) => format!("batch/{}", escaped(node.as_str())),
        RecordPlace::Blob(place) => match place {
            BlobPlace::Account(digest) => format!("account/{}", escaped(digest)),
            BlobPlace::Certificate(domain) => format!("cert/{}", escaped(domain)),
            BlobPlace::Challenge(token) => format!("challenge/{}", escaped(token)),
            BlobPlace::Client(client) => format!("client/{}", escaped(client.as_str())),
            BlobPlace::Code(hash) => format!("code/{}", escaped(hash)),
            BlobPlace::Revoked(client) => format!("revoked/{}", escaped(client.as_str())),
            BlobPlace::Tickets(number) => format!("tickets/{number}"),
        },
        RecordPlace::Resource(Key::Duty(Duty::Acme)) => "duty/acme".into(),
        RecordPlace::Former(node, place) => {
            format!("former/{}/{}", escaped(node.as_str()), suffix(place))
        }
        RecordPlace::Resource(Key::Host(space, host)) => {
            let space = match space {
                Space::Http => "http",
                Space::Tls => "tls",
            };
            format!("host/{space}/{}", escaped(&reversed(host)))
        }
        RecordPlace::Resource(Key::Port(over, class, port)) => {
            let over = match over {
                PortProtocol::Tcp => "tcp",
                PortProtocol::Udp => "udp",
            };
            let class = match class {
                Class::Public => "public".into(),
                Class::Named(address) => address.to_string(),
            };
            format!("port/{over}/{class}/{port}")
        }
        RecordPlace::Incarnation => "incarnation".into(),
        RecordPlace::Node(node) => format!("node/{}", escaped(node.as_str())),
        RecordPlace::Revoked(client) => format!("revoked/{}", escaped(client.as_str())),
    }
}

/// The place of a key without the prefix. More than one spelling may be read.
pub(crate) fn parsed(suffix: &str) -> Option<RecordPlace> {
    if suffix == "incarnation" {
        return Some(RecordPlace::Incarnation);
    }
    let (table, rest) = suffix.split_once('/')?;
    match table {
        "account" => Some(RecordPlace::Blob(BlobPlace::Account(text(rest)?))),
        "at" => Some(RecordPlace::At(ClientName::new(&plain(rest)?).ok()?)),
        "batch" => Some(RecordPlace::Batch(NodeId::new(&plain(rest)?).ok()?)),
        "cert" => Some(RecordPlace::Blob(BlobPlace::Certificate(text(rest)?))),
        "challenge" => Some(RecordPlace::Blob(BlobPlace::Challenge(text(rest)?))),
        "client" => {
            let client = ClientName::new(&plain(rest)?).ok()?;
            Some(RecordPlace::Blob(BlobPlace::Client(client)))
        }
        "code" => Some(RecordPlace::Blob(BlobPlace::Code(text(rest)?))),
        "duty" => (rest == "acme").then_some(RecordPlace::Resource(Key::Duty(Duty::Acme))),
        "tickets" => Some(RecordPlace::Blob(BlobPlace::Tickets(rest.parse().ok()?))),
        "former" => {
            let (node, rest) = rest.split_once('/')?;
            // One level: a loss of a loss is not recorded.
            if rest.starts_with("former/") {
                return None;
            }
            Some(RecordPlace::Former(NodeId::new(&plain(node)?).ok()?, Box::new(parsed(rest)?)))
        }
        "host" => {
            let (space, host) = rest.split_once('/')?;
            let space = match space {
                "http" => Space::Http,
                "tls" => Space::Tls,
                _ => return None,
            };
            Some(RecordPlace::Resource(Key::Host(space, reversed(&plain(host)?).into())))
        }
        "node" => Some(RecordPlace::Node(NodeId::new(&plain(rest)?).ok()?)),
        "port" => {
            let mut parts = rest.splitn(3, '/');
            let over = match parts.next()? {
                "tcp" => PortProtocol::Tcp,
                "udp" => PortProtocol::Udp,
                _ => return None,
            };
            let class = match parts.next()? {
                "public" => Class::Public,
                address => Class::Named(address.parse().ok()?),
            };
            Some(RecordPlace::Resource(Key::Port(over, class, parts.next()?.parse().ok()?)))
        }
        "revoked" => Some(RecordPlace::Revoked(ClientName::new(&plain(rest)?).ok()?)),
        _ => None,
    }
}

/// The labels of a host in the opposite order, so that the hosts of a domain are neighbours.
fn reversed(host: &str) -> String {
    host.split('.').rev().collect::<Vec<_>>().join(".")
}

/// A text as one part of a key: `/`, `%` and each byte outside of printable ASCII is written as
/// `%` and two digits (RFC 3986 section 2.1).
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%') {
            part.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(part, "%{byte:02X}");
        }
    }
    part
}

/// The text of an [`escaped`] part that is not empty.
fn text(part: &str) -> Option<Arc<str>> {
    plain(part).filter(|text| !text.is_empty()).map(Into::into)
}

/// The text of an [`escaped`] part.
fn plain(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            b'/' => return None,
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv6Addr;

    use super::*;

    const NAMES: [&str; 9] =
        ["a", "A", "a/b", "a%2Fb", "a b", "..", "node", "\u{fc}ber.example", "a-._~:*"];

    fn places() -> Vec<RecordPlace> {
        let mut all = vec![RecordPlace::Incarnation];
        for name in NAMES {
            let (client, node) = (ClientName::new(name).unwrap(), NodeId::new(name).unwrap());
            all.extend([
                RecordPlace::At(client.clone()),
                RecordPlace::Batch(node.clone()),
                RecordPlace::Former(node.clone(), Box::new(RecordPlace::At(client.clone()))),
                RecordPlace::Former(node.clone(), Box::new(RecordPlace::Resource(port(1)))),
                RecordPlace::Node(node),
                RecordPlace::Revoked(client),
            ]);
        }
        for name in NAMES {
            let (text, client) = (Arc::from(name), ClientName::new(name).unwrap());
            all.extend(
                [
                    BlobPlace::Account(Arc::clone(&text)),
                    BlobPlace::Certificate(Arc::clone(&text)),
                    BlobPlace::Challenge(Arc::clone(&text)),
                    BlobPlace::Client(client),
                    BlobPlace::Code(text),
                ]
                .map(RecordPlace::Blob),
            );
        }
        all.extend([0, u32::MAX].map(BlobPlace::Tickets).map(RecordPlace::Blob));
        all.push(RecordPlace::Resource(Key::Duty(Duty::Acme)));
        for host in ["app.example.com", "*.example.com", "*", "com.example.app", "a%2e"] {
            all.extend(
                [Space::Http, Space::Tls]
                    .map(|space| Key::Host(space, host.into()))
                    .map(RecordPlace::Resource),
            );
        }
        let named = Class::Named(Ipv6Addr::LOCALHOST.into());
        all.extend([
            RecordPlace::Resource(port(1)),
            RecordPlace::Resource(port(65_535)),
            RecordPlace::Resource(Key::Port(PortProtocol::Udp, named, 1)),
        ]);
        all
    }

    const fn port(port: u16) -> Key {
        Key::Port(PortProtocol::Tcp, Class::Public, port)
    }

    #[test]
    fn each_place_has_a_key_of_its_own_that_reads_back() {
        let clusters = ["prod", "prod/1", "pro", "d"].map(Keyspace::new);
        let mut seen = BTreeSet::new();
        for keys in &clusters {
            for place in places() {
                let key = keys.of(&place);
                assert_eq!(keys.place(&key), Some(place), "{key:?}");
                assert!(seen.insert(key.clone()), "{key:?} has two places");
                for other in clusters.iter().filter(|other| *other != keys) {
                    assert_eq!(other.place(&key), None, "{key:?}");
                }
            }
        }
    }

    #[test]
    fn the_pages_of_a_table_have_each_record_once() {
        let keys = Keyspace::new("c");
        let at = |name: &str| RecordPlace::At(ClientName::new(name).unwrap());
        let has = |range: &Range, key: &Bytes| {
            range.from <= *key && range.to.as_ref().is_some_and(|to| key < to)
        };
        let all = keys.page(PagedTable::Homes, "", None, 7);
        assert_eq!(all.limit, 7);
        let of_table = places().into_iter().filter(|place| has(&all, &keys.of(place)));
        assert!(of_table.clone().all(|place| matches!(place, RecordPlace::At(_))));
        assert_eq!(of_table.count(), NAMES.len());
        let begins = keys.page(PagedTable::Homes, "a/", None, 7);
        let found: Vec<_> = NAMES.iter().filter(|name| has(&begins, &keys.of(&at(name)))).collect();
        assert_eq!(found, [&"a/b"]);
        // Behind a record are the records after it alone, and a page ends where its table ends.
        let behind = keys.page(PagedTable::Homes, "", Some(&at("a")), 7);
        assert_eq!(behind.to, all.to);
        for name in NAMES {
            let (key, first) = (keys.of(&at(name)), keys.of(&at("a")));
            assert_eq!(has(&behind, &key), key > first, "{name}");
        }
        let elsewhere = keys.page(PagedTable::Homes, "b", Some(&at("a")), 7);
        assert_eq!(elsewhere.from, keys.page(PagedTable::Homes, "b", None, 7).from);
        let past = keys.page(PagedTable::Homes, "a", Some(&at("b")), 7);
        assert!(!has(&past, &keys.of(&at("b"))) && past.from > past.to.unwrap_or_default());
    }

    #[test]
    fn a_key_with_another_spelling_is_no_key() {
        let keys = Keyspace::new("c");
        for bad in [
            "at/",
            "at/a/b",
            "at/%61",
            "at/%2f",
            "at/%",
            "at/%zz",
            "at/\n",
            "port/tcp/public/01",
            "port/tcp/public/65536",
            "port/tcp/127.0.0.01/1",
            "port/sctp/public/1",
            "host/a",
            "former/a/former/b/at/c",
            "former/a",
            "cert/",
            "code/a/b",
            "duty/other",
            "tickets/01",
            "tickets/4294967296",
            "node",
            "other/a",
            "incarnation/",
            "",
        ] {
            assert_eq!(keys.place(format!("/tunnel/c/1/{bad}").as_bytes()), None, "{bad}");
        }
        assert_eq!(keys.place(b"/tunnel/c/2/at/a"), None);
        assert_eq!(keys.place(b"/tunnel/c/1/at/\xff"), None);
    }

    #[test]
    fn the_followed_records_and_no_others_are_in_one_range() {
        let keys = Keyspace::new("c");
        let range = keys.followed();
        for place in places() {
            let key = keys.of(&place);
            let inside = key >= range.from && range.to.as_ref().is_some_and(|to| key < *to);
            let followed = match place {
                RecordPlace::Incarnation
                | RecordPlace::Node(_)
                | RecordPlace::Revoked(_)
                | RecordPlace::Resource(Key::Port(..)) => true,
                RecordPlace::At(_)
                | RecordPlace::Batch(_)
                | RecordPlace::Blob(_)
                | RecordPlace::Former(..)
                | RecordPlace::Resource(Key::Host(..) | Key::Duty(_)) => false,
            };
            assert_eq!(inside, followed, "{key:?}");
        }
    }

    #[test]
    fn the_hosts_of_a_domain_are_neighbours() {
        let keys = Keyspace::new("c");
        let key = |host: &str| keys.of(&RecordPlace::Resource(Key::Host(Space::Tls, host.into())));
        let mut hosts = ["b.org", "a.example.com", "z.org", "*.example.com", "b.example.com"];
        hosts.sort_by_key(|host| key(host));
        assert_eq!(hosts, ["*.example.com", "a.example.com", "b.example.com", "b.org", "z.org"]);
    }
}
