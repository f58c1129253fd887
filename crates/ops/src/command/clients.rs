//! The clients of a server: their codes, their rights, their links.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::context::{Context, NOT_A_SERVER, PATIENCE, of_cluster, timely};
use super::contract::{About, Command};
use super::form::{Form, Misread};
use super::response::ApiResponse;
use super::route::{Given, Method, delete, get, patch, post, put};
use crate::clients::{
    self, Applied, Change, Details, Held, HoldOrder, LimitOrder, Limits, READ_PAGES,
};
use crate::cluster::{PAGE_CLIENTS, WantedClients};
use crate::daemon;
use crate::enrol::{Allowed, GOOD_FOR, Opened, Order};
use crate::role::Role;

/// The body of an order for rights: all fields of an order for a code but `renew`.
const RIGHTS: Form =
    Form { without: &["renew"], ..Form::object(r#"{"allow_tcp":["10000-10100"]}"#, &[]) };

fn of_server<'a>(cx: &'a Context<'_>) -> anyhow::Result<&'a dyn daemon::Clients> {
    cx.daemon.clients().context(NOT_A_SERVER)
}

async fn changed(cx: &Context<'_>, change: Change, what: &str) -> anyhow::Result<Applied> {
    let name = change.name().to_owned();
    let applied = of_server(cx)?.change(change).await?;
    cx.audit(format_args!("{what} for client {name}"));
    Ok(applied)
}

/// Makes a code with which a new client enrols.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Enroll(pub Order);

impl Command for Enroll {
    const ABOUT: About = About::new("enroll", "opened")
        .of(&[Role::Server])
        .help("Make a one-time code for a new client")
        .routes(&[post("/enrolments")
            .body(Form::object(r#"{"name":"office","allow_tcp":["10000-10100"]}"#, &["name"]))]);
    type Answer = Opened;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Opened> {
        cx.daemon.enrolment().context(NOT_A_SERVER)?.enroll(self.0.clone()).await
    }

    /// The response contains all data that `tunnel enroll` prints.
    fn response(&self, opened: &Opened) -> serde_json::Result<ApiResponse> {
        let code = opened.clone().code(&self.0, &[]);
        let command = code.command();
        let mut body = serde_json::json!({
            "code": code.text(),
            "servers": code.urls,
            "valid_seconds": GOOD_FOR.as_secs(),
            "command": command,
        });
        if let Some(qr) = crate::qr::qr(&command) {
            body["qr"] = serde_json::json!(qr);
        }
        ApiResponse::of(201, &body)
    }
}

/// Removes a client that was enrolled by a code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Revoke {
    pub name: String,
}

impl Command for Revoke {
    const ABOUT: About = About::new("revoke", "revoked")
        .of(&[Role::Server])
        .help(
            "Disconnect and forget a client that enrolled by a code, as `tunnel enroll --revoke` \
             does",
        )
        .routes(&[delete("/enrolments/{name}")])
        .missing("no client of this name has come in by a code");
    /// Whether there was such a client.
    type Answer = bool;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<bool> {
        cx.daemon.enrolment().context(NOT_A_SERVER)?.revoke(self.name.clone()).await
    }
}

/// Lists all clients that the server knows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListClients {}

impl Command for ListClients {
    const ABOUT: About = About::new("clients", "clients")
        .of(&[Role::Server])
        .help("List the clients of a server, also those that are away; show or change one of them")
        .routes(&[get("/clients")]);
    type Answer = clients::Clients;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<clients::Clients> {
        let mut clients = timely(of_server(cx)?.all()).await??;
        if let Some(cluster) = cx.daemon.cluster().filter(|cluster| cluster.is_node()) {
            let mut wanted = WantedClients { limit: PAGE_CLIENTS, ..WantedClients::default() };
            for _ in 0..READ_PAGES {
                match of_cluster(PATIENCE, cluster.clients(wanted.clone())).await {
                    Ok(page) => {
                        clients.join(page.list);
                        clients.more = page.next.is_some();
                        let Some(next) = page.next else { break };
                        wanted.after = next;
                    }
                    Err(why) => {
                        clients.unknown = Some(format!("{why:#}"));
                        break;
                    }
                }
            }
        }
        Ok(clients)
    }
}

/// One client in full.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowClient {
    pub name: String,
}

impl Command for ShowClient {
    const ABOUT: About = About::new("client", "client")
        .of(&[Role::Server])
        .help("Show one client in full: rights, limits, services and links")
        .routes(&[get("/clients/{name}")])
        .missing("the server knows no client of this name");
    /// `None`: the server knows no client of this name.
    type Answer = Option<Details>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Option<Details>> {
        let mut details = timely(of_server(cx)?.one(self.name.clone())).await??;
        if let Some(details) = &mut details
            && let Some(cluster) = cx.daemon.cluster().filter(|cluster| cluster.is_node())
            // The rest is known without the cluster.
            && let Ok(places) = of_cluster(PATIENCE, cluster.locate(self.name.clone())).await
        {
            let of_client = places.iter().find(|place| place.what.starts_with("client "));
            let nodes = of_client.map(|place| &place.nodes).into_iter().flatten();
            details.client.nodes = nodes.map(|node| node.name.clone()).collect();
        }
        Ok(details)
    }
}

/// Adds rights to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Allow(pub Order);

impl Command for Allow {
    const ABOUT: About = About::new("allow", "allowed")
        .of(&[Role::Server])
        .help("Add rights to a client at once; runs on the machine of the server")
        .routes(&[post("/clients/{name}/rights").body(RIGHTS)])
        .slow();
    type Answer = Allowed;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Allowed> {
        Ok(changed(cx, Change::Allow(self.0.clone()), "more rights").await?.allowed)
    }
}

/// Removes rights from a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Deny(pub Order);

impl Command for Deny {
    const ABOUT: About = About::new("deny", "allowed")
        .of(&[Role::Server])
        .help("Take rights away from a client at once; runs on the machine of the server")
        .routes(&[delete("/clients/{name}/rights").body(RIGHTS)])
        .slow();
    /// The rights that are left.
    type Answer = Allowed;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Allowed> {
        Ok(changed(cx, Change::Deny(self.0.clone()), "fewer rights").await?.allowed)
    }
}

impl Command for LimitOrder {
    const ABOUT: About = About::new("limit", "limited")
        .of(&[Role::Server])
        .help("Change limits of a client at once; the value `none` removes a limit")
        .routes(&[patch("/clients/{name}/limits")
            .body(Form::object(r#"{"streams":"100","ports":"none"}"#, &[]))])
        .slow();
    /// All limits of the client.
    type Answer = Limits;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Limits> {
        Ok(changed(cx, Change::Limit(self.clone()), "other limits").await?.limits)
    }
}

impl Command for HoldOrder {
    const ABOUT: About = About::new("hold", "held")
        .of(&[Role::Server])
        .help(
            "Answer visitors of a client's http:// and https:// names with a maintenance page \
             (503), at once and after a restart; running requests finish",
        )
        .routes(&[
            put("/clients/{name}/hold")
                .body(Form { without: &["off"], ..Form::object(r#"{"retry_after":"10m"}"#, &[]) }),
            delete("/clients/{name}/hold"),
        ]);
    /// The hold in force; `None`: the client is no longer on hold.
    type Answer = Option<Held>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Option<Held>> {
        let held = of_server(cx)?.hold(self.clone()).await?;
        let what = if self.off { "the end of a hold" } else { "a hold" };
        cx.audit(format_args!("{what} of client {}", self.name));
        Ok(held)
    }

    fn read(given: Given<'_>) -> Result<Self, Misread> {
        if given.route.method == Method::Delete {
            let name = given.segment("name").to_owned();
            return Ok(Self { name, off: true, ..Self::default() });
        }
        given.read()
    }
}

/// Ends the links of a client, with their streams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kick {
    pub name: String,
}

impl Command for Kick {
    const ABOUT: About = About::new("kick", "kicked")
        .of(&[Role::Server])
        .help("Disconnect a client at once; its streams are reset, and it may log in again")
        .routes(&[delete("/clients/{name}/session")])
        .missing("no client of this name is connected");
    /// Whether the client was connected.
    type Answer = bool;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<bool> {
        let was_connected = of_server(cx)?.kick(self.name.clone()).await?;
        if was_connected {
            cx.audit(format_args!("the end of the links of client {}", self.name));
        }
        Ok(was_connected)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::mpsc;
    use tokio::time::{Duration, Instant};

    use super::*;
    use crate::cluster::{ClusterClients, ClusterPlace, RekeyStep};
    use crate::status::{Cluster, Status};
    use crate::{ClusterView, Daemon, Life, SendFuture};

    /// A server that knows one client, in a cluster that does not answer, or in none.
    struct Cut {
        is_node: bool,
    }

    impl Daemon for Cut {
        fn role(&self) -> Role {
            Role::Server
        }

        fn status(&self) -> SendFuture<'_, Status> {
            Box::pin(pending())
        }

        fn clients(&self) -> Option<&dyn daemon::Clients> {
            Some(self)
        }

        fn cluster(&self) -> Option<&dyn ClusterView> {
            Some(self)
        }
    }

    impl daemon::Clients for Cut {
        fn all(&self) -> SendFuture<'_, anyhow::Result<clients::Clients>> {
            let list = vec![clients::Client::default()];
            Box::pin(async { Ok(clients::Clients { list, ..clients::Clients::default() }) })
        }

        fn one(&self, _: String) -> SendFuture<'_, anyhow::Result<Option<Details>>> {
            Box::pin(async { Ok(Some(Details::default())) })
        }

        fn change(&self, _: Change) -> SendFuture<'_, anyhow::Result<Applied>> {
            Box::pin(pending())
        }

        fn kick(&self, _: String) -> SendFuture<'_, anyhow::Result<bool>> {
            Box::pin(pending())
        }

        fn hold(&self, _: HoldOrder) -> SendFuture<'_, anyhow::Result<Option<Held>>> {
            Box::pin(pending())
        }
    }

    impl ClusterView for Cut {
        fn locate(&self, _: String) -> SendFuture<'_, anyhow::Result<Vec<ClusterPlace>>> {
            Box::pin(pending())
        }

        fn is_node(&self) -> bool {
            self.is_node
        }

        fn nodes(&self) -> SendFuture<'_, Option<Cluster>> {
            Box::pin(pending())
        }

        fn clients(&self, _: WantedClients) -> SendFuture<'_, anyhow::Result<ClusterClients>> {
            Box::pin(pending())
        }

        fn rekey(&self, _: String) -> SendFuture<'_, anyhow::Result<RekeyStep>> {
            Box::pin(pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_shows_the_clients_that_it_knows_also_if_the_cluster_does_not_answer() {
        let show = ShowClient { name: "home".to_owned() };
        for is_node in [true, false] {
            let (news, _) = mpsc::channel(1);
            let (server, begun) = (Cut { is_node }, Instant::now());
            let cx = Context { daemon: &server, over: "a test", life: &Life::new(), news };
            let all = ListClients {}.run(&cx).await.unwrap();
            assert_eq!(all.list.len(), 1);
            let wanted = is_node.then(|| "the cluster does not answer".to_owned());
            assert_eq!(all.unknown, wanted);
            assert!(show.run(&cx).await.unwrap().is_some());
            // A server that is no node asks nobody.
            assert_eq!(begun.elapsed() > Duration::ZERO, is_node);
        }
    }
}
