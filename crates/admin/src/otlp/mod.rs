//! Pushes the figures of `/metrics` to a collector: OTLP over HTTP, as JSON.
//!
//! The pusher has its own thread and runtime, and queries the workers as the admin API does. At
//! most one push is in memory. If the collector does not respond, the pusher logs a warning at most
//! once per 10 s, and pushes less often. Figures of a failed push are not kept: sums count from the
//! start of the process, so the next push contains them.
//!
//! The crate does not use `opentelemetry-otlp`, which would add 40 crates and a second metrics
//! runtime for a single kind of message.
//!
//! | module | content |
//! |---|---|
//! | `encode` | the message as JSON |
//! | `send` | one request over HTTP |

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

/// Time limit of one push, including the workers' answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit of the last push. It is short because the daemon waits for that push before it ends.
const LAST: Duration = Duration::from_secs(2);

/// The largest number of intervals that are skipped after repeated failures. With an interval of
/// one minute, the pusher finds a recovered collector within four minutes.
const SKIPPED_MAX: u32 = 3;

/// A running pusher. It pushes until this value is finished or dropped.
#[derive(Debug)]
pub struct Push {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Push {
    /// Starts a thread that pushes immediately and then once per interval.
    ///
    /// # Errors
    /// A header field that HTTP does not permit, no random bytes for the instance id, or no
    /// resources for the runtime or the thread.
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
            // An error means that the receiver was dropped, so nothing waits for the end.
            let _ = end.send(());
        };
        std::thread::Builder::new().name("tunnel-otlp".into()).spawn(push)?;
        Ok(Self { stop, ended })
    }

    /// Pushes once more and ends the pusher. Waits at most 4 s.
    pub async fn finish(self) {
        // An error means that the thread has panicked; the panic was logged.
        let _ = self.stop.send(());
        drop(timeout(LAST * 2, self.ended).await);
    }
}

struct Pusher {
    settings: Otlp,
    fields: HeaderMap,
    resource: Resource,
    source: Arc<dyn Daemon>,
    /// The time at which the sums were 0, from the first status. `None` before the first push.
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
                    tracing::info!(%collector, "metrics are pushed again to {collector}");
                    failures = 0;
                }
                Ok(()) => {}
                Err(why) => {
                    failures += 1;
                    if let Some(suppressed) = complaints.pass((), Instant::now()) {
                        let reason = format!("{why:#}");
                        tracing::warn!(
                            %collector, reason, suppressed,
                            "metrics are not pushed to {collector}: {reason}"
                        );
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

/// The number of intervals to skip after `failures` failures in a row.
fn skipped(failures: u32) -> u32 {
    1_u32.checked_shl(failures.saturating_sub(1)).map_or(SKIPPED_MAX, |n| (n - 1).min(SKIPPED_MAX))
}

#[cfg(test)]
mod tests;
