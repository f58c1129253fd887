//! What the daemon follows by itself while it runs: a signal, the configuration's file,
//! certificates.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use logging::AUDIT;
use ops::Daemon;

use super::told::RunningDaemon;
use crate::watch::{self, Seen};

/// Longest pause between attempts at certificates that do not work.
const RENEW_MAX: Duration = Duration::from_secs(60);

/// By SIGHUP. The outcome is in the log and in the status.
pub(super) async fn reload_when_asked(told: Arc<RunningDaemon>) {
    loop {
        told.life.reload_asked().await;
        let _ = told.reload().await;
    }
}

/// Reloads when the configuration's file has changed, if that is wanted.
pub(super) async fn watch_configuration(told: Arc<RunningDaemon>, file: PathBuf) {
    let look = || Seen::look(vec![file.clone()]);
    let mut seen = look().await;
    let mut last = seen.clone();
    loop {
        tokio::time::sleep(watch::LOOK).await;
        let now = look().await;
        // Twice the same: nobody is in the middle of writing it.
        if now == last && now != seen {
            seen = now.clone();
            if told.role.common().watch {
                let _ = told.reload().await;
            }
        }
        last = now;
    }
}

/// Looks for certificates that somebody has put in the place of those that are shown.
pub(super) async fn renew_certificates(told: Arc<RunningDaemon>) {
    let mut seen = Seen::look(told.role.certificates()).await;
    let (mut tried, mut reloads, mut pause) = (None, 0, watch::LOOK);
    let mut said = None;
    loop {
        tokio::time::sleep(pause).await;
        pause = watch::LOOK;
        let now = Seen::look(told.role.certificates()).await;
        let turn = told.turn.lock().await;
        // A reload has read them, but perhaps before they were replaced: they are looked at as
        // ever.
        if std::mem::replace(&mut reloads, *turn) != reloads {
            tried = None;
        }
        if now == seen {
            continue;
        }
        match told.role.renew().await {
            Ok(()) => {
                tracing::info!(target: AUDIT, "the certificates have changed; new connections get the new ones");
                (seen, tried, said) = (now, None, None);
            }
            // The key may follow its certificate in a moment. Until then it is said once, and where
            // nothing changes any more it is tried less and less often.
            Err(why) => {
                let why = format!("{why:#}");
                if said.as_ref() != Some(&why) {
                    tracing::warn!(
                        "the certificates have changed, and those of before stay: {why}"
                    );
                }
                said = Some(why);
                let (last, waited) = tried.unwrap_or_else(|| (Seen::default(), watch::LOOK));
                pause = if last == now { (waited * 2).min(RENEW_MAX) } else { watch::LOOK };
                tried = Some((now, pause));
            }
        }
    }
}
