//! The clients of a server: their codes, their rights, their links.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::context::{Context, NOT_A_SERVER, timely};
use super::contract::{CHANGE, Command};
use super::form::{Form, Misread};
use super::response::ApiResponse;
use super::route::{ApiRoute, Given, Method};
use crate::clients::{self, Applied, Change, Details, Held, HoldOrder, LimitOrder, Limits};
use crate::daemon;
use crate::enrol::{Allowed, GOOD_FOR, Opened, Order};

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
    const NAME: &'static str = "enroll";
    const ANSWER: &'static str = "opened";
    const HELP: &'static str = "Make a one-time code for a new client";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Post, "/enrolments")
        .body(Form::object(r#"{"name":"office","allow_tcp":["10000-10100"]}"#, &["name"]))];
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
        ApiResponse::with(201, &body)
    }
}

/// Removes a client that was enrolled by a code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Revoke {
    pub name: String,
}

impl Command for Revoke {
    const NAME: &'static str = "revoke";
    const ANSWER: &'static str = "revoked";
    const HELP: &'static str =
        "Disconnect and forget a client that enrolled by a code, as `tunnel enroll --revoke` does";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Delete, "/enrolments/{name}")];
    /// Whether there was such a client.
    type Answer = bool;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<bool> {
        cx.daemon.enrolment().context(NOT_A_SERVER)?.revoke(self.name.clone()).await
    }

    fn response(&self, was: &bool) -> serde_json::Result<ApiResponse> {
        ApiResponse::done_if(*was, "no client of this name has come in by a code")
    }
}

/// Lists all clients that the server knows.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListClients {}

impl Command for ListClients {
    const NAME: &'static str = "clients";
    const ANSWER: &'static str = "clients";
    const HELP: &'static str =
        "List the clients of a server, also those that are away; show or change one of them";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Get, "/clients")];
    type Answer = clients::Clients;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<clients::Clients> {
        timely(of_server(cx)?.all()).await?
    }
}

/// One client in full.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowClient {
    pub name: String,
}

impl Command for ShowClient {
    const NAME: &'static str = "client";
    const ANSWER: &'static str = "client";
    const HELP: &'static str = "Show one client in full: rights, limits, services and links";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Get, "/clients/{name}")];
    /// `None`: the server knows no client of this name.
    type Answer = Option<Details>;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Option<Details>> {
        timely(of_server(cx)?.one(self.name.clone())).await?
    }

    fn response(&self, client: &Option<Details>) -> serde_json::Result<ApiResponse> {
        ApiResponse::found(client.as_ref(), "the server knows no client of this name")
    }
}

/// Adds rights to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Allow(pub Order);

impl Command for Allow {
    const NAME: &'static str = "allow";
    const ANSWER: &'static str = "allowed";
    const HELP: &'static str = "Add rights to a client at once; runs on the machine of the server";
    const ROUTES: &'static [ApiRoute] =
        &[ApiRoute::new(Method::Post, "/clients/{name}/rights").body(RIGHTS)];
    type Answer = Allowed;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Allowed> {
        Ok(changed(cx, Change::Allow(self.0.clone()), "more rights").await?.allowed)
    }

    fn patience(&self) -> Duration {
        CHANGE
    }
}

/// Removes rights from a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Deny(pub Order);

impl Command for Deny {
    const NAME: &'static str = "deny";
    const ANSWER: &'static str = "allowed";
    const HELP: &'static str =
        "Take rights away from a client at once; runs on the machine of the server";
    const ROUTES: &'static [ApiRoute] =
        &[ApiRoute::new(Method::Delete, "/clients/{name}/rights").body(RIGHTS)];
    /// The rights that are left.
    type Answer = Allowed;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Allowed> {
        Ok(changed(cx, Change::Deny(self.0.clone()), "fewer rights").await?.allowed)
    }

    fn patience(&self) -> Duration {
        CHANGE
    }
}

impl Command for LimitOrder {
    const NAME: &'static str = "limit";
    const ANSWER: &'static str = "limited";
    const HELP: &'static str =
        "Change limits of a client at once; the value `none` removes a limit";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Patch, "/clients/{name}/limits")
        .body(Form::object(r#"{"streams":"100","ports":"none"}"#, &[]))];
    /// All limits of the client.
    type Answer = Limits;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Limits> {
        Ok(changed(cx, Change::Limit(self.clone()), "other limits").await?.limits)
    }

    fn patience(&self) -> Duration {
        CHANGE
    }
}

impl Command for HoldOrder {
    const NAME: &'static str = "hold";
    const ANSWER: &'static str = "held";
    const HELP: &'static str = "Answer visitors of a client's http:// and https:// names with a \
                                maintenance page (503), at once and after a restart; running \
                                requests finish";
    const ROUTES: &'static [ApiRoute] = &[
        ApiRoute::new(Method::Put, "/clients/{name}/hold")
            .body(Form { without: &["off"], ..Form::object(r#"{"retry_after":"10m"}"#, &[]) }),
        ApiRoute::new(Method::Delete, "/clients/{name}/hold"),
    ];
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

    fn response(&self, held: &Option<Held>) -> serde_json::Result<ApiResponse> {
        held.as_ref().map_or_else(|| Ok(ApiResponse::done()), ApiResponse::of)
    }
}

/// Ends the links of a client, with their streams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kick {
    pub name: String,
}

impl Command for Kick {
    const NAME: &'static str = "kick";
    const ANSWER: &'static str = "kicked";
    const HELP: &'static str =
        "Disconnect a client at once; its streams are reset, and it may log in again";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::new(Method::Delete, "/clients/{name}/session")];
    /// Whether the client was connected.
    type Answer = bool;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<bool> {
        let was_connected = of_server(cx)?.kick(self.name.clone()).await?;
        if was_connected {
            cx.audit(format_args!("the end of the links of client {}", self.name));
        }
        Ok(was_connected)
    }

    fn response(&self, was: &bool) -> serde_json::Result<ApiResponse> {
        ApiResponse::done_if(*was, "no client of this name is connected")
    }
}
