//! The words of the directory: resources, owners, and the numbers by which they are compared.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use config::Over;

use node::names::Space;

/// The addresses at which a public port listens, as the configuration names them. All servers of a
/// directory have the same classes, and each server has its own addresses for a class.
///
/// All addresses of a server (`[::]`) and a single address are two classes: the kernel decides
/// whether the same port can be open at both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// The addresses of `public_bind`.
    Public,
    /// An address that a client named.
    Named(IpAddr),
}

impl Class {
    /// The class of an address at a server with this `public_bind`.
    pub(crate) fn of(address: IpAddr, public_bind: IpAddr) -> Self {
        if address == public_bind { Self::Public } else { Self::Named(address) }
    }

    /// The address of this server, which has this `public_bind`, at which a port of the class
    /// listens.
    pub(crate) const fn address(self, public_bind: IpAddr) -> IpAddr {
        match self {
            Self::Public => public_bind,
            Self::Named(address) => address,
        }
    }

    /// The address at which this port of the class listens.
    pub(crate) const fn at(self, public_bind: IpAddr, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(public_bind), port)
    }
}

/// A port of a protocol, at the addresses of a class.
pub(crate) type Port = (Over, Class, u16);

/// A resource that one client at a time may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A port of this protocol. A TCP port and the UDP port of the same number are two resources.
    Port(Over, Class, u16),
    /// A name in this space.
    Name(Space, Arc<str>),
}

impl Key {
    /// The port at which visitors connect; `None` for a name.
    pub(crate) const fn port(&self) -> Option<Port> {
        match self {
            Self::Port(over, class, port) => Some((*over, *class, *port)),
            Self::Name(..) => None,
        }
    }
}

impl fmt::Display for Key {
    /// The resource for a person: `tcp://:22`, `udp://192.0.2.1:53`, `http://app.example.com`. TLS
    /// of a host in the space of TLS ends here or passes through.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(over, Class::Public, port) => write!(f, "{over}://:{port}"),
            Self::Port(over, Class::Named(address), port) => {
                write!(f, "{over}://{}", SocketAddr::new(*address, *port))
            }
            Self::Name(Space::Http, name) => write!(f, "http://{name}"),
            Self::Name(Space::Tls, name) => write!(f, "tls://{name}"),
        }
    }
}

/// The number of a claim. A directory counts its claims, or its batches of claims, so of two claims
/// of a resource the later claim has the higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

/// The number of a version of a blob, or of another topic of the directory. Versions are counted
/// from 1; 0 is the version of a blob that was never stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Revision(pub(crate) u64);

/// The number of a start of another server: the directory counts the starts of all its servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeEpoch(pub(crate) u64);

impl NodeEpoch {
    /// This server. Its number may change while it runs, and only the directory needs it.
    pub(crate) const HERE: Self = Self(0);
}

/// The holder of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// The name of the client.
    pub(crate) client: Arc<str>,
    /// The process of the client: the id of its session at this server, or the number that the
    /// directory has for a process at another server. Of two processes of a client at this server,
    /// the process that logged in later has the higher id.
    pub(crate) process: u64,
    /// The server at which the process has logged in.
    pub(crate) node: NodeEpoch,
}

/// A resource that an owner asks for.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRequest {
    /// The resource.
    pub(crate) key: Key,
    /// The holder from now on.
    pub(crate) owner: Owner,
    /// The claim that the new claim replaces, if it is still the latest claim of the resource.
    /// `None`: the resource must be free.
    pub(crate) expected: Option<Generation>,
    /// What other servers need to know of the services at the resource.
    pub(crate) about: Arc<str>,
}

/// The answer to a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The owner holds the resource, by the claim of this number.
    Held(Generation),
    /// An owner holds the resource by another claim. The owner may be the owner that asked.
    Taken {
        /// The holder.
        by: Owner,
        /// Its claim.
        generation: Generation,
    },
    /// The directory does not answer: it is not known who holds the resource. [`Local`] always
    /// answers.
    ///
    /// [`Local`]: super::Local
    Away,
}

/// The directory does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away;

/// A claim that its holder does not need any more.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// The resource.
    pub(crate) key: Key,
    /// The claim. A newer claim of the resource stays.
    pub(crate) generation: Generation,
}

/// Whose whereabouts are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "each client of a single server is at this server")
)]
pub(crate) enum Subject {
    /// A client.
    Client(Arc<str>),
    /// The holder of a resource.
    Key(Key),
}

/// Where a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// The processes of the client that hold a resource, or the holder of the resource. The process
    /// with the latest claim is first.
    pub(crate) owners: Vec<Owner>,
    /// The latest claim of these owners.
    pub(crate) generation: Generation,
}

/// A text that all servers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BlobName {
    /// The ports that servers have chosen for services.
    Ports,
}

/// A version of a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blob {
    /// Its number.
    pub(crate) revision: Revision,
    /// Its content.
    pub(crate) bytes: Bytes,
}

/// The answer to a new version of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The version is stored, with this number.
    Done(Revision),
    /// Another version has been stored meanwhile.
    Changed,
    /// The directory does not answer: it is not known whether the version is stored.
    #[cfg_attr(not(test), expect(dead_code, reason = "the directory of one server is in memory"))]
    Away,
}

/// Whatever a directory can report as changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// The directory answers again.
    Answers,
    /// A blob has a new version.
    Blob(BlobName),
}
