//! The cluster of which a server is a node.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::context::{Context, NOT_A_SERVER, timely};
use super::contract::{About, Command};
use super::route::get;
use crate::cluster::{ClusterClients, ClusterPlace, PAGE_CLIENTS, WantedClients};
use crate::role::Role;
use crate::status::Cluster;

/// Asks the cluster where a client, a name or a port is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Locate {
    /// The name of a client, the host of a service, or the number of a port.
    pub name: String,
}

impl Command for Locate {
    const ABOUT: About = About::new("where", "places")
        .of(&[Role::Server])
        .help("Show the nodes of a cluster at which a client, a name or a port of a service is")
        .routes(&[get("/where/{name}")]);
    type Answer = Vec<ClusterPlace>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Vec<ClusterPlace>> {
        timely(cx.daemon.cluster().context(NOT_A_SERVER)?.locate(self.name.clone())).await?
    }
}

/// The nodes of the cluster.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowCluster {}

impl Command for ShowCluster {
    const ABOUT: About = About::new("cluster", "cluster")
        .of(&[Role::Server])
        .help("Show the nodes of the cluster, as the running server sees them")
        .routes(&[get("/cluster")])
        .missing("this server is no node of a cluster");
    /// `None`: the server is no node.
    type Answer = Option<Cluster>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Option<Cluster>> {
        Ok(timely(cx.daemon.cluster().context(NOT_A_SERVER)?.nodes()).await?)
    }
}

/// Lists the clients of all nodes, a page at a time. The server reads the page when it is asked,
/// and keeps nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListClusterClients {
    /// What the names begin with.
    pub begins: Option<String>,
    /// The last client of the page before.
    pub after: Option<String>,
    /// The most clients of the page.
    pub limit: Option<u32>,
}

impl Command for ListClusterClients {
    const ABOUT: About = About::new("cluster_clients", "clients")
        .of(&[Role::Server])
        .help("List the connected clients of all nodes of the cluster, with their nodes")
        .routes(&[get("/cluster/clients").query("limit=100, where limit is a number")]);
    type Answer = ClusterClients;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<ClusterClients> {
        let wanted = WantedClients {
            begins: self.begins.clone().unwrap_or_default(),
            after: self.after.clone().unwrap_or_default(),
            limit: self.limit.unwrap_or(PAGE_CLIENTS).clamp(1, PAGE_CLIENTS),
        };
        timely(cx.daemon.cluster().context(NOT_A_SERVER)?.clients(wanted)).await?
    }
}
