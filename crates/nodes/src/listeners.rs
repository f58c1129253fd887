//! The ports at which other nodes reach this node.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use cluster::names::NodeId;
use cluster::record::PeerAddress;
use config::{Common, Endpoint};
use families::Bound;
use families::nodes::{NodeCertificates, NodeTransports, is_plain, with_port};
use proto::greeting::{Name, NodeKey};

use crate::keys::PlainKeys;
use crate::names::{certificate_name, greeting_name};
use crate::outgoing::in_order;

/// The settings of the links between nodes, as the configuration has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// The addresses at which this node accepts other nodes: `quic://`, `tls://`, and `tcp://` with
    /// keys.
    pub listen: Vec<Endpoint>,
    /// The addresses by which other nodes reach this node. Empty: those of `listen`.
    pub advertise: Vec<Endpoint>,
    /// The certificates of this node; `None`: it speaks `tcp://` alone.
    pub tls: Option<PeerFiles>,
    /// The keys by which nodes prove their names over `tcp://`: the first one is used, and all are
    /// accepted. At most two.
    pub keys: Vec<NodeKey>,
}

/// The files of the certificate of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFiles {
    /// The file of the authority of all nodes.
    pub ca: PathBuf,
    /// The file of the certificate of this node.
    pub cert: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

/// Bound ports, which accept nobody yet, and the certificates of this node.
#[derive(Debug)]
pub struct NodeListeners {
    pub(crate) own: NodeId,
    pub(crate) name: Name,
    pub(crate) transports: NodeTransports,
    pub(crate) common: Common,
    pub(crate) bound: Vec<Bound>,
    pub(crate) keys: PlainKeys,
    addresses: Vec<Endpoint>,
}

impl NodeListeners {
    /// Reads the certificates and binds the ports, with one socket for each worker. `state` is the
    /// directory in which keys are kept for the next process.
    ///
    /// # Errors
    /// The name of the node cannot be that of a certificate, a file is not usable, the certificate
    /// is not that of this node, a port is taken, there is `tcp://` without a key, or nothing says
    /// how other nodes reach this node.
    pub fn bind(
        own: &NodeId,
        settings: &PeerSettings,
        common: &Common,
        state: Option<&Path>,
        workers: usize,
    ) -> anyhow::Result<Self> {
        let name = greeting_name(own).with_context(|| format!("node {own}"))?;
        let files = settings.tls.as_ref();
        let read = files.map(|files| certificates(own, files)).transpose()?;
        let transports = NodeTransports::new(read);
        if let Some(at) = settings.listen.iter().find(|at| is_plain(at))
            && settings.keys.is_empty()
        {
            bail!(
                "{at}: nodes prove their names over tcp:// by `cluster.secret`, which is not set"
            );
        }
        // A node that accepts nothing in the clear sends nothing in the clear either.
        let is_used = settings.listen.iter().any(is_plain);
        let keys = if is_used { PlainKeys::new(&settings.keys) } else { PlainKeys::default() };
        let bind = |at| transports.bind(at, common, state, workers);
        let bound = families::all_bound(settings.listen.iter().map(bind))?;
        let mut addresses = settings.advertise.clone();
        if addresses.is_empty() {
            let at = settings.listen.iter().zip(&bound);
            addresses = at.map(|(at, bound)| with_port(at, bound.address)).collect();
        }
        ensure!(!addresses.is_empty(), "node {own}: no address for other nodes");
        let wildcard =
            addresses.iter().find(|at| at.host.ip().is_some_and(|ip| ip.is_unspecified()));
        if let Some(at) = wildcard {
            bail!("{at} is no address that other nodes can dial; name one by `advertise`");
        }
        let (own, common) = (own.clone(), common.clone());
        Ok(Self { own, name, transports, common, bound, keys, addresses })
    }

    /// The addresses for the record of this node.
    #[must_use]
    pub fn addresses(&self) -> Vec<PeerAddress> {
        let all = self.addresses.iter();
        let all = all.map(|at| PeerAddress { url: at.to_string(), pin: None });
        in_order(&all.collect::<Vec<_>>())
    }
}

/// Reads the certificates of this node.
pub(crate) fn certificates(own: &NodeId, files: &PeerFiles) -> anyhow::Result<NodeCertificates> {
    let PeerFiles { ca, cert, key } = files;
    let read = NodeCertificates::load(ca, cert, key)?;
    let wanted = certificate_name(own);
    if let Err(fault) = read.verify_own(&wanted) {
        bail!(
            "{}: other nodes refuse this node: {fault}; it must be a client certificate of the \
             authority in {} with the name `{wanted}`, as `tunnel generate certs --node {own}` makes \
             it",
            cert.display(),
            ca.display()
        );
    }
    Ok(read)
}
