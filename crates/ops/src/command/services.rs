//! The services and forwards of a client, and who visits them.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::context::{Context, NOT_A_CLIENT, NOT_HERE, News};
use super::contract::{About, Command};
use super::form::{Form, Misread};
use super::response::ApiResponse;
use super::route::{Given, delete, get, patch, post};
use crate::lists::ListChange;
use crate::role::Role;
use crate::share::{self, ShareOrder, Told};
use crate::targets::{DrainOrder, Drained};
use crate::tested::Tested;
use crate::visit::{Invitation, InviteOrder, InvitedVisitor, Uninvited};
use crate::{Reloaded, daemon};

/// The interval at which the command that shares a target gets a sign that the daemon is still
/// running. The share ends within this time after the command exits.
const STILL_SHARED: Duration = Duration::from_secs(1);

/// Changes the services and forwards of a client.
impl Command for ListChange {
    const ABOUT: About = About::new("lists", "reloaded")
        .of(&[Role::Client])
        .help("Change the services and forwards of a client")
        .routes(&[patch("/lists")
            .body(Form::object(r#"{"publish":["10022=22"],"without":["web"]}"#, &[]))])
        .slow();
    type Answer = Reloaded;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Reloaded> {
        let lists = cx.daemon.lists().context(NOT_A_CLIENT)?;
        let reloaded = lists.change(self.clone()).await?;
        cx.audit("a change of services and forwards");
        Ok(reloaded)
    }
}

/// Publishes a service as long as the connection lasts, and reports the actions of its visitors.
/// The first message is [`News::Shared`], and [`News::Ok`] follows at least once in 2 s.
impl Command for ShareOrder {
    const ABOUT: About = About::new("share", "")
        .of(&[Role::Client])
        .help("Show a local port, folder or file to others until Ctrl-C, and see who comes")
        .slow()
        .endless();
    type Answer = ();

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<()> {
        let sharer = cx.daemon.sharer().context(NOT_A_CLIENT)?;
        let (visits, mut reader) = share::visits();
        let (shared, _sharing) = tokio::select! {
            shared = sharer.share(self.clone(), visits) => shared?,
            () = cx.news.closed() => return Ok(()),
        };
        let mut next = News::Shared(shared);
        loop {
            if cx.news.send(next).await.is_err() {
                return Ok(());
            }
            let item = tokio::select! {
                item = timeout(STILL_SHARED, reader.next()) => item,
                () = cx.news.closed() => return Ok(()),
            };
            next = match item {
                Ok(Some(Told::Visit(visit))) => News::Visit(visit),
                Ok(Some(Told::Lost(count))) => News::Lost(count),
                Ok(None) => anyhow::bail!("the service is published no more"),
                Err(_) => News::Ok,
            };
        }
    }
}

/// Tests the targets of a service; on a server, `client` names the client if several have a service
/// of this name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestService {
    pub service: String,
    #[serde(default)]
    pub client: Option<String>,
}

impl Command for TestService {
    const ABOUT: About = About::new("test", "tested")
        .help(
            "Dial the targets of a service from where they are dialled for visitors, and show \
             each step with its time",
        )
        .routes(&[post("/services/{name}/test")]);
    type Answer = Tested;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Tested> {
        let tester = cx.daemon.tester().context(NOT_HERE)?;
        tester.test(self.service.clone(), self.client.clone()).await
    }

    fn read(mut given: Given<'_>) -> Result<Self, Misread> {
        given.rename("name", "service");
        given.read()
    }
}

/// The error of a daemon that dials no target of a service.
const NO_TARGETS: &str = "it dials no targets of services; targets are drained where `tunnel client` \
    or `tunnel proxy` runs";

/// Drains targets, or ends their drain.
impl Command for DrainOrder {
    const ABOUT: About = About::new("drain", "drained")
        .of(&[Role::Client, Role::Proxy])
        .help("Send no new visitors to a target, or to a service; open streams go on")
        .routes(&[post("/drain")
            .body(Form::object(r#"{"name":"tcp://10.0.0.4:8080","off":false}"#, &["name"]))]);
    type Answer = Drained;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Drained> {
        let drained = cx.daemon.targets().context(NO_TARGETS)?.drain(self)?;
        let what = if self.off { "the end of the drain" } else { "the drain" };
        for one in &drained.targets {
            cx.audit(format_args!("{what} of {} of service {}", one.target, one.service));
        }
        Ok(drained)
    }
}

fn visitors<'a>(cx: &'a Context<'_>) -> anyhow::Result<&'a dyn daemon::Visitors> {
    cx.daemon.visitors().context(NOT_A_CLIENT)
}

/// Makes a code for a visitor of a private service.
impl Command for InviteOrder {
    const ABOUT: About = About::new("invite", "invitation")
        .of(&[Role::Client])
        .help("Make a code for a visitor of a private service")
        .routes(&[post("/visitors")
            .body(Form::object(r#"{"service":"ssh","visitor":"laptop"}"#, &["service"]))])
        .slow();
    type Answer = Invitation;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Invitation> {
        let invitation = visitors(cx)?.invite(self.clone()).await?;
        let Invitation { visitor, service, .. } = &invitation;
        cx.audit(format_args!("a code for {visitor} to visit {service}"));
        Ok(invitation)
    }

    fn response(&self, invitation: &Invitation) -> serde_json::Result<ApiResponse> {
        ApiResponse::of(201, invitation)
    }
}

/// Lists the visitors of private services that were invited by codes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListVisitors {}

impl Command for ListVisitors {
    const ABOUT: About = About::new("visitors", "visitors")
        .of(&[Role::Client])
        .help("List the visitors of private services that were invited by codes")
        .routes(&[get("/visitors")]);
    type Answer = Vec<InvitedVisitor>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Vec<InvitedVisitor>> {
        visitors(cx)?.all().await
    }

    fn response(&self, visitors: &Vec<InvitedVisitor>) -> serde_json::Result<ApiResponse> {
        ApiResponse::of(200, &serde_json::json!({ "visitors": visitors }))
    }
}

/// Invalidates the tokens of such a visitor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Uninvite {
    pub visitor: String,
}

impl Command for Uninvite {
    const ABOUT: About = About::new("uninvite", "uninvited")
        .of(&[Role::Client])
        .help("End the visits of a visitor that was invited by a code")
        .routes(&[delete("/visitors/{name}")])
        .slow();
    /// Without services: no visitor of this name was invited by a code.
    type Answer = Uninvited;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Uninvited> {
        let uninvited = visitors(cx)?.uninvite(self.visitor.clone()).await?;
        if !uninvited.services.is_empty() {
            cx.audit(format_args!("no more visits of {}", self.visitor));
        }
        Ok(uninvited)
    }

    fn read(mut given: Given<'_>) -> Result<Self, Misread> {
        given.rename("name", "visitor");
        given.read()
    }

    fn response(&self, uninvited: &Uninvited) -> serde_json::Result<ApiResponse> {
        if uninvited.services.is_empty() {
            return ApiResponse::not_found("no visitor of this name came by a code");
        }
        ApiResponse::of(200, uninvited)
    }
}
