//! Metrics pushed by OTLP over HTTP, as JSON: the figures of `/metrics` for who collects by push.
//!
//! It has a thread and a runtime of its own and asks the workers as the admin API does. One push is
//! in memory at a time. A collector that does not answer costs a line now and then, and pushes
//! become rarer; nothing is kept for later, as sums go on from the start and the next push tells
//! them all.
//!
//! `opentelemetry-otlp` would bring 40 crates and a second runtime of metrics for what is one
//! message.
//!
//! | module | what |
//! |---|---|
//! | `encode` | the message |
//! | `send` | its way over HTTP |

mod encode;
mod send;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use axum::http::HeaderMap;
use config::Otlp;
use logging::RepeatLimit;
use ops::Daemon;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::metrics;
use encode::Resource;

pub use send::fields;

/// How long one push may take, the workers' answers included.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the last one may: whoever stops the daemon waits for it.
const LAST: Duration = Duration::from_secs(2);

/// Pushes in a row that are left out where none of the last ones got through: of a minute each, a
/// collector that is there again is found within four.
const SKIPPED_MAX: u32 = 3;

/// Pushing until it is finished or dropped.
#[derive(Debug)]
pub struct Push {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Push {
    /// Pushes at once, and then once per interval, on a thread of its own.
    pub fn start(settings: Otlp, source: Arc<dyn Daemon>) -> anyhow::Result<Self> {
        let fields = fields(&settings.headers).map_err(anyhow::Error::msg)?;
        let resource = Resource::of_process().context("otlp")?;
        let pusher = Pusher { settings, fields, resource, source, started: None };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let push = move || {
            runtime.block_on(pusher.run(stopped));
            runtime.shutdown_background();
            // Whoever dropped the other end does not wait.
            let _ = end.send(());
        };
        std::thread::Builder::new().name("tunnel-otlp".into()).spawn(push)?;
        Ok(Self { stop, ended })
    }

    /// Pushes once more, for so long as that may take.
    pub async fn finish(self) {
        // Gone after a panic, which was told.
        let _ = self.stop.send(());
        drop(timeout(LAST * 2, self.ended).await);
    }
}

struct Pusher {
    settings: Otlp,
    fields: HeaderMap,
    resource: Resource,
    source: Arc<dyn Daemon>,
    /// When the sums were 0, as the first status told.
    started: Option<SystemTime>,
}

impl Pusher {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let collector = self.settings.collector.clone();
        let complaints = RepeatLimit::new();
        let mut ticks = interval(self.settings.interval.duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut failures, mut skip) = (0, 0);
        loop {
            let pushed = tokio::select! {
                _ = &mut stopped => break,
                pushed = async {
                    for _ in 0..=skip {
                        ticks.tick().await;
                    }
                    self.push(PATIENCE).await
                } => pushed,
            };
            match pushed {
                Ok(()) if failures > 0 => {
                    tracing::info!(%collector, "metrics are pushed again");
                    failures = 0;
                }
                Ok(()) => {}
                Err(why) => {
                    failures += 1;
                    if let Some(suppressed) = complaints.pass((), Instant::now()) {
                        let reason = format!("{why:#}");
                        tracing::warn!(%collector, reason, suppressed, "metrics are not pushed");
                    }
                }
            }
            skip = skipped(failures);
        }
        if let Err(why) = self.push(LAST).await {
            tracing::debug!(%collector, reason = format!("{why:#}"), "the last push failed");
        }
    }

    async fn push(&mut self, limit: Duration) -> anyhow::Result<()> {
        let pushing = async {
            let status = self.source.status().await;
            let now = SystemTime::now();
            let uptime = Duration::from_secs(status.uptime_seconds);
            let since = || now.checked_sub(uptime).unwrap_or(now);
            let started = *self.started.get_or_insert_with(since);
            let metrics = metrics::list(&status);
            let body = encode::message(&self.resource, &status, &metrics, (started, now));
            send::post(&self.settings.collector, &self.fields, body).await
        };
        timeout(limit, pushing).await.context("no answer in time").flatten()
    }
}

/// So many pushes are left out after so many failures in a row.
fn skipped(failures: u32) -> u32 {
    1_u32.checked_shl(failures.saturating_sub(1)).map_or(SKIPPED_MAX, |n| (n - 1).min(SKIPPED_MAX))
}

#[cfg(test)]
mod tests;
