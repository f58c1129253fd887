//! What systemd is told (`Type=notify`): ready, what we are doing, stopping, still alive. Nothing
//! happens when it did not start us.

use std::convert::Infallible;
use std::time::Duration;

use sd_notify::NotifyState;

/// The daemon serves.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The daemon reads its configuration again; [`ready`] says that it did.
pub(crate) fn reloading() {
    // `Type=notify-reload` wants the time of it as well (sd_notify(3)).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// The daemon drains; `limit` more than systemd's own stop timeout is asked for.
pub(crate) fn stopping(limit: Duration) {
    let micros = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
    send(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("draining"),
    ]);
}

/// Feeds the watchdog, when there is one, for as long as `alive` says so; never ends. Three times
/// per period, so that one late answer does not kill.
pub(crate) async fn feed_watchdog(alive: impl AsyncFn(Duration) -> bool) -> Infallible {
    let Some(period) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    feed(period / 3, alive, || send(&[NotifyState::Watchdog])).await
}

async fn feed(
    every: Duration,
    alive: impl AsyncFn(Duration) -> bool,
    feed: impl Fn(),
) -> Infallible {
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        if alive(every).await {
            feed();
        } else {
            tracing::error!("a worker does not answer; the watchdog is not fed");
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::debug!(error = %e, "systemd does not listen");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_only_while_alive() {
        let (alive, fed) = (Cell::new(true), Cell::new(0));
        let second = Duration::from_secs(1);
        let feeding = feed(second, async |_| alive.get(), || fed.set(fed.get() + 1));
        let observing = async {
            tokio::time::sleep(second * 2 + second / 2).await;
            assert_eq!(fed.get(), 3);
            alive.set(false);
            tokio::time::sleep(second * 5).await;
            assert_eq!(fed.get(), 3);
        };
        tokio::select! { never = feeding => match never {}, () = observing => {} }
    }
}
