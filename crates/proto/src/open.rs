//! The content of an OPEN frame.

use std::fmt;
use std::net::SocketAddr;

use crate::greeting::Name;
use crate::{LinkId, Measure};

/// Priority class of a service: a higher class is sent first, streams within a class are served
/// round robin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Before all others: shells, games.
    Interactive,
    /// The default.
    #[default]
    Normal,
    /// When nothing else waits: backups.
    Bulk,
}

/// The target to which the far end connects the stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A service that the far end published; its name.
    Service(String),
    /// A target that the far end dials: `tcp://host:port`, `udp://host:port` (a flow), or
    /// `unix:///path` (`unix://@name`) as [`crate::UnixAddr`] reads it.
    Forward(String),
    /// As [`Target::Forward`], but the far end reports when it has connected to the target: its
    /// first byte is a 0 that the target did not send. A far end without
    /// [`Features::FLOWS`](crate::greeting::Features::FLOWS) refuses it.
    Reported(String),
    /// As [`Target::Service`], of a service with several targets. The far end reports which target
    /// it has connected to: its first 8 bytes are the mark of the target, which the target did not
    /// send. Only a client whose service is configured so
    /// ([`Sticky::Target`](crate::Sticky::Target)) can read it.
    Marked {
        /// The name of the service.
        service: String,
        /// The mark of the preferred target, used if that target is available; `0`: any.
        mark: u64,
    },
    /// A measurement: the far end itself is the target.
    Measure(Measure),
    /// A private service. The stream carries a link between two clients, which the server joins. A
    /// far end without [`Features::PRIVATE`](crate::greeting::Features::PRIVATE) cannot read it.
    Private {
        /// The other client: towards the server, the client that has the service; towards that
        /// client, the visitor.
        client: Name,
        /// The name of the service.
        service: Name,
    },
    /// As [`Target::Reported`], with the right of a detour instead of the right of a forward: the
    /// stream carries a link of the client with another server. A far end without
    /// [`Features::DETOURS`](crate::greeting::Features::DETOURS) cannot read it.
    Detour(String),
    /// A service of a client that has a link with the far end. Both ends are nodes of one cluster;
    /// a far end without [`Features::NODES`](crate::greeting::Features::NODES) cannot read it.
    Hop(Hop),
    /// A question to the far end. Both ends are nodes of one cluster, as for a [`Target::Hop`].
    Ask(NodeQuestion),
}

/// A question of a node to another node of its cluster. The far end sends the answer in the stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeQuestion {
    /// The complete services at the resource that a client holds by this claim: a
    /// [`Register`](crate::control::Register), or nothing if the far end has no such claim.
    Terms {
        /// The client.
        client: Name,
        /// The number of the claim, as in [`Hop::claim`].
        claim: u64,
    },
    /// No question: an enrolled client has changed, and the far end reads it again. The answer has
    /// no bytes.
    Changed(Name),
    /// No question: the stream is a carrier that a client has dialled to the opener, and whose link
    /// the far end has. A [`PassedGreeting`](crate::greeting::PassedGreeting) precedes the bytes of
    /// the client. A far end without the link refuses the stream.
    Carrier {
        /// The client, which the opener has authenticated.
        client: Name,
        /// The link.
        link: LinkId,
    },
}

/// The last part of the way of a visitor's stream in a cluster: from the node that the visitor
/// reached to a node that has a link of the client, which passes the stream on to no other node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The client.
    pub client: Name,
    /// The number of the process of the client that the opener has found.
    pub instance: u64,
    /// The number of the record by which the opener has found the process; 0 if there was none.
    pub generation: u64,
    /// The name of the service.
    pub service: Name,
    /// The number of the claim whose terms the opener has applied to the visitor, which all nodes
    /// compute alike; 0: no claim, as of a private service.
    pub claim: u64,
    /// As in [`Target::Marked`]: the client reports the mark of its target. `None`: it does not.
    pub mark: Option<u64>,
    /// Of a private service: the client that visits it, which has logged in at the opener.
    pub visitor: Option<Name>,
}

/// What a load balancer reports about a visitor in addition to the addresses: the fields (TLVs) of
/// a header of the PROXY protocol, version 2 (haproxy's `proxy-protocol.txt`, section 2.2), in the
/// form of the header: `kind u8 | length u16 | value`.
#[derive(Clone, PartialEq, Eq)]
pub struct VisitorFields(Box<[u8]>);

impl VisitorFields {
    /// Maximum length of all fields with their headers, in bytes. An OPEN with the longest target
    /// has room for them below [`MAX_OPEN`](crate::MAX_OPEN), and fields about a visitor's TLS have
    /// a few hundred bytes.
    pub const MAX: usize = 512;

    /// Checks encoded fields. `None`: there is no field, the fields exceed [`VisitorFields::MAX`]
    /// bytes, or a field exceeds the remaining bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > Self::MAX {
            return None;
        }
        let mut rest = bytes;
        while let [_, high, low, behind @ ..] = rest {
            rest = behind.get(usize::from(u16::from_be_bytes([*high, *low]))..)?;
        }
        rest.is_empty().then(|| Self(bytes.into()))
    }

    /// The bytes of the fields, 3 to [`VisitorFields::MAX`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for VisitorFields {
    /// Shows only the number of bytes: the fields may have the certificate name of a visitor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisitorFields({} bytes)", self.0.len())
    }
}

/// The content of an OPEN frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The target of the stream.
    pub target: Target,
    /// The visitor's address, for logs and limits of the far end. `None` for visitors over a Unix
    /// socket, which have no address.
    pub visitor: Option<SocketAddr>,
    /// The stream's class in both directions.
    pub priority: Priority,
    /// What a load balancer in front of the opener reports about the visitor, for the target. A far
    /// end of an earlier version ignores the fields.
    pub fields: Option<VisitorFields>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_whole_and_bounded() {
        let field =
            |length: u16| [&[0xe0][..], &length.to_be_bytes(), &vec![7; length.into()]].concat();
        for whole in [field(0), field(1), field(509), [field(3), field(0)].concat()] {
            let fields = VisitorFields::new(&whole).unwrap();
            assert_eq!(fields.bytes(), whole);
            assert_eq!(format!("{fields:?}"), format!("VisitorFields({} bytes)", whole.len()));
        }
        assert_eq!(VisitorFields::new(&field(510)), None);
        let both = [field(2), field(4)].concat();
        for cut in (0..both.len()).filter(|cut| *cut != 5) {
            assert_eq!(VisitorFields::new(&both[..cut]), None, "{cut}");
        }
    }
}
