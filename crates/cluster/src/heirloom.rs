//! What a process of a node leaves to the next process of the node, which has its sockets: the
//! lease, the epoch, and what the records of the epoch say. So the epoch goes on, no claim moves,
//! and the other nodes notice nothing.
//!
//! The next process may be of another version, so the form is that of the records: compact JSON
//! with a version, whose keys are texts as in the engine. A next process that cannot read it joins
//! anew.

use serde::{Deserialize, Serialize};

use crate::engine::{Lease, Revision};
use crate::keys::{Keyspace, RecordPlace};
use crate::names::{ClientName, Generation, Instance, Key, NodeEpoch, NodeId};
use crate::record::{At, Holder};

/// The version of this form.
const VERSION: u32 = 1;

/// What a process of a node leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heirloom {
    v: u32,
    /// The name of the cluster.
    pub cluster: String,
    /// The node.
    pub node: NodeId,
    /// The lease of the epoch.
    pub lease: u64,
    /// The epoch.
    pub epoch: NodeEpoch,
    /// The number of the life of the store, and the change that wrote it.
    pub life: (u64, u64),
    /// The number of the last batch of the epoch, and the change that wrote it.
    pub batch: (u64, u64),
    /// The highest revision of any answer.
    pub revision: u64,
    /// The resources of clients.
    pub claims: Vec<LeftClaim>,
    /// The resources that nobody needs, and whose records are still there, by the numbers of the
    /// records. The number 0 says that the record may have other homes, and is read first.
    pub releases: Vec<(String, Generation)>,
    /// The clients whose records name this node.
    pub clients: Vec<LeftClient>,
}

/// A resource that the former process held for a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftClaim {
    /// The key in the engine.
    pub key: String,
    /// The client.
    pub client: ClientName,
    /// Its process.
    pub instance: Instance,
    /// The number of the claim.
    pub generation: Generation,
    /// [`Holding::fence`](crate::record::Holding::fence) of its record.
    pub fence: u64,
    /// The other homes of the process in its record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Holder>,
}

/// A client that was at the former process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftClient {
    /// The client.
    pub client: ClientName,
    /// The number of its record.
    pub generation: Generation,
    /// Its record.
    pub at: At,
}

/// The parts of an heirloom that are one value each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftEpoch {
    pub(crate) lease: Lease,
    pub(crate) epoch: NodeEpoch,
    pub(crate) life: (u64, Revision),
    pub(crate) batch: (u64, Revision),
    pub(crate) revision: Revision,
}

impl Heirloom {
    /// An heirloom without claims and clients.
    pub(crate) fn new(cluster: &str, node: &NodeId, of: LeftEpoch) -> Self {
        let LeftEpoch { lease, epoch, life, batch, revision } = of;
        Self {
            v: VERSION,
            cluster: cluster.to_owned(),
            node: node.clone(),
            lease: lease.0,
            epoch,
            life: (life.0, life.1.0),
            batch: (batch.0, batch.1.0),
            revision: revision.0,
            claims: Vec::new(),
            releases: Vec::new(),
            clients: Vec::new(),
        }
    }

    /// What the heirloom says of the epoch.
    pub(crate) const fn left_epoch(&self) -> LeftEpoch {
        LeftEpoch {
            lease: Lease(self.lease),
            epoch: self.epoch,
            life: (self.life.0, Revision(self.life.1)),
            batch: (self.batch.0, Revision(self.batch.1)),
            revision: Revision(self.revision),
        }
    }

    /// The heirloom as text.
    #[must_use]
    pub fn encode(&self) -> String {
        // Structs of numbers, texts and lists are always JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads an heirloom.
    ///
    /// # Errors
    /// The text is no heirloom, or one of another version.
    pub fn decode(text: &str) -> Result<Self, String> {
        let read: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if read.v != VERSION {
            return Err(format!("version {} of an heirloom, this program reads {VERSION}", read.v));
        }
        Ok(read)
    }

    /// The resources of clients: the claim of each, with the key as a value.
    pub fn resources(&self) -> impl Iterator<Item = (Key, &LeftClaim)> {
        let keys = Keyspace::new(&self.cluster);
        self.claims.iter().filter_map(move |left| Some((resource(&keys, &left.key)?, left)))
    }
}

/// The resource of a key.
pub(crate) fn resource(keys: &Keyspace, key: &str) -> Option<Key> {
    match keys.place(key.as_bytes())? {
        RecordPlace::Resource(key) => Some(key),
        RecordPlace::At(_)
        | RecordPlace::Batch(_)
        | RecordPlace::Blob(_)
        | RecordPlace::Former(..)
        | RecordPlace::Incarnation
        | RecordPlace::Node(_)
        | RecordPlace::Revoked(_) => None,
    }
}

/// The key of a resource as text.
pub(crate) fn key_text(keys: &Keyspace, key: &Key) -> String {
    let key = keys.of(&RecordPlace::Resource(key.clone()));
    String::from_utf8_lossy(&key).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Space;

    #[test]
    fn an_heirloom_reads_back_and_one_of_another_version_is_refused() {
        let node = NodeId::new("fra1").unwrap();
        let of = LeftEpoch {
            lease: Lease(u64::MAX),
            epoch: NodeEpoch(7),
            life: (9, Revision(3)),
            batch: (2, Revision(11)),
            revision: Revision(12),
        };
        let mut left = Heirloom::new("prod", &node, of);
        let keys = Keyspace::new("prod");
        let key = Key::Host(Space::Http, "app.example.com".into());
        let client = ClientName::new("home").unwrap();
        left.claims.push(LeftClaim {
            key: key_text(&keys, &key),
            client,
            instance: Instance(1),
            generation: Generation(5),
            fence: 3,
            also: Vec::new(),
        });
        let home = Holder { node: NodeId::new("nyc1").unwrap(), epoch: NodeEpoch(8) };
        left.claims.push(LeftClaim { also: vec![home], ..left.claims[0].clone() });
        let text = left.encode();
        assert_eq!(Heirloom::decode(&text).unwrap(), left);
        assert_eq!(left.resources().map(|(key, _)| key).collect::<Vec<_>>(), [key.clone(), key]);
        assert_eq!(text.matches("\"also\"").count(), 1, "{text}");
        for (wrong, reason) in [
            (text.replace("\"v\":1", "\"v\":2"), "version 2 of an heirloom"),
            (text.replace("\"lease\"", "\"other\""), "unknown field"),
            (String::new(), "EOF"),
        ] {
            let refused = Heirloom::decode(&wrong).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
