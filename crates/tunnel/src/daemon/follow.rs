//! The sources of changes that the daemon watches while it runs: SIGHUP, the configuration file,
//! certificates.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use logging::AUDIT;
use ops::status::FormerProcess;
use ops::{Reloaded, Settings};

use super::running::RunningDaemon;
use crate::input::Input;
use crate::upgrade::{Formers, Listed};
use crate::watch::{self, Seen};

/// Longest pause between two attempts to load certificates that do not work.
const RENEW_MAX: Duration = Duration::from_secs(60);

/// Shortest interval between two lines about suppressed lines: short enough to be noticed, and at
/// most 1,440 lines a day.
const LEFT_OUT: Duration = Duration::from_secs(60);

/// The interval of checks of former processes.
const FORMER_LOOK: Duration = Duration::from_millis(500);

/// Longest interval between two checks of the clock, which may be set, and which goes on while the
/// machine sleeps.
const CLOCK: Duration = Duration::from_secs(60);

/// Reloads at each SIGHUP. The log and the status contain the result.
pub(super) async fn reload_when_asked(running: Arc<RunningDaemon>) {
    loop {
        running.life.reload_asked().await;
        let _ = running.reload().await;
    }
}

/// Reports from time to time how many lines were suppressed, because peers caused too many.
pub(super) async fn tell_left_out_lines() {
    loop {
        tokio::time::sleep(LEFT_OUT).await;
        logging::tell_left_out();
    }
}

/// Withdraws the services of a client when they expire, or when the commands that share them have
/// exited.
pub(super) async fn end_services(running: Arc<RunningDaemon>) {
    if running.role.lists_in_force().is_none() {
        return;
    }
    loop {
        let next = running.end_services().await;
        let pause = next.map_or(CLOCK, |at| at.since(SystemTime::now()).min(CLOCK));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = running.lists_changed.notified() => {}
            () = running.share_ended() => running.end_shares().await,
        }
    }
}

/// Asks surplus or too old former processes to end.
pub(super) async fn bound_formers(running: Arc<RunningDaemon>, formers: Arc<Formers>) {
    let mut asked = BTreeSet::new();
    let mut over = std::pin::pin!(formers.ended());
    loop {
        tokio::select! {
            () = &mut over => return,
            () = tokio::time::sleep(FORMER_LOOK) => {}
        }
        let (most, longest) = (running.most_formers(), running.role.common().upgrade.longest);
        let longest = longest.map(|span| span.duration());
        // The newest process is first.
        for (nth, Listed { process, .. }) in formers.listed().into_iter().enumerate() {
            let FormerProcess { pid, seconds, waits_for, ending, .. } = process;
            let is_old = longest.is_some_and(|longest| Duration::from_secs(seconds) >= longest);
            if ending || !(is_old || nth >= most) || !asked.insert(pid) {
                continue;
            }
            let why = if is_old { "upgrade.former_for" } else { "upgrade.former_max" };
            tracing::warn!(
                target: AUDIT, pid,
                "the former process {pid} is asked to end within drain_timeout, because of {why} \
                 (it waits for {waits_for})"
            );
            formers.end(pid, false).await;
        }
    }
}

/// Reloads when the configuration file has changed, or a file that is part of the configuration, if
/// the key `watch` is set.
pub(super) async fn watch_configuration(running: Arc<RunningDaemon>, file: PathBuf) {
    let look = async || {
        let common = running.role.common();
        let mut files = vec![file.clone()];
        files.extend(common.watched);
        if common.watch && running.reload_error().is_some() {
            files.extend(refused_lists(file.clone()).await);
        }
        Seen::look(files).await
    };
    let mut seen = look().await;
    let mut last = seen.clone();
    loop {
        tokio::time::sleep(watch::LOOK).await;
        let now = look().await;
        seen.follow(&now);
        // Two equal results in a row mean that no program is still writing the file.
        if now == last && now != seen {
            seen = now.clone();
            if running.role.common().watch {
                let _ = running.reload().await;
                // The reload may have read other files, which may change before the next check.
                seen.follow(&look().await);
            }
        }
        last = now;
    }
}

/// The files of lists that a refused configuration names: the repair of one of them may be all that
/// the configuration needs.
async fn refused_lists(file: PathBuf) -> Vec<PathBuf> {
    let lists = move || Input::read(Some(&file), None).map(|input| input.list_files());
    // Without a readable file, the file itself must change first.
    tokio::task::spawn_blocking(lists).await.ok().and_then(Result::ok).unwrap_or_default()
}

/// Publishes the users of `basic_auth_file` again when the file has changed.
pub(super) async fn renew_users(running: Arc<RunningDaemon>) {
    let look = || Seen::look(running.role.user_files());
    let mut seen = look().await;
    let mut last = seen.clone();
    loop {
        tokio::time::sleep(watch::LOOK).await;
        let now = look().await;
        let is_whole = now == std::mem::replace(&mut last, now.clone());
        // Two equal results in a row mean that no program is still writing the file.
        if !is_whole || now == seen {
            continue;
        }
        let turn = running.turn.lock().await;
        seen = now;
        match running.role.renew_users().await {
            // A reload has already read the file.
            Ok(done) if done == Reloaded::default() => {}
            Ok(done) if done.failed.is_empty() => {
                tracing::info!(target: AUDIT, "the users of basic_auth_file have changed: {done}");
            }
            Ok(done) => {
                tracing::error!(target: AUDIT, "the users of basic_auth_file have changed: {done}");
            }
            Err(why) => tracing::warn!(
                "a basic_auth_file has changed, but the former users stay in force: {why:#}"
            ),
        }
        drop(turn);
    }
}

/// Loads certificates again when their files have changed.
pub(super) async fn renew_certificates(running: Arc<RunningDaemon>) {
    let mut seen = Seen::look(running.role.certificates().files()).await;
    let (mut tried, mut reloads, mut pause) = (None, 0, watch::LOOK);
    let mut said = None;
    loop {
        tokio::time::sleep(pause).await;
        pause = watch::LOOK;
        let now = Seen::look(running.role.certificates().files()).await;
        let turn = running.turn.lock().await;
        // A reload loads the certificates as well, but possibly before their files were replaced.
        // So the files are still compared after a reload.
        if std::mem::replace(&mut reloads, *turn) != reloads {
            tried = None;
        }
        if now == seen {
            continue;
        }
        match running.role.certificates().renew().await {
            Ok(()) => {
                tracing::info!(target: AUDIT, "the certificates have changed; new connections get the new ones");
                (seen, tried, said) = (now, None, None);
            }
            // The key file may be replaced a moment after its certificate. The warning appears once
            // per reason, and the pause between attempts doubles while the files do not change.
            Err(why) => {
                let why = format!("{why:#}");
                if said.as_ref() != Some(&why) {
                    tracing::warn!(
                        "the certificate files have changed, but the former certificates stay in use: {why}"
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
