//! The paths to a node, from the addresses in its record.

use std::rc::Rc;

use anyhow::Context as _;
use cluster::names::NodeId;
use cluster::record::PeerAddress;
use config::Endpoint;
use families::nodes::NodeTransports;
use link::Path;
use node::session::Worker;

use crate::names::{certificate_name, greeting_name};
use crate::shared::NodeShared;

/// The most addresses that are dialled: two networks, each by both transports, for IPv4 and IPv6.
const ADDRESSES: usize = 8;

/// The addresses in the order in which they are dialled: `quic://` first, because a lost packet
/// holds up one stream there instead of all.
pub(crate) fn in_order(addresses: &[PeerAddress]) -> Vec<PeerAddress> {
    let mut all = addresses.to_vec();
    all.sort_by_key(|at| !at.url.starts_with("quic://"));
    all.truncate(ADDRESSES);
    all
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
) -> anyhow::Result<Vec<Path>> {
    greeting_name(node).context("it cannot have a certificate")?;
    if addresses.is_empty() {
        anyhow::bail!("it has published no address for other nodes");
    }
    let name = certificate_name(node);
    let mut problem = None;
    let mut paths = Vec::new();
    // Links with consecutive numbers reach different workers of the other node.
    let number = u8::try_from(worker.index % 256).unwrap_or(0);
    for at in in_order(addresses) {
        match path(shared, &name, &at, number) {
            Ok(path) => paths.push(path),
            Err(error) => problem = Some(error),
        }
    }
    match problem {
        Some(problem) if paths.is_empty() => Err(problem),
        Some(_) | None => Ok(paths),
    }
}

fn path(shared: &NodeShared, name: &str, at: &PeerAddress, number: u8) -> anyhow::Result<Path> {
    // The text of a problem has the address.
    let endpoint: Endpoint = at.url.parse().map_err(|problem| anyhow::anyhow!("{problem:?}"))?;
    anyhow::ensure!(
        NodeTransports::is_usable(&endpoint),
        "it publishes {endpoint}, and nodes reach each other by quic:// and tls:// alone"
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
}
