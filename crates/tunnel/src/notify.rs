//! Messages to systemd (`Type=notify`): ready, reloading, stopping, alive. Without systemd the
//! functions do nothing.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use sd_notify::NotifyState;

/// Reports that the daemon serves.
pub(crate) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports the path of the control socket, for `tunnel run`. systemd passes over the field.
pub(crate) fn control(path: &Path) {
    send(&[NotifyState::Custom(&format!("{CONTROL}={}", path.display()))]);
}

/// The field with the path of the control socket. Names of fields that systemd does not define begin
/// with `X_` (sd_notify(3)).
pub(crate) const CONTROL: &str = "X_TUNNEL_CONTROL";

/// Reports that the daemon reads its configuration again. A following [`ready`] reports the end.
pub(crate) fn reloading() {
    // `Type=notify-reload` needs the current time as well (sd_notify(3)).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// Reports that the daemon drains, and asks systemd to wait at least `limit` from now on. The
/// message holds at most 71 minutes (32 bits of microseconds).
pub(crate) fn stopping(limit: Duration) {
    let micros = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
    send(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("draining"),
    ]);
}

/// Feeds the watchdog, if systemd has one for this unit, while `alive` returns true. Never returns.
/// It feeds three times per watchdog period, so that one late answer does not end the daemon.
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
