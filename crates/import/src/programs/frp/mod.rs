//! frp: `frps` and `frpc`, in TOML, YAML, JSON and the earlier INI.
//!
//! Each `frpc` file is a client, and files with different servers make one client (`several`). A
//! file without a server of its own belongs to the client before it, as included files do. The
//! secret services of all files are matched by their names.

mod client;
mod legacy;
mod plugin;
mod proxy;
mod server;
mod several;
mod table;
mod visitor;

use crate::Options;
use crate::address::name;
use crate::plan::{Plan, VARIABLE};
use crate::section::{Book, Read, Section};
use crate::tree::{Kind, Node};

pub(super) use table::ROWS;

/// Keys that only a server has.
const OF_SERVER: [&str; 9] = [
    "bindPort",
    "bindAddr",
    "kcpBindPort",
    "quicBindPort",
    "proxyBindAddr",
    "vhostHTTPPort",
    "vhostHTTPSPort",
    "subDomainHost",
    "allowPorts",
];

/// Keys that only a client has.
const OF_CLIENT: [&str; 3] = ["serverAddr", "serverPort", "natHoleStunServer"];

pub(super) fn fits(root: &Node) -> bool {
    let typed = |list: &str| {
        root.entry(list).is_some_and(|entry| entry.node.items().any(|item| item.has("type")))
    };
    let has = |keys: &[&str]| keys.iter().any(|key| root.has(key));
    legacy::is_legacy(root)
        || has(&OF_SERVER)
        || has(&OF_CLIENT)
        || typed("proxies")
        || typed("visitors")
}

/// The tree in the form of the later formats, with templates replaced by variables.
pub(super) fn prepared(root: Node) -> Node {
    let root = if legacy::is_legacy(&root) { legacy::converted(root) } else { root };
    filled(root)
}

fn filled(node: Node) -> Node {
    let kind = match node.kind {
        Kind::Text(text) => Kind::Text(variables(&text)),
        Kind::List(items) => Kind::List(items.into_iter().map(filled).collect()),
        Kind::Map(mut entries) => {
            for entry in &mut entries {
                let empty = Node::new(entry.line, Kind::Nothing);
                entry.node = filled(std::mem::replace(&mut entry.node, empty));
            }
            Kind::Map(entries)
        }
        Kind::Nothing => Kind::Nothing,
    };
    Node::new(node.line, kind)
}

/// `{{ .Envs.NAME }}` as a variable of ours.
fn variables(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{")
        && let Some((inside, behind)) = after.split_once("}}")
    {
        out.push_str(before);
        let inside_name = inside.trim().trim_matches('-').trim().strip_prefix(".Envs.");
        let plain = |name: &&str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        match inside_name.filter(plain) {
            Some(name) => {
                out.push(VARIABLE);
                out.push_str(&format!("{{{name}}}"));
            }
            None => out.push_str(&format!("{{{{{inside}}}}}")),
        }
        rest = behind;
    }
    out + rest
}

/// A secret service of a client.
#[derive(Debug)]
pub(super) struct Secret<'a> {
    client: usize,
    user: &'a str,
    /// The name in the source, and ours.
    wanted: &'a str,
    name: String,
    key: &'a str,
    /// The users that may visit; none: only the same user.
    users: Vec<&'a str>,
    section: Section<'a>,
    is_udp: bool,
}

/// A file of a client.
struct OfClient<'a> {
    client: usize,
    user: &'a str,
    section: Section<'a>,
}

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    let (mut domain, mut files) = (options.domain.as_deref(), Vec::new());
    for source in sources {
        let section = source.section(book);
        if OF_SERVER.iter().any(|key| section.has(key)) {
            plan.server.sources.push(source.name.clone());
            if let Some(host) = server::map(&section, plan) {
                domain = domain.or(Some(host));
            }
            continue;
        }
        let is_own = OF_CLIENT.iter().chain(&["user", "auth"]).any(|key| section.has(key));
        let user = section.text("user");
        if is_own || plan.clients.is_empty() {
            let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty()).or(user);
            let client = plan.client(wanted, &source.name);
            client::map(&section, client);
        } else if let Some(client) = plan.clients.last_mut() {
            client.sources.push(source.name.clone());
        }
        let client = plan.clients.len() - 1;
        let earlier = files.iter().rev().find(|f: &&OfClient<'_>| f.client == client);
        if let Some(file) = earlier {
            // Whether the preceding file includes this file.
            file.section.mark("includes");
        }
        let user = user.or_else(|| earlier.map(|file| file.user)).unwrap_or_default();
        files.push(OfClient { client, user, section });
    }
    let mut secrets = Vec::new();
    for file in &files {
        let start = file.section.texts("start");
        for section in file.section.sections("proxies") {
            let named = section.text("name").unwrap_or("unnamed");
            if section.flag("enabled") == Some(false)
                || (!start.is_empty() && !start.contains(&named))
            {
                section.lacks_all("frpc does not start it, and no service is written", "");
                continue;
            }
            let target = proxy::Place { domain, client: file.client, user: file.user };
            secrets.extend(proxy::map(section, named, &target, plan));
        }
    }
    visitor::map(&files, secrets, plan);
    // With `--server` all files dial one server.
    if options.server.is_none() {
        let users: Vec<_> = files.iter().map(|file| file.user).collect();
        several::join(plan, &users, book);
    }
}

/// The client name for a user of frp.
fn client_of(user: &str, files: &[OfClient<'_>], plan: &Plan) -> String {
    let found = files.iter().find(|file| file.user == user);
    found.map_or_else(
        || name(if user.is_empty() { "home" } else { user }),
        |file| plan.clients[file.client].name.clone(),
    )
}
