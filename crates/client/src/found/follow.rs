//! What a client does with the servers that are found: the first servers at the start, and the task
//! that applies later answers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use config::{ClientConfig, FoundServer, ServerPaths};
use ops::state::Places;
use tokio::time::{Instant, timeout};

use super::{Finder, FirstQuestion, FoundAnswer, ServerSource as _, keep_asking};
use crate::shared::ClientShared;

/// The time limit of the first question: the limit of a question, and a little more.
const FIRST: Duration = Duration::from_secs(12);

impl Finder {
    /// What names the servers of this configuration. `None`: the file does.
    pub(crate) fn of(config: &ClientConfig) -> Option<anyhow::Result<Self>> {
        let own = config.common.state_dir.clone();
        let folder = || own.or_else(|| Places::of_process().state_dir().ok());
        let defaults = config.path_defaults.clone();
        if let Some(from) = &config.servers_from {
            return Some(Self::of_api(from, defaults, folder()));
        }
        Some(Ok(Self::of_dns(config.srv.clone()?, defaults, folder())))
    }
}

/// The configuration with the servers that are found at the start: those of an answer now, or else
/// those of the last answer to an earlier process. The question was the first, where there was one.
///
/// # Errors
/// There is neither.
pub(crate) async fn with_first_servers(
    config: ClientConfig,
) -> anyhow::Result<(ClientConfig, Option<FirstQuestion>)> {
    let Some(finder) = Finder::of(&config) else { return Ok((config, None)) };
    let mut finder = finder?;
    let (asked, name) = (timeout(FIRST, finder.ask()).await, finder.name().to_owned());
    let first = |wish| Some(FirstQuestion { at: Instant::now(), wish });
    let why = match asked {
        Ok(Ok(answer)) => {
            finder.keep(&answer).await;
            let first = first(Ok(answer.every));
            return Ok((ClientConfig { servers: servers(answer.servers), ..config }, first));
        }
        Ok(Err(trouble)) => trouble.to_string(),
        Err(_) => format!("no answer within {} s", FIRST.as_secs()),
    };
    match finder.former() {
        Some(former) => {
            tracing::warn!(
                "{name} names no servers, so the servers of its last answer are used: {why}"
            );
            Ok((ClientConfig { servers: servers(former), ..config }, first(Err(()))))
        }
        None => bail!(
            "{name} names no servers, and no earlier answer is in the state directory: {why} \
             (hint: start the client again when {name} answers)"
        ),
    }
}

/// Hands each answer about servers to `apply`, until the client ends.
pub(crate) async fn follow(shared: Arc<ClientShared>, apply: impl AsyncFn(Vec<ServerPaths>)) {
    let mut first = shared.first_question;
    loop {
        let config = shared.config.load_full();
        let changed = shared.source_changed.notified();
        let mut finder = match Finder::of(&config) {
            Some(Ok(finder)) => finder,
            Some(Err(why)) => {
                tracing::error!("the servers cannot be asked for: {why:#}");
                changed.await;
                continue;
            }
            None => {
                changed.await;
                continue;
            }
        };
        let apply = async |answer: FoundAnswer| apply(servers(answer.servers)).await;
        tokio::select! {
            () = keep_asking(&mut finder, &shared.outage, first.take(), apply) => {}
            () = changed => {}
        }
    }
}

fn servers(found: Vec<FoundServer>) -> Vec<ServerPaths> {
    let server = |FoundServer { name, paths }| ServerPaths { name: Some(name), token: None, paths };
    found.into_iter().map(server).collect()
}
