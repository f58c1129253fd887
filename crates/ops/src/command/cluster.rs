//! The cluster of which a server is a node.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::context::{Context, NOT_A_SERVER, timely};
use super::contract::{About, Command};
use super::route::get;
use crate::cluster::ClusterPlace;
use crate::role::Role;

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
