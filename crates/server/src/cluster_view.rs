//! What a server answers to questions about its cluster.

use anyhow::Context as _;
use ops::cluster::{ClusterClients, ClusterPlace, RekeyStep, WantedClients};
use ops::status::Cluster;
use ops::{ClusterView, SendFuture};

use super::Server;

impl ClusterView for Server {
    fn locate(&self, name: String) -> SendFuture<'_, anyhow::Result<Vec<ClusterPlace>>> {
        Box::pin(async move {
            let node = self.node.as_ref().context(
                "this server is no node of a cluster (hint: `tunnel clients show NAME`)",
            )?;
            node.locate(&name).await
        })
    }

    fn is_node(&self) -> bool {
        self.node.is_some()
    }

    fn nodes(&self) -> SendFuture<'_, Option<Cluster>> {
        Box::pin(async move { Some(self.node.as_ref()?.status().await) })
    }

    fn rekey(&self, after: String) -> SendFuture<'_, anyhow::Result<RekeyStep>> {
        Box::pin(async move {
            let node = self.node.as_ref().context("this server is no node of a cluster")?;
            node.rekey(&after).await
        })
    }

    fn clients(&self, wanted: WantedClients) -> SendFuture<'_, anyhow::Result<ClusterClients>> {
        Box::pin(async move {
            let node = self.node.as_ref();
            let node =
                node.context("this server is no node of a cluster (hint: `tunnel clients`)")?;
            node.clients(wanted).await
        })
    }
}
