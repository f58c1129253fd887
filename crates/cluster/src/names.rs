//! The words of a cluster: nodes, clients, resources, and the numbers by which they are compared.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::Revision;

/// The most bytes of a name.
pub const NAME_BYTES: usize = 255;

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {NAME_BYTES} bytes and no control characters")]
pub struct NotAName;

/// A number that each node computes alike from these bytes: FNV-1a with 64 bits.
#[must_use]
pub fn hashed(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name.
            ///
            /// # Errors
            /// The text is empty, longer than [`NAME_BYTES`], or has a control character.
            pub fn new(text: &str) -> Result<Self, NotAName> {
                let fits = (1..=NAME_BYTES).contains(&text.len());
                if !fits || text.chars().any(char::is_control) {
                    return Err(NotAName);
                }
                Ok(Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAName;

            fn try_from(text: String) -> Result<Self, NotAName> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().into()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name! {
    /// The name of a node: one machine of the cluster.
    NodeId
}
name! {
    /// The name of a client.
    ClientName
}

/// A process of a client: a random number that the process has drawn at its start, so that all its
/// links, to whichever node, have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance(pub u64);

/// The number of a membership of a node: the change that created its record. It is never used
/// again, and whatever a node wrote in an epoch that has ended is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeEpoch(pub u64);

/// The number of a claim or of a version of a record: the change that wrote it. Of two claims of a
/// key the later claim has the higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation(pub u64);

impl Generation {
    /// The change itself.
    #[must_use]
    pub const fn revision(self) -> Revision {
        Revision(self.0)
    }
}

impl From<Revision> for Generation {
    fn from(revision: Revision) -> Self {
        Self(revision.0)
    }
}

/// The protocol of a public port. A TCP port and the UDP port of the same number are two resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The addresses at which a public port listens, as the configuration names them. All nodes have
/// the same classes, and each node has its own addresses for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The addresses of `public_bind`.
    Public,
    /// An address that a client named.
    Named(IpAddr),
}

/// Names within one space exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Found by the header of a request.
    Http,
    /// Found by the server name in a ClientHello.
    Tls,
}

/// Something that one node at a time does for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Duty {
    /// Orders certificates of published names.
    Acme,
}

/// A resource that one owner at a time may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A port of this protocol, at the addresses of a class.
    Port(PortProtocol, Class, u16),
    /// A host in this space: `app.example.com`, `*.example.com` or `*`, in lower case.
    Host(Space, Arc<str>),
    /// Something that one node at a time does for all. Its holder is a client by the name of the
    /// node.
    Duty(Duty),
}

/// The holder of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The name of the client.
    pub client: ClientName,
    /// The process of the client.
    pub instance: Instance,
    /// The node at which the process has logged in.
    pub node: NodeId,
    /// The epoch of that node in which it made the claim.
    pub epoch: NodeEpoch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_compute_the_same_number() {
        // Test vectors of FNV-1a with 64 bits.
        assert_eq!(hashed([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hashed(*b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_name_is_short_and_can_be_shown() {
        for good in ["a", "fra-1.example", "a/b c%", "\u{fc}ber"] {
            assert_eq!(ClientName::new(good).map(|name| name.to_string()).as_deref(), Ok(good));
        }
        let long = "a".repeat(NAME_BYTES + 1);
        for bad in ["", "a\nb", "\0", &long] {
            assert_eq!(NodeId::new(bad), Err(NotAName), "{bad:?}");
        }
        assert!(NodeId::new(&long[1..]).is_ok());
    }
}
