//! The paths to a node, from the addresses in its record.
//!
//! | the record has | this node dials |
//! |---|---|
//! | an address of `quic://` or `tls://` | these addresses alone, and proves its name by its certificate |
//! | addresses of `tcp://` alone | these, if it listens at `tcp://` itself, and proves its name by the secret of the cluster |
//!
//! So a node that has certificates is never dialled in the clear, and a node that was not set up
//! for `tcp://` sends nothing in the clear, whatever the records say.

use std::rc::Rc;

use anyhow::Context as _;
use cluster::names::NodeId;
use cluster::record::PeerAddress;
use config::Endpoint;
use families::nodes::{NodeTransports, is_plain};
use link::Path;
use node::session::Worker;
use proto::greeting::Identity;

use crate::names::{certificate_name, greeting_name};
use crate::shared::NodeShared;

/// The most addresses that are dialled: two networks, each by both transports, for IPv4 and IPv6.
const ADDRESSES: usize = 8;

/// The addresses in the order in which they are dialled: `quic://` first, because a lost packet
/// holds up one stream there instead of all, and `tcp://` last, so that the bound cuts off no
/// address with certificates.
pub(crate) fn in_order(addresses: &[PeerAddress]) -> Vec<PeerAddress> {
    let mut all = addresses.to_vec();
    all.sort_by_key(|at| (is_in_the_clear(at), !at.url.starts_with("quic://")));
    all.truncate(ADDRESSES);
    all
}

/// Whether an address is one of `tcp://`. An address that cannot be read is none.
fn is_in_the_clear(at: &PeerAddress) -> bool {
    at.url.parse().is_ok_and(|endpoint: Endpoint| is_plain(&endpoint))
}

/// The addresses that are dialled.
fn dialled(addresses: &[PeerAddress]) -> Vec<PeerAddress> {
    let mut all = in_order(addresses);
    if all.iter().any(|at| !is_in_the_clear(at)) {
        all.retain(|at| !is_in_the_clear(at));
    }
    all
}

/// The paths to a node, and how this node proves its name over them.
pub(super) struct NodePaths {
    pub(super) paths: Vec<Path>,
    pub(super) identity: Identity,
}

/// The paths of a link from this worker to a node.
///
/// # Errors
/// The record has no address that this node can dial, and why.
pub(super) fn paths(
    shared: &NodeShared,
    worker: &Rc<Worker>,
    node: &NodeId,
    addresses: &[PeerAddress],
) -> anyhow::Result<NodePaths> {
    let to = greeting_name(node).context("it cannot have a certificate")?;
    if addresses.is_empty() {
        anyhow::bail!("it has published no address for other nodes");
    }
    let addresses = dialled(addresses);
    let identity = if addresses.iter().all(is_in_the_clear) {
        let token = shared.keys.token(&shared.name, &to);
        Identity::Token(token.context(
            "it is reached by tcp:// alone, and this node does not listen for other nodes at tcp://",
        )?)
    } else {
        Identity::Certificate
    };
    let name = certificate_name(node);
    let mut problem = None;
    let mut paths = Vec::new();
    // Links with consecutive numbers reach different workers of the other node.
    let number = u8::try_from(worker.index % 256).unwrap_or(0);
    for at in addresses {
        match path(shared, &name, &at, number) {
            Ok(path) => paths.push(path),
            Err(error) => problem = Some(error),
        }
    }
    match problem {
        Some(problem) if paths.is_empty() => Err(problem),
        Some(_) | None => Ok(NodePaths { paths, identity }),
    }
}

fn path(shared: &NodeShared, name: &str, at: &PeerAddress, number: u8) -> anyhow::Result<Path> {
    // The text of a problem has the address.
    let endpoint: Endpoint = at.url.parse().map_err(|problem| anyhow::anyhow!("{problem:?}"))?;
    anyhow::ensure!(
        NodeTransports::is_usable(&endpoint),
        "it publishes {endpoint}, and nodes reach each other by quic://, tls:// and tcp:// alone"
    );
    let pin = at.pin.as_deref().map(str::parse).transpose();
    let pin = pin.with_context(|| format!("the pin of {endpoint} in its record"))?;
    shared.transports.path(&endpoint, (name, pin), &shared.common, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quic_comes_before_tls_and_else_the_order_of_the_record_counts() {
        let at = |url: &str| PeerAddress { url: url.to_owned(), pin: None };
        let urls = ["tls://a:1", "quic://a:1", "tls://b:1", "quic://b:1"];
        let all: Vec<_> = urls.map(at).to_vec();
        let sorted: Vec<_> = in_order(&all).into_iter().map(|at| at.url).collect();
        assert_eq!(sorted, ["quic://a:1", "quic://b:1", "tls://a:1", "tls://b:1"]);
        let many: Vec<_> = (0..20).map(|n| at(&format!("tls://n{n}:1"))).collect();
        assert_eq!(in_order(&many).len(), ADDRESSES);
    }

    #[test]
    fn a_node_with_an_address_with_certificates_is_never_dialled_in_the_clear() {
        let at = |url: &str| PeerAddress { url: url.to_owned(), pin: None };
        let of = |urls: &[&str]| {
            let all: Vec<_> = urls.iter().map(|url| at(url)).collect();
            dialled(&all).into_iter().map(|at| at.url).collect::<Vec<_>>()
        };
        let clear = ["tcp://a:1", "tcp://b:1"];
        assert_eq!(of(&clear), clear);
        assert_eq!(of(&["tcp://a:1", "tls://a:1", "quic://a:1"]), ["quic://a:1", "tls://a:1"]);
        // Not even behind more addresses than are dialled, or with a scheme of a later version.
        let many = ["tcp://a:1"; ADDRESSES + 1];
        assert_eq!(of(&[&many[..], &["tls://a:1"]].concat()), ["tls://a:1"]);
        assert_eq!(of(&["tcp://a:1", "later://a:1"]), ["later://a:1"]);
    }
}
