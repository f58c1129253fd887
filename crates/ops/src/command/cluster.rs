//! The cluster of which a server is a node.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::context::{CLUSTER, Context, NOT_A_SERVER, of_cluster, timely};
use super::contract::{About, Command};
use super::form::Form;
use super::route::{get, post};
use crate::cluster::{ClusterClients, ClusterPlace, PAGE_CLIENTS, RekeyStep, WantedClients};
use crate::role::Role;
use crate::status::Cluster;

/// The time of a step of a change of the secret: 64 requests to the directory, of 1 s at most each,
/// which take some milliseconds each otherwise.
const STEP: Duration = Duration::from_secs(30);

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
        let cluster = cx.daemon.cluster().context(NOT_A_SERVER)?;
        of_cluster(CLUSTER, cluster.locate(self.name.clone())).await
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
        of_cluster(CLUSTER, cx.daemon.cluster().context(NOT_A_SERVER)?.clients(wanted)).await
    }
}

/// Seals what the nodes share in the directory anew with the first secret of the node that is
/// asked: a step of up to 512 values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rekey {
    /// The `next` of the step before; absent: the first step.
    pub after: Option<String>,
}

impl Command for Rekey {
    const ABOUT: About = About::new("rekey", "step")
        .of(&[Role::Server])
        .help(
            "Seal what the nodes share in etcd anew with the first `cluster.secret`, and say \
             whether the former secret is still needed",
        )
        .routes(
            &[post("/cluster/rekey").body(Form::object(r#"{"after":"cert/app.example"}"#, &[]))],
        )
        .slow();
    type Answer = RekeyStep;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<RekeyStep> {
        let after = self.after.clone().unwrap_or_default();
        if after.is_empty() {
            cx.audit("the former secret of the cluster to be replaced");
        }
        of_cluster(STEP, cx.daemon.cluster().context(NOT_A_SERVER)?.rekey(after)).await
    }
}
