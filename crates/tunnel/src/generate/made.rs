//! The results of `generate certs`.

use tls::{HostName, Issued};

/// The issued certificates.
#[derive(Debug)]
pub(super) struct Made {
    /// The authority, if it is new.
    pub(super) authority: Option<Issued>,
    /// The last day of the authority.
    pub(super) ends: String,
    pub(super) server: Option<(Vec<HostName>, Issued)>,
    pub(super) clients: Vec<(String, Issued)>,
    /// The nodes of a cluster.
    pub(super) nodes: Vec<(String, Issued)>,
    /// The members of etcd.
    pub(super) etcd: Option<(Vec<HostName>, Issued)>,
}

/// The name of the files of a node, without their endings.
pub(super) fn file_of_node(name: &str) -> String {
    format!("node-{name}")
}
