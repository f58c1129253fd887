//! `tunnel move`: the links of the client take another path to their server.

use std::rc::Rc;

use anyhow::{Context as _, bail, ensure};
use node::session::{Handle, Worker};
use ops::moving::{MovedLink, MovedLinks, UnmovedLink};
use tokio::task::JoinSet;

use super::links::PathName;
use super::uplink::Uplinks;

/// Moves the links, as [`ops::Mover::move_links`] specifies. With several servers, the links of
/// those servers move that have the path.
pub(super) async fn move_links(
    uplinks: &Uplinks,
    handles: &[Handle],
    to: Option<String>,
) -> anyhow::Result<MovedLinks> {
    let all: Vec<_> = uplinks.all().iter().map(|uplink| uplink.links()).collect();
    let paths: Vec<&PathName> = all.iter().flat_map(|links| &links.paths).collect();
    let to = match to {
        Some(text) => Some(label(&paths, &text)?),
        None => {
            ensure!(
                all.iter().any(|links| links.paths.len() > 1),
                "the client has one path to its server (hint: `servers` may list several)"
            );
            None
        }
    };
    let mut parts = JoinSet::new();
    for links in &all {
        let has_it = |to: &String| links.paths.iter().any(|path| path.label == *to);
        if !to.as_ref().is_none_or(has_it) || to.is_none() && links.paths.len() < 2 {
            continue;
        }
        let session = links.session.id;
        for handle in handles {
            let (handle, to) = (handle.clone(), to.clone());
            parts.spawn(
                async move { handle.task(move |worker| move_of(worker, session, to)).await },
            );
        }
    }
    let mut outcome = MovedLinks::default();
    while let Some(part) = parts.join_next().await {
        // A worker that has stopped has no links.
        let Ok(Ok(part)) = part else { continue };
        outcome.moved.extend(part.moved);
        outcome.failed.extend(part.failed);
    }
    outcome.moved.sort_by_key(|link| link.link);
    outcome.failed.sort_by_key(|link| link.link);
    ensure!(
        !outcome.moved.is_empty() || !outcome.failed.is_empty(),
        "no link is connected now (hint: `tunnel status` says why)"
    );
    Ok(outcome)
}

/// The label of the path that `text` names: a label, or the URL of one path.
fn label(paths: &[&PathName], text: &str) -> anyhow::Result<String> {
    if paths.iter().any(|path| path.label == text) {
        return Ok(text.to_owned());
    }
    let list = |paths: &mut dyn Iterator<Item = &PathName>| {
        paths.map(|path| path.label.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut of_url = paths.iter().copied().filter(|path| path.url == text);
    let first = of_url.next().with_context(|| {
        let all = list(&mut paths.iter().copied());
        format!("no path `{text}` (hint: the paths of this client are {all})")
    })?;
    if of_url.next().is_some() {
        let all = list(&mut paths.iter().copied().filter(|path| path.url == text));
        bail!("several paths have the URL {text} (hint: name one of {all})");
    }
    Ok(first.label.clone())
}

/// Moves the links of a session on a worker, all at once.
pub(super) async fn move_of(worker: Rc<Worker>, session: u64, to: Option<String>) -> MovedLinks {
    let mut moves = JoinSet::new();
    for (_, link) in worker.state.links_of(session) {
        let to = to.clone();
        moves.spawn_local(async move { (link.serial(), link.move_to(to.as_deref()).await) });
    }
    let mut outcome = MovedLinks::default();
    while let Some(done) = moves.join_next().await {
        match done {
            Ok((link, Ok(moved))) => {
                outcome.moved.push(MovedLink { link, from: moved.from, to: moved.to });
            }
            Ok((link, Err(error))) => {
                outcome.failed.push(UnmovedLink { link, error: error.to_string() });
            }
            // The task of a link panicked, which the log says.
            Err(_) => {}
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(url: &str, extras: &str) -> PathName {
        PathName { url: url.to_owned(), label: format!("{url}{extras}") }
    }

    #[test]
    fn a_path_is_named_by_its_url_or_by_its_label() {
        let wired = path("tls://a:1", " (interface eth0)");
        let (radio, other) = (path("tls://a:1", " (interface wlan0)"), path("quic://a:1", ""));
        let paths = [&wired, &radio, &other];
        assert_eq!(label(&paths, "quic://a:1").unwrap(), "quic://a:1");
        assert_eq!(label(&paths[1..], "tls://a:1").unwrap(), radio.label);
        assert_eq!(label(&paths, &wired.label).unwrap(), wired.label);
        let several = label(&paths, "tls://a:1").unwrap_err().to_string();
        assert!(several.contains("name one of tls://a:1 (interface eth0), tls://a:1 (interface"));
        assert!(!several.contains("quic"), "{several}");
        let unknown = label(&paths, "tls://b:1").unwrap_err().to_string();
        assert!(unknown.contains("no path `tls://b:1`") && unknown.contains("quic://a:1"));
    }
}
