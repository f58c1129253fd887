//! The tunnel of the demo: a server and a client, configured by flags as on two machines.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use config::{ClientFlags, Loaded, Problem, Secret, ServerFlags, Sources};
use node::client::Client;
use node::server::Server;
use ops::status::ServiceState;
use ops::{Daemon, WrongConfig};

use super::Assembly;

/// Longest time until the client has published its service. On loopback it takes milliseconds.
const PUBLISH: Duration = Duration::from_secs(10);

/// Pause between two checks of the service's state.
const LOOK: Duration = Duration::from_millis(5);

/// Starts the server and the client on free loopback ports, and waits until the origin can be
/// reached.
pub(crate) async fn assemble(origin: SocketAddr) -> anyhow::Result<Assembly> {
    let identity = tls::fleeting(&["localhost".to_owned()])?;
    let token = ops::token()?;
    let public = free_port()?;

    let flags = ServerFlags {
        listen: vec!["tls://127.0.0.1:0".to_owned()],
        name: Some("demo".to_owned()),
        token: Some(Secret::new(token.clone())),
        allow_tcp: vec![public.to_string()],
        ..ServerFlags::default()
    };
    let pin = identity.pin().to_string();
    let config = loaded(config::load_server(None, &flags, &sources()))?;
    let server = Arc::new(Server::start(config, Some(identity)).await?);
    let url = server.listen().first().context("the server listens nowhere")?.clone();

    let flags = ClientFlags {
        server: vec![url.clone()],
        name: Some("demo".to_owned()),
        token: Some(Secret::new(token)),
        pin: vec![pin],
        publish: vec![format!("tcp://{public}=tcp://{origin}")],
        ..ClientFlags::default()
    };
    let config = loaded(config::load_client(None, &flags, &sources()))?;
    let client = Arc::new(Client::start(config).await?);
    tokio::time::timeout(PUBLISH, published(&client))
        .await
        .context("the client did not publish in time")?;
    Ok(Assembly { public, server: url, roles: vec![client, server] })
}

/// Waits until the server has told the client that its service is up.
async fn published(client: &Client) {
    loop {
        let status = client.status().await;
        let mut services = status.sessions.iter().flat_map(|session| &session.services);
        if services.all(|service| service.state == ServiceState::Up) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}

/// Sources without files and without environment variables.
fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("the demo reads no files".to_owned()) }
}

fn loaded<C>(outcome: Result<Loaded<C>, Vec<Problem>>) -> anyhow::Result<C> {
    Ok(outcome.map_err(WrongConfig::from)?.config)
}
