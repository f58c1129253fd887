//! The services and forwards of a client, and who visits them.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::context::{Context, NOT_A_CLIENT, NOT_HERE, News};
use super::contract::{CHANGE, Command};
use super::form::{Form, Misread};
use super::response::ApiResponse;
use super::route::{ApiRoute, Given, Method};
use crate::Reloaded;
use crate::daemon;
use crate::lists::ListChange;
use crate::share::{self, ShareOrder, Told};
use crate::tested::Tested;
use crate::visit::{Invitation, InviteOrder, InvitedVisitor, Uninvited};

/// The interval at which the command that shares a target gets a sign that the daemon is still
/// running. The share ends within this time after the command exits.
const STILL_SHARED: Duration = Duration::from_secs(1);

/// Changes the services and forwards of a client.
impl Command for ListChange {
    const NAME: &'static str = "lists";
    const ANSWER: &'static str = "reloaded";
    const HELP: &'static str = "Change the services and forwards of a client";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Patch, "/lists")
        .body(Form::object(r#"{"publish":["10022=22"],"without":["web"]}"#, &[]))];
    type Answer = Reloaded;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Reloaded> {
        let lists = cx.daemon.lists().context(NOT_A_CLIENT)?;
        let reloaded = lists.change(self.clone()).await?;
        cx.audit("a change of services and forwards");
        Ok(reloaded)
    }

    fn patience(&self) -> Duration {
        CHANGE
    }
}

/// Publishes a service as long as the connection lasts, and reports the actions of its visitors.
/// The first message is [`News::Shared`], and [`News::Ok`] follows at least once in 2 s.
impl Command for ShareOrder {
    const NAME: &'static str = "share";
    const ANSWER: &'static str = "ok";
    const HELP: &'static str =
        "Show a local port, folder or file to others until Ctrl-C, and see who comes";
    const IS_ENDLESS: bool = true;
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

    fn line((): &()) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&News::Ok)
    }

    fn patience(&self) -> Duration {
        CHANGE
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
    const NAME: &'static str = "test";
    const ANSWER: &'static str = "tested";
    const HELP: &'static str = "Dial the targets of a service from where they are dialled for \
                                visitors, and show each step with its time";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Post, "/services/{name}/test")];
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

fn visitors<'a>(cx: &'a Context<'_>) -> anyhow::Result<&'a dyn daemon::Visitors> {
    cx.daemon.visitors().context(NOT_A_CLIENT)
}

/// Makes a code for a visitor of a private service.
impl Command for InviteOrder {
    const NAME: &'static str = "invite";
    const ANSWER: &'static str = "invitation";
    const HELP: &'static str = "Make a code for a visitor of a private service";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Post, "/visitors")
        .body(Form::object(r#"{"service":"ssh","visitor":"laptop"}"#, &["service"]))];
    type Answer = Invitation;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Invitation> {
        let invitation = visitors(cx)?.invite(self.clone()).await?;
        let Invitation { visitor, service, .. } = &invitation;
        cx.audit(format_args!("a code for {visitor} to visit {service}"));
        Ok(invitation)
    }

    fn response(&self, invitation: &Invitation) -> serde_json::Result<ApiResponse> {
        ApiResponse::with(201, invitation)
    }

    fn patience(&self) -> Duration {
        CHANGE
    }
}

/// Lists the visitors of private services that were invited by codes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListVisitors {}

impl Command for ListVisitors {
    const NAME: &'static str = "visitors";
    const ANSWER: &'static str = "visitors";
    const HELP: &'static str = "List the visitors of private services that were invited by codes";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Get, "/visitors")];
    type Answer = Vec<InvitedVisitor>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Vec<InvitedVisitor>> {
        visitors(cx)?.all().await
    }

    fn response(&self, visitors: &Vec<InvitedVisitor>) -> serde_json::Result<ApiResponse> {
        ApiResponse::of(&serde_json::json!({ "visitors": visitors }))
    }
}

/// Invalidates the tokens of such a visitor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Uninvite {
    pub visitor: String,
}

impl Command for Uninvite {
    const NAME: &'static str = "uninvite";
    const ANSWER: &'static str = "uninvited";
    const HELP: &'static str = "End the visits of a visitor that was invited by a code";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Delete, "/visitors/{name}")];
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
        let any = Some(uninvited).filter(|uninvited| !uninvited.services.is_empty());
        ApiResponse::found(any, "no visitor of this name came by a code")
    }

    fn patience(&self) -> Duration {
        CHANGE
    }
}
