//! Decodes `servers`: the paths to one server, or several servers with names.

use std::collections::BTreeMap;

use super::paths::Shared;
use super::via::{self, Detours};
use crate::BadValue;
use crate::key_table::KeyTable as _;
use crate::model::{ClientConfig, Path, SERVERS_MAX, ServerPaths, credentials};
use crate::section::{Cx, Item, Section};
use crate::values;

/// A decoded server.
pub(super) struct ReadServer {
    pub(super) paths: ServerPaths,
    /// The server has a token of its own, even if the token is invalid.
    pub(super) has_token: bool,
}

/// The long form of an entry: `fra=tls://fra.example.com` is a server with a name. A URL may have
/// `=` behind its scheme.
fn long(item: Item) -> Item {
    let is_pair = item.node.text().is_some_and(|text| {
        text.split_once('=').is_some_and(|(name, _)| values::name(name.trim()).is_ok())
    });
    if is_pair { item.pair(["name", "url"], None) } else { item }
}

/// Decodes `servers`. An entry with `name` or `paths` is a server, any other entry is a path.
pub(super) fn servers(s: &Section<'_>) -> Vec<ReadServer> {
    let shared = Shared::of(s);
    let items: Vec<Item> = s.one_or_list("servers").into_iter().map(long).collect();
    let mut sources = ["servers_from", "srv"].into_iter().filter(|key| s.has(key));
    match (sources.next(), sources.next()) {
        (Some(_), Some(second)) => {
            let bad = BadValue::new("servers_from and srv together");
            s.bad(second, bad.hint("keep one of them"));
        }
        (Some(source), None) if s.has("servers") => {
            let bad = BadValue::new(format!("servers and {source} together"));
            s.bad(source, bad.hint(format!("keep one of them: {source} names all servers")));
        }
        (Some(_), None) => return Vec::new(),
        (None, _) if items.is_empty() => {
            s.missing("servers", "for example [\"tls://example.com:7000\"]");
        }
        (None, _) => {}
    }
    let has = |item: &Item, key| Section::quiet(s.cx, item.clone()).is_some_and(|own| own.has(key));
    let is_server = |item: &Item| has(item, "name") || has(item, "paths");
    let (of_servers, of_paths): (Vec<_>, Vec<_>) = items.into_iter().partition(is_server);
    let found = match (of_servers.first(), of_paths.first()) {
        (None, _) => {
            let paths = shared.paths(s.cx, of_paths, Path::MAP);
            let (name, values) = ("", &*shared.take_vias());
            via::check(s.cx, &[Detours { name, paths: &paths, values }]);
            let alone = ServerPaths { name: None, token: None, paths };
            let is_empty = alone.paths.is_empty();
            if is_empty { Vec::new() } else { vec![ReadServer { paths: alone, has_token: false }] }
        }
        (Some(_), Some(path)) => {
            let bad = BadValue::new("a path beside servers with names");
            let hint = "an entry for each server: { name: NAME, paths: [URL] }";
            s.cx.problem(path.at(), &path.path, bad.hint(hint));
            Vec::new()
        }
        (Some(_), None) => {
            if of_servers.len() > SERVERS_MAX {
                s.bad("servers", BadValue::new(format!("more than {SERVERS_MAX} servers")));
                return Vec::new();
            }
            named(s.cx, of_servers, &shared)
        }
    };
    shared.check(found.iter().flat_map(|server| &server.paths.paths));
    found
}

/// Decodes servers with names. Two servers have neither the same name nor the same address.
fn named(cx: &Cx<'_>, items: Vec<Item>, shared: &Shared<'_>) -> Vec<ReadServer> {
    let mut found: Vec<ReadServer> = Vec::new();
    let mut vias = Vec::new();
    let mut addresses: BTreeMap<String, String> = BTreeMap::new();
    for item in items {
        let Some(s) = Section::open(cx, item.clone(), ServerPaths::MAP) else { continue };
        let server = server(&s, item, shared);
        let values = shared.take_vias();
        let Some(server) = server else { continue };
        vias.push(values);
        let name = server.paths.name.clone().unwrap_or_default();
        if found.iter().any(|other| other.paths.name.as_deref() == Some(&*name)) {
            let bad = BadValue::new(format!("a second server named {name}"));
            let key = if s.has("name") { "name" } else { "paths" };
            s.bad(key, bad.hint("names are unique: give one of them another `name`"));
        }
        let mut own: Vec<_> =
            server.paths.paths.iter().map(|path| path.endpoint.to_string()).collect();
        own.sort_unstable();
        own.dedup();
        for address in own {
            if let Some(other) = addresses.insert(address.clone(), name.clone()) {
                let bad = BadValue::new(format!("{address} is a path of server {other} as well"));
                s.bad("paths", bad.hint("one entry for each server: remove one of the paths"));
            }
        }
        found.push(server);
    }
    let detours = found.iter().zip(&vias).map(|(server, values)| Detours {
        name: server.paths.name.as_deref().unwrap_or_default(),
        paths: &server.paths.paths,
        values,
    });
    via::check(cx, &detours.collect::<Vec<_>>());
    found
}

/// Decodes an entry: a server with `paths`, or with the one path whose keys are in the entry.
fn server(s: &Section<'_>, item: Item, shared: &Shared<'_>) -> Option<ReadServer> {
    let own = s.value("name", values::name);
    let has_token = s.has("token") || s.has("token_file");
    let token = credentials::tokens(s, 1, credentials::Kept::Plain, None).pop();
    let paths = if s.has("paths") {
        let keys = ServerPaths::MAP.at(None).into_iter().map(|row| row.key);
        let of_server = ["name", "paths", "token", "token_file"];
        for key in keys.filter(|key| !of_server.contains(key) && s.has(key)) {
            let bad = BadValue::new(format!("`{key}` beside `paths`"));
            s.bad(key, bad.hint("it is a setting of a path: paths: [{ url: URL, … }]"));
        }
        shared.paths(s.cx, s.one_or_list("paths"), Path::MAP)
    } else {
        shared.paths(s.cx, vec![item], ServerPaths::MAP)
    };
    if paths.is_empty() {
        if s.has("paths") && s.one_or_list("paths").is_empty() {
            s.bad("paths", BadValue::new("a server has at least one path"));
        }
        return None;
    }
    let name = match own {
        Some(name) => name,
        // The problem of the name was reported.
        None if s.has("name") => return None,
        None => {
            let host = ServerPaths { name: None, token: None, paths: paths.clone() }.label();
            match values::name(&host) {
                Ok(name) => name,
                Err(_) => {
                    s.missing("name", "a server whose host is no name needs one, for example fra");
                    return None;
                }
            }
        }
    };
    Some(ReadServer { paths: ServerPaths { name: Some(name), token, paths }, has_token })
}

/// Reports each service and each forward that names a server that the client does not have.
pub(super) fn check_names(
    s: &Section<'_>,
    config: &ClientConfig,
    entry_of: impl Fn(&str) -> Option<Item>,
) {
    for service in &config.services {
        let Some(bad) = config.unknown_server(service) else { continue };
        match entry_of(&service.name).and_then(|item| Section::quiet(s.cx, item)) {
            Some(entry) => entry.bad("servers", bad),
            None => s.bad("services", bad),
        }
    }
    for forward in &config.forwards {
        let Some(bad) = config.unknown_server_of(forward) else { continue };
        let name = forward.server.as_deref();
        let mut entries = s.list("forwards").into_iter();
        let names_it = |item: &Item| {
            let own = Section::quiet(s.cx, item.clone());
            own.and_then(|own| own.key("server")).is_some_and(|item| item.node.text() == name)
        };
        match entries.find(names_it).and_then(|item| Section::quiet(s.cx, item)) {
            Some(entry) => entry.bad("server", bad),
            None => s.bad("forwards", bad),
        }
    }
}
