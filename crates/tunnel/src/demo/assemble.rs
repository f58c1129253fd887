//! The tunnel of the demo: a server and a client, configured by flags as on two machines.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use client::Client;
use config::{ClientFlags, Loaded, Problem, Secret, ServerFlags, Sources, Text};
use ops::enrol::Order;
use ops::status::ServiceState;
use ops::visit::VisitCode;
use ops::{Daemon, WrongConfig};
use server::Server;

use super::Assembly;
use crate::enroll::Fleeting;

/// Longest time until the client has published its service. On loopback it takes milliseconds.
const PUBLISH: Duration = Duration::from_secs(10);

/// Pause between two checks of the service's state.
const LOOK: Duration = Duration::from_millis(5);

/// The public ports from which the server chooses a free one: those that Linux chooses from by
/// default.
const PORTS: &str = "127.0.0.1:32768-60999";

/// The domain of the page for visitors. A browser finds names below `localhost` on its own machine
/// (RFC 6761, 6.3).
const DOMAIN: &str = "demo.localhost";

/// The private service, as `allow.visit` names it, and its visitor.
const SERVICE: &str = "demo/web";
const VISITOR: &str = "guest";

/// Starts the server and the client on free loopback ports, and waits until the origin can be
/// reached. With `has_page`, the server offers the page by which a browser visits the origin as a
/// private service.
pub(crate) async fn assemble(origin: SocketAddr, has_page: bool) -> anyhow::Result<Assembly> {
    let identity = tls::fleeting(&["localhost".to_owned()])?;
    let (token, secret) = (ops::token()?, ops::token()?);

    let mut listen = vec!["tls://127.0.0.1:0".to_owned()];
    let mut file = String::new();
    if has_page {
        // Browsers consider this machine's names as secure as TLS.
        listen.push("ws://127.0.0.1:0/".to_owned());
        file = format!("http: {{ domain: {DOMAIN}, browser: true }}\n");
    }
    let flags = ServerFlags {
        listen,
        name: Some("demo".to_owned()),
        token: Some(Secret::new(token.clone())),
        allow_tcp: vec![PORTS.to_owned()],
        ..ServerFlags::default()
    };
    let pin = identity.pin().to_string();
    let config = loaded(config::load_server(text(&file), &flags, &sources()))?;
    let kept = Arc::new(Fleeting::default());
    let server = Arc::new(Server::start_with_codes(config, Some(identity), kept).await?);
    let url = server.listen().first().context("the server listens nowhere")?.clone();

    let mut file = String::new();
    if has_page {
        // No direct path: it would accept packets at the addresses of this machine's networks.
        file = format!(
            "p2p: {{ candidates: [] }}\nservices:\n  - {{ name: web, target: \"tcp://{origin}\", \
             public: private, browser: true, visitors: [{{ name: {VISITOR}, token: \"{secret}\" }}] }}\n"
        );
    }
    let flags = ClientFlags {
        server: vec![url.clone()],
        name: Some("demo".to_owned()),
        token: Some(Secret::new(token)),
        pin: vec![pin],
        publish: vec![format!("tcp://127.0.0.1:0=tcp://{origin}")],
        ..ClientFlags::default()
    };
    let config = loaded(config::load_client(text(&file), &flags, &sources()))?;
    let client = Arc::new(Client::start(config).await?);
    let public = tokio::time::timeout(PUBLISH, published(&client))
        .await
        .context("the client did not publish in time")?;
    let page = if has_page { Some(invite(&server, secret).await?) } else { None };
    Ok(Assembly { public, server: url, page, roles: vec![client, server] })
}

/// Makes a code for the visitor of the private service, and returns the link to the page with this
/// code. `secret`: the token of the visitor at the client.
async fn invite(server: &Server, secret: String) -> anyhow::Result<String> {
    let order = Order {
        name: VISITOR.to_owned(),
        allow_visit: vec![SERVICE.to_owned()],
        ..Order::default()
    };
    let enrolment = server.enrolment().context("the server makes no codes")?;
    let code = enrolment.enroll(order.clone()).await?.code(&order, &[]);
    let (service, visitor) = (SERVICE.to_owned(), VISITOR.to_owned());
    let code = VisitCode { service, token: secret, visitor, enrolment: Some(code) };
    let listen = server.listen().last().and_then(|url| url.strip_prefix("ws://127.0.0.1:"));
    let port = listen.and_then(|rest| rest.strip_suffix('/')).context("no port of the page")?;
    Ok(format!("http://visit.{DOMAIN}:{port}/#{}", code.text()))
}

/// The content of an inline file; none without text.
fn text(file: &str) -> Option<Text<'_>> {
    (!file.is_empty()).then_some(Text { name: "demo", text: file })
}

/// Waits until the server has reported to the client that its services are up, and returns the
/// public address.
async fn published(client: &Client) -> SocketAddr {
    loop {
        let status = client.status().await;
        let services = || status.sessions.iter().flat_map(|session| &session.services);
        let address = services().find_map(|service| service.address.strip_prefix("tcp://"));
        if let Some(public) = address.and_then(|address| address.parse().ok())
            && services().all(|service| service.state == ServiceState::Up)
        {
            return public;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Sources without files and without environment variables.
fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("the demo reads no files".to_owned()) }
}

fn loaded<C>(outcome: Result<Loaded<C>, Vec<Problem>>) -> anyhow::Result<C> {
    Ok(outcome.map_err(WrongConfig::from)?.config)
}
