//! Checks `via` of paths: a path to a server through another server of the client.

use crate::BadValue;
use crate::model::Path;
use crate::problem::unknown;
use crate::section::{Cx, Item};

/// The hint where a client has no other server.
const EXAMPLE: &str = "servers: [{ name: fra, paths: [URL, { url: URL, via: nyc }] }, \
                       { name: nyc, paths: [URL] }]";

/// The paths to a server, and where they have `via`.
pub(super) struct Detours<'a> {
    /// The name of the server. Empty for a client that has this server alone.
    pub(super) name: &'a str,
    /// The paths to the server.
    pub(super) paths: &'a [Path],
    /// The values of `via` in the paths.
    pub(super) values: &'a [(Item, String)],
}

/// Reports each path that leads through a server that cannot lead to another server: a server that
/// the client does not have, the server of the path itself, or a server that the client reaches
/// through other servers alone. So a path leads through one server, and no path leads in a circle.
pub(super) fn check(cx: &Cx<'_>, servers: &[Detours<'_>]) {
    for server in servers {
        for (item, via) in server.values {
            if let Some(bad) = problem(server, via, servers) {
                cx.problem(item.at(), &item.path, bad);
            }
        }
    }
}

fn problem(server: &Detours<'_>, via: &str, all: &[Detours<'_>]) -> Option<BadValue> {
    if all.len() < 2 {
        return Some(BadValue::new(format!("no other server is named {via}")).hint(EXAMPLE));
    }
    if via == server.name {
        let bad = BadValue::new(format!("a path to server {via} through itself"));
        return Some(bad.hint("`via` names another server of this client"));
    }
    let Some(other) = all.iter().find(|other| other.name == via) else {
        let known: Vec<_> = all.iter().map(|other| other.name).collect();
        let known: Vec<_> = known.into_iter().filter(|name| *name != server.name).collect();
        return Some(unknown(&format!("server `{via}`"), via, &known));
    };
    if other.paths.iter().all(|path| path.via.is_some()) {
        let text = format!("server {via} is itself reached through other servers alone");
        let hint =
            format!("give server {via} a path without `via`: a path leads through one server");
        return Some(BadValue::new(text).hint(hint));
    }
    None
}
