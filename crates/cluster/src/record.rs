//! The values of the records: compact JSON with a version, so that a person can read them with the
//! engine's own tools. A record that this version does not know is refused, never guessed at.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::keys::{self, RecordPlace};
use crate::names::{self, ClientName, Generation, Instance, Key, NodeEpoch, NodeId, Owner};

/// The versions of records that this program reads and writes.
pub const VERSIONS: Versions = Versions { min: 1, max: 1 };

/// The most bytes of a record. A record of homes has about 200.
pub const RECORD_BYTES: usize = 16 * 1024;

/// The most homes of a client, and of a resource.
pub const HOMES: usize = 4;

/// The most former processes that a record of homes names. A former process that the record does
/// not name any more would be taken for a newer process, so the number is larger than that of the
/// processes that anybody starts under one name at once.
pub const FORMERS: usize = 8;

/// The most addresses of either kind in the record of a node.
const ADDRESSES: usize = 16;

/// Why a value is no record.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    /// The value is larger than any record.
    #[error("a record has at most {RECORD_BYTES} bytes, this value has {0}")]
    Long(usize),
    /// The value is no JSON, or lacks a field, or has an unknown field.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The value has a version that this program does not read.
    #[error("version {0} of a record, this program reads {min} to {max}", min = VERSIONS.min, max = VERSIONS.max)]
    Version(u32),
    /// A list is longer than allowed.
    #[error("the field `{0}` has {1} entries, at most {2} are allowed")]
    Many(&'static str, usize, usize),
    /// The two bounds of versions are in the wrong order.
    #[error("the versions {min} to {max} are none", min = .0.min, max = .0.max)]
    Versions(Versions),
}

/// A range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}

impl Versions {
    /// The highest version of both ranges.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u32> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }
}

/// What any version of this program can read of the record of a node: the version of the program,
/// and the versions of records that the node reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct NodeProgram {
    /// The version of the program.
    pub program: Option<String>,
    /// The versions of records.
    pub versions: Option<Versions>,
}

impl NodeProgram {
    /// Reads what it can. A record of another version may have neither.
    #[must_use]
    pub fn of(value: &[u8]) -> Self {
        if value.len() > RECORD_BYTES {
            return Self::default();
        }
        serde_json::from_slice(value).unwrap_or_default()
    }
}

/// An address at which other nodes reach a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerAddress {
    /// The URL.
    pub url: String,
    /// The pin of its certificate.
    pub pin: Option<String>,
}

/// A living node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// A random number that the process of the node has drawn at its start.
    pub process: u64,
    /// The versions of records that the node reads.
    pub versions: Versions,
    /// Its addresses for other nodes.
    pub peers: Vec<PeerAddress>,
    /// Its addresses for clients, as URLs.
    pub clients: Vec<String>,
    /// The failure domain. Homes of a client are in different zones if there are several.
    pub zone: String,
    /// The version of the program.
    pub program: String,
    /// The node asks its clients to go.
    pub draining: bool,
    /// The number of its links of clients.
    pub links: u32,
    /// Marks of its secrets, of which the first one seals: nodes with the same secret have the same
    /// mark, and nobody can tell the secret by it. Empty without a secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<u64>,
}

/// A node at which a client has logged in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// The node.
    pub node: NodeId,
    /// Its epoch. In a later epoch the home is void.
    pub epoch: NodeEpoch,
    /// The number of links.
    pub links: u32,
}

/// Where a client is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// The process that is in charge.
    pub instance: Instance,
    /// The nodes at which it has logged in, the latest last.
    pub homes: Vec<Home>,
    /// The last change of the store that its node had seen when the process logged in first.
    pub since: Generation,
    /// The processes that were in charge before it, the latest last. They are superseded for as
    /// long as the record exists, and yield wherever they log in.
    pub former: Vec<Instance>,
}

/// A node that holds a resource for a process of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// Its epoch. In a later epoch it does not hold the resource.
    pub epoch: NodeEpoch,
}

/// Who has a resource: a process of a client, at each node at which it has registered the resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holding {
    /// The client.
    pub client: ClientName,
    /// Its process.
    pub instance: Instance,
    /// The node that claimed the resource for it.
    pub node: NodeId,
    /// The epoch of the node.
    pub epoch: NodeEpoch,
    /// What the node says about the service, as text that only servers read.
    pub about: String,
    /// The further homes of the process that hold the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Holder>,
}

impl Holding {
    /// The holder.
    #[must_use]
    pub fn owner(&self) -> Owner {
        let Self { client, instance, node, epoch, .. } = self.clone();
        Owner { client, instance, node, epoch }
    }

    /// All nodes that hold the resource, in the order of their claims.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        let first = Holder { node: self.node.clone(), epoch: self.epoch };
        std::iter::once(first).chain(self.also.iter().cloned()).collect()
    }

    /// The record without the holders of which `is_void` says that their epoch has ended. `None`:
    /// no holder is left.
    #[must_use]
    pub fn without(mut self, is_void: impl Fn(&Holder) -> bool) -> Option<Self> {
        let mut left = self.holders();
        left.retain(|holder| !is_void(holder));
        let mut left = left.into_iter();
        let Holder { node, epoch } = left.next()?;
        (self.node, self.epoch, self.also) = (node, epoch, left.collect());
        Some(self)
    }

    /// The epoch in which a node holds the resource; `None` if it does not.
    #[must_use]
    pub fn epoch_of(&self, node: &NodeId) -> Option<NodeEpoch> {
        if self.node == *node {
            return Some(self.epoch);
        }
        self.also.iter().find(|holder| holder.node == *node).map(|holder| holder.epoch)
    }

    /// Whether this process of the client has the resource.
    #[must_use]
    pub fn is_of(&self, client: &ClientName, instance: Instance) -> bool {
        self.client == *client && self.instance == instance
    }

    /// A number of the claim that all homes of the process compute alike, also when one of them
    /// does not know the latest number of the record: it stands for the resource, the process and
    /// what the record says of the services. It is not 0.
    #[must_use]
    pub fn fence(&self, key: &Key) -> u64 {
        fence(key, self.instance, &self.about)
    }
}

/// As [`Holding::fence`].
#[must_use]
pub fn fence(key: &Key, instance: Instance, about: &str) -> u64 {
    let key = keys::suffix(&RecordPlace::Resource(key.clone()));
    let bytes = key.bytes().chain([0]).chain(instance.0.to_be_bytes()).chain(about.bytes());
    names::hashed(bytes).max(1)
}

/// A record of a living node was replaced by another node. The note is beside the new record from
/// the same change on, and the former holder reads it with its next renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Former {
    /// The epoch of the former holder.
    pub epoch: NodeEpoch,
}

/// Which life of the store this is. A store that is restored from a copy goes on with numbers that
/// it had given before; the nodes that notice replace the incarnation, and every request that was
/// made for the former life fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incarnation {
    /// A random number.
    pub number: u64,
}

/// The last batch that a node has written in this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchMark {
    /// Its number in the epoch, from 1; 0 before the first.
    pub number: u64,
}

/// A client without rights: its links end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoked {}

/// A record with its version.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    #[serde(flatten)]
    record: T,
}

/// The version alone, which is read first.
#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// A value of the engine.
pub trait Record: Serialize + DeserializeOwned {
    /// Refuses what the types allow and no writer writes.
    ///
    /// # Errors
    /// A list is too long, or bounds are in the wrong order.
    fn check(&self) -> Result<(), BadRecord> {
        Ok(())
    }

    /// The value of the record, in the highest version that all nodes read.
    #[must_use]
    fn encode(&self) -> Bytes {
        let versioned = Versioned { v: VERSIONS.max, record: self };
        // Structs of numbers, texts and lists are always JSON.
        serde_json::to_vec(&versioned).unwrap_or_default().into()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// The value is no record of this kind, or has a version that this program does not read.
    fn decode(value: &[u8]) -> Result<Self, BadRecord> {
        if value.len() > RECORD_BYTES {
            return Err(BadRecord::Long(value.len()));
        }
        let VersionOnly { v } = serde_json::from_slice(value)?;
        if !(VERSIONS.min..=VERSIONS.max).contains(&v) {
            return Err(BadRecord::Version(v));
        }
        let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(value)?;
        fields.remove("v");
        let record = Self::deserialize(serde_json::Value::Object(fields))?;
        record.check()?;
        Ok(record)
    }
}

const fn at_most(field: &'static str, length: usize, most: usize) -> Result<(), BadRecord> {
    if length > most { Err(BadRecord::Many(field, length, most)) } else { Ok(()) }
}

impl Record for Described {
    fn check(&self) -> Result<(), BadRecord> {
        if self.versions.min > self.versions.max {
            return Err(BadRecord::Versions(self.versions));
        }
        at_most("peers", self.peers.len(), ADDRESSES)?;
        at_most("clients", self.clients.len(), ADDRESSES)
    }
}

impl Record for At {
    fn check(&self) -> Result<(), BadRecord> {
        at_most("homes", self.homes.len(), HOMES)?;
        at_most("former", self.former.len(), FORMERS)
    }
}

impl Record for Holding {
    fn check(&self) -> Result<(), BadRecord> {
        at_most("also", self.also.len(), HOMES - 1)
    }
}

impl Record for Former {}
impl Record for Incarnation {}
impl Record for BatchMark {}
impl Record for Revoked {}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn at() -> At {
        let home = Home { node: node("fra1"), epoch: NodeEpoch(u64::MAX), links: 2 };
        let (since, former) = (Generation(7), vec![Instance(1)]);
        At { instance: Instance(u64::MAX), homes: vec![home], since, former }
    }

    #[test]
    fn a_record_is_compact_json_that_reads_back() {
        let value = at().encode();
        let text = r#"{"v":1,"instance":18446744073709551615,"homes":[{"node":"fra1","epoch":18446744073709551615,"links":2}],"since":7,"former":[1]}"#;
        assert_eq!(value, text);
        assert_eq!(At::decode(&value).unwrap(), at());
        assert_eq!(Revoked::decode(&Revoked {}.encode()).unwrap(), Revoked {});
        let described = Described {
            process: 7,
            versions: VERSIONS,
            peers: vec![PeerAddress { url: "quic://192.0.2.1:7100".into(), pin: None }],
            clients: vec!["tls://192.0.2.1:7000".into()],
            zone: "fra".into(),
            program: "0.1.0".into(),
            draining: false,
            links: 0,
            secrets: Vec::new(),
        };
        assert_eq!(Described::decode(&described.encode()).unwrap(), described);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let refused = |value: &str| At::decode(value.as_bytes()).unwrap_err().to_string();
        let good = std::str::from_utf8(&at().encode()).unwrap().to_owned();
        for (value, reason) in [
            (String::new(), "EOF while parsing"),
            ("[]".into(), "invalid"),
            ("{}".into(), "missing field `v`"),
            (good.replace("\"v\":1", "\"v\":2"), "version 2 of a record"),
            (good.replace("\"v\":1", "\"v\":0"), "version 0 of a record"),
            (good.replace("\"former\"", "\"other\""), "unknown field `other`"),
            (good.replace(",\"former\":[1]", ""), "missing field `former`"),
            (good.replace("fra1", ""), "a name has 1 to 255 bytes"),
            (good.replace("[1]", "[1,2,3,4,5,6,7,8,9]"), "`former` has 9 entries"),
            (good.replace("\"links\":2", "\"links\":-2"), "invalid value"),
            (good.replace('}', &" ".repeat(RECORD_BYTES)), "a record has at most"),
        ] {
            assert!(refused(&value).contains(reason), "{value}: {}", refused(&value));
        }
        let mut many = holding();
        many.also = vec![many.also[0].clone(); HOMES];
        let why = Holding::decode(&many.encode()).unwrap_err().to_string();
        assert!(why.contains("`also` has 4 entries"), "{why}");
    }

    /// A resource with two homes.
    fn holding() -> Holding {
        Holding {
            client: ClientName::new("home").unwrap(),
            instance: Instance(7),
            node: node("fra1"),
            epoch: NodeEpoch(3),
            about: "a".into(),
            also: vec![Holder { node: node("nyc1"), epoch: NodeEpoch(5) }],
        }
    }

    #[test]
    fn a_resource_names_each_of_its_homes() {
        let two = holding();
        assert_eq!(Holding::decode(&two.encode()).unwrap(), two);
        let names: Vec<_> = two.holders().into_iter().map(|it| it.node.to_string()).collect();
        assert_eq!(names, ["fra1", "nyc1"]);
        let epoch_of = |name| two.epoch_of(&node(name));
        assert_eq!(epoch_of("fra1"), Some(NodeEpoch(3)));
        assert_eq!(epoch_of("nyc1"), Some(NodeEpoch(5)));
        assert_eq!(epoch_of("sin1"), None);
        let left = |dead: &[&str]| {
            let left = holding().without(|it| dead.contains(&it.node.as_str()));
            left.map(|it| it.holders().iter().map(|it| it.node.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(left(&["fra1"]).unwrap(), ["nyc1"]);
        assert_eq!(left(&["nyc1"]).unwrap(), ["fra1"]);
        assert_eq!(left(&["fra1", "nyc1"]), None);
        let alone = Holding { also: Vec::new(), ..holding() };
        assert!(!std::str::from_utf8(&alone.encode()).unwrap().contains("also"));
    }

    #[test]
    fn a_fence_is_that_of_a_resource_a_process_and_a_description() {
        let port = |port| Key::Port(names::PortProtocol::Tcp, names::Class::Public, port);
        let of = |number, instance, about| fence(&port(number), Instance(instance), about);
        let one = of(1, 7, "a");
        assert_eq!(
            one,
            Holding { epoch: NodeEpoch(9), also: Vec::new(), ..holding() }.fence(&port(1))
        );
        for other in [of(2, 7, "a"), of(1, 8, "a"), of(1, 7, "b")] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn nodes_write_the_highest_version_that_all_read() {
        let range = |min, max| Versions { min, max };
        assert_eq!(range(1, 2).common(range(2, 3)), Some(2));
        assert_eq!(range(1, 3).common(range(2, 3)), Some(3));
        assert_eq!(range(1, 1).common(range(2, 3)), None);
        assert_eq!(range(2, 3).common(range(1, 1)), None);
    }
}
