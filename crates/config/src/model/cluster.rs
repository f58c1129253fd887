//! `cluster`: the server is a node of one logical server.

use std::path::PathBuf;

use crate::key_table::KeyTable;
use crate::model::credentials::{KeyPair, Token};
use crate::model::path::{Path, PathTls};
use crate::{Endpoint, Secret};

/// The most addresses of a list of `cluster`: the record of a node has no more of each kind.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// The settings of a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(secret_file: "path, one or two", absent = "instead of `secret`", holds = TokenFile,
    text = "The file with the secret of the cluster; two files while the secret is replaced.")]
pub struct Cluster {
    /// The name of the cluster, the same at all its nodes.
    #[key("name", required)]
    pub name: String,
    /// The name of this node, which no other node of the cluster has.
    ///
    /// The certificate of the node has the name `node:NAME`. `None`: the name of the host.
    #[key("name", absent = "the host's name")]
    pub node: Option<String>,
    /// The failure domain of this node: a site, a rack, a power supply.
    ///
    /// The links of a client go to nodes of different zones, if there are several.
    #[key("name", none)]
    pub zone: Option<String>,
    /// The secret of the cluster, the same at all its nodes; two while it is replaced.
    ///
    /// With it the nodes share certificates, session tickets of TLS and cookies of `sticky`: what
    /// they keep in etcd is sealed with the first secret, and read with both. If empty, each node
    /// has its own.
    #[key("text, one or two", name = "secret", absent = "each node orders its own certificates",
        holds = Token)]
    pub secrets: Vec<Token>,
    /// The links between the nodes.
    #[key(map, required)]
    pub peers: ClusterPeers,
    /// The store that all nodes share.
    #[key(map, required, holds = Url)]
    pub directory: ClusterDirectory,
    /// The largest number of published ports of the cluster: each node listens at all of them.
    #[key(
        "number, 1-131070",
        default = "10000",
        note = "each port takes a descriptor of each node"
    )]
    pub ports_max: u32,
    /// Whether this node lets clients go to emptier nodes, as after the start of a node.
    ///
    /// If `false`, clients come to a node that starts when they log in again, or when another node
    /// stops.
    #[key("`true`, `false`", default = "true")]
    pub rebalance: bool,
    /// The addresses at which clients reach this node, and no other node.
    ///
    /// Nodes name these addresses to clients. Without them a client finds a node by the address
    /// that all nodes have in common.
    #[key("URL, one or list, at most 16", none)]
    pub clients: Vec<Endpoint>,
}

/// The links of a node to other nodes.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(ca: "path", absent = "required, except with `tcp://` alone", holds = KeyFile,
    text = "The file of the authorities that sign the certificates of the nodes.")]
#[row(cert: "path", absent = "required, except with `tcp://` alone", holds = KeyFile,
    text = "The file of the certificate that this node presents to other nodes.")]
#[row(key: "path", absent = "required, except with `tcp://` alone", holds = KeyFile,
    text = "The file of the private key of the certificate of this node.")]
pub struct ClusterPeers {
    /// The addresses at which this node listens for other nodes: `quic://`, `tls://`, `tcp://`.
    ///
    /// At least one; all different. `tcp://` needs `cluster.secret` and encrypts nothing: for a
    /// private network alone. A node with another address is not dialled by `tcp://`.
    #[key("URL, one or list, at most 16", required, holds = Url)]
    pub listen: Vec<Endpoint>,
    /// The authorities of the cluster, and the certificate of this node. `None`: the node has no
    /// certificate, and all its addresses are those of `tcp://`.
    pub tls: Option<NodeTls>,
    /// The addresses at which other nodes reach this node, the preferred address first.
    #[key("URL, one or list, at most 16", absent = "`listen`, where it names an address and a port",
        holds = Url)]
    pub advertise: Vec<Endpoint>,
}

/// What the nodes of a cluster show each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTls {
    /// The file of the authorities that sign the certificates of the nodes.
    pub ca: PathBuf,
    /// The certificate of this node: its first DNS name, or else its common name, is `node:NAME`.
    pub identity: KeyPair,
}

/// The store that all nodes of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows)]
#[row(etcd: "URL, one or list, at most 16", required, holds = Url,
    text = "The URLs of the members of etcd, at the port for clients.")]
#[row(tls: map, keys = PathTls, of = "of etcd", absent = "authorities of the system",
    text = "Certificates and TLS version of connections to etcd.")]
#[row(user: "text", none, text = "The user as which the node logs in to etcd.")]
#[row(password_file: "path", none, holds = TokenFile,
    text = "The file with the password of `cluster.directory.user`.")]
pub struct ClusterDirectory {
    /// The paths to the members. Their scheme is `wss` for `https`, and `ws` for `http`.
    pub members: Vec<Path>,
    /// The user of etcd; `None`: etcd asks for no user.
    pub log_in: Option<EtcdUser>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: Secret,
}

impl ClusterDirectory {
    /// The URLs of the members, with scheme, host and port.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.members.iter().map(|path| {
            let Endpoint { scheme, host, port, .. } = &path.endpoint;
            let scheme = if scheme.tls { "https" } else { "http" };
            format!("{scheme}://{host}:{port}")
        })
    }
}

impl Cluster {
    /// A summary, line by line.
    pub(crate) fn summary(&self) -> impl Iterator<Item = String> {
        let Self { name, node, zone, secrets, peers, directory, .. } = self;
        let node = node.as_ref().map_or_else(|| "the host's name".to_owned(), |node| node.clone());
        let zone = zone.iter().map(|zone| format!(" in zone {zone}")).collect::<String>();
        let etcd: Vec<_> = directory.urls().collect();
        let node = format!("node {node}{zone} of cluster {name}; etcd at {}", etcd.join(", "));
        let listen = peers.listen.iter().map(|at| format!("listen {at} for other nodes"));
        let alone = "no cluster.secret: certificates by ACME, session tickets and cookies of \
                     `sticky` are not shared with other nodes";
        let alone = secrets.is_empty().then(|| alone.to_owned());
        std::iter::once(node).chain(listen).chain(alone)
    }
}
