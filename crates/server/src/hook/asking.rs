//! When the service is queried: at a log-in, and periodically about connected clients.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use node::session::Handle;
use proto::greeting::Refusal;
use tokio::task::JoinSet;

use super::{AT_A_TIME, NO, UNKNOWN};
use crate::registry::Registry;

impl Registry {
    /// Makes sure that there is a valid answer about the client of this name. `source` is the
    /// address from which a peer claims the name.
    ///
    /// # Errors
    /// Refuses with [`Refusal::Unavailable`] when the service gave no clear answer, or when this
    /// source has too many pending queries.
    pub(crate) async fn ask_about(
        self: &Arc<Self>,
        name: &str,
        source: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let clients = &self.shared().clients;
        if clients.are_told_of(name) || !self.shared().hook.is_asked() {
            return Ok(());
        }
        let is_known = || {
            clients.is_answered(name, Instant::now())
                // [`keep_asking`] checks a connected client.
                || clients.is_asked(name) && self.is_connected(name)
        };
        if is_known() {
            return Ok(());
        }
        let hook = &self.shared().hook;
        let Some(place) = hook.of_source(source.unwrap_or(UNKNOWN)) else {
            return Err(Refusal::Unavailable);
        };
        let Ok(room) = Arc::clone(&hook.room).acquire_owned().await else {
            return Err(Refusal::Unavailable);
        };
        if is_known() {
            return Ok(());
        }
        let (registry, own) = (Arc::clone(self), name.to_owned());
        // In a separate task, because a greeting may be cancelled at any moment, and an answer must
        // be applied as a whole.
        let work = async move {
            let _held = (place, room);
            registry.ask_again(&own).await
        };
        match tokio::task::spawn_local(work).await {
            Ok(Ok(())) => Ok(()),
            // A connected client that introduced itself stays while the service does not answer.
            _ if clients.is_stranger(name) && self.is_connected(name) => Ok(()),
            Ok(Err(())) | Err(_) => Err(Refusal::Unavailable),
        }
    }

    /// Queries the service and applies the answer. Logs an error.
    async fn ask_again(&self, name: &str) -> Result<(), ()> {
        let (clients, hook) = (&self.shared().clients, &self.shared().hook);
        let generation = clients.generation();
        let Some(asked) = hook.asked.load_full() else { return Ok(()) };
        let learnt = asked.ask(name).await.and_then(|answer| {
            let counts = if answer.is_some() { asked.cache } else { asked.cache.min(NO) };
            let counts = (Instant::now() + counts, generation);
            clients.learn(name, answer.as_ref(), counts, |name| self.is_connected(name))
        });
        match learnt {
            Ok(changes) => {
                for line in changes.lines() {
                    tracing::info!(target: logging::AUDIT, client = name, "auth.http: {line}");
                }
                self.follow(&changes).await;
                Ok(())
            }
            Err(why) => {
                hook.complain(&asked.url, name, &why);
                Err(())
            }
        }
    }
}

/// Starts a task on a worker that checks connected clients periodically.
pub(crate) async fn keep_asking(registry: Arc<Registry>, worker: &Handle) -> anyhow::Result<()> {
    let work = async move {
        loop {
            registry.shared().hook.due().await;
            let names = registry.shared().clients.asked_names();
            let mut questions = JoinSet::new();
            for name in names {
                if !registry.is_connected(&name) {
                    registry.shared().clients.forget_answer(&name, Instant::now());
                    continue;
                }
                if questions.len() >= AT_A_TIME {
                    questions.join_next().await;
                }
                let registry = Arc::clone(&registry);
                questions.spawn_local(async move { registry.ask_again(&name).await });
            }
            while questions.join_next().await.is_some() {}
        }
    };
    worker.run(move |_| drop(tokio::task::spawn_local(work))).await.context("a worker is gone")
}
