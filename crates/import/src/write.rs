//! The files of a plan.

use std::fmt;

use config::edit::{SECRET, Value, file, show};

use crate::address::name;
use crate::plan::{Admitted, Client, Keys, Plan, Proxy, Rights, Service, map, set, text, texts};
use crate::{Finding, Program};

/// A file to write.
#[derive(Clone)]
pub struct File {
    /// The name of the file.
    pub name: String,
    /// The content.
    pub text: String,
    /// The content without secrets, for a terminal.
    pub shown: String,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The name of the file of a proxy.
pub(crate) const PROXY: &str = "proxy.yaml";

/// The longest line of a comment.
const WIDTH: usize = 98;

pub(crate) fn files(program: Program, plan: &Plan, findings: &[Finding]) -> Vec<File> {
    let head = |what: &str, sources: &[String]| head(program, what, sources, findings);
    let one = |name: String, head: String, keys: &Keys| {
        let text = file(keys);
        let shown = match show(&name, &text) {
            Ok(Value::Map(keys)) => file(&keys),
            _ => format!("{SECRET}\n"),
        };
        File { name, text: format!("{head}{text}"), shown: head + &shown }
    };
    if let Some(proxy) = &plan.proxy {
        let head = head("proxy", &proxy.sources);
        return vec![one(PROXY.to_owned(), head, &self::proxy(proxy))];
    }
    let server_head = head("server", &plan.server.sources);
    let mut files = vec![one("server.yaml".to_owned(), server_head, &server(plan))];
    for client in &plan.clients {
        let head = head("client", &client.sources);
        files.push(one(client_file(plan, client), head, &self::client(client, plan)));
    }
    let whole = |name: &str, text: String| File {
        name: name.to_owned(),
        text,
        shown: format!("{SECRET}\n"),
    };
    if let Some(made) = &plan.certificate {
        let certificate = made.certificate.clone();
        files.push(File {
            name: "server.crt".into(),
            text: certificate.clone(),
            shown: certificate,
        });
        files.push(whole("server.key", made.key.clone()));
    }
    files.extend(plan.tokens.iter().map(|(name, token)| whole(name, format!("{token}\n"))));
    files
}

/// The name of a client's file.
pub(crate) fn client_file(plan: &Plan, client: &Client) -> String {
    match plan.clients.as_slice() {
        [_] => "client.yaml".to_owned(),
        _ => format!("client-{}.yaml", client.name),
    }
}

/// The comment at the top of a file.
fn head(program: Program, what: &str, sources: &[String], findings: &[Finding]) -> String {
    let from = if sources.is_empty() { String::new() } else { format!(": {}", sources.join(", ")) };
    let mut lines =
        format!("# Made by `tunnel import` for a {what} in the place of {program}{from}\n");
    let of = |finding: &&Finding| sources.contains(&finding.file);
    let mut found = findings.iter().filter(of).peekable();
    if found.peek().is_some() {
        lines.push_str("# What has no counterpart here, or needs a look:\n");
    }
    for finding in found {
        lines.push_str(&wrapped(&finding.to_string()));
    }
    lines
}

/// An item of a comment over as many lines as it needs.
fn wrapped(text: &str) -> String {
    let (mut out, mut line) = (String::new(), "# -".to_owned());
    for word in text.split_whitespace() {
        if line.len() + word.len() >= WIDTH && line.len() > 3 {
            out.push_str(&line);
            out.push('\n');
            line = "#  ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}

pub(crate) fn proxy(proxy: &Proxy) -> Keys {
    let entries = proxy.entries.iter().cloned().map(Value::Map).collect();
    let mut keys = vec![("proxies".to_owned(), Value::List(entries))];
    keys.extend(proxy.keys.iter().cloned());
    keys
}

pub(crate) fn server(plan: &Plan) -> Keys {
    let server = &plan.server;
    let mut keys = vec![("listen".to_owned(), texts(&server.listen))];
    let own = plan.certificate.as_ref().map(|_| ("server.crt".to_owned(), "server.key".to_owned()));
    if let Some((cert, key)) = server.identity.clone().or(own) {
        set(&mut keys, "tls", map(&[("cert", text(cert)), ("key", text(key))]));
    }
    let entry = |client: &Admitted| {
        let mut entry = vec![
            ("name".to_owned(), text(&client.name)),
            ("token".to_owned(), Value::Text(client.stored.clone())),
        ];
        allow(&mut entry, &client.rights);
        Value::Map(entry)
    };
    let clients: Vec<_> = server.clients.iter().map(entry).collect();
    if !clients.is_empty() {
        keys.push(("clients".to_owned(), Value::List(clients)));
    }
    if !server.http.is_empty() {
        set(&mut keys, "http.listen", texts(&server.http));
    }
    if !server.tls_routes.is_empty() {
        set(&mut keys, "tls_routes.listen", texts(&server.tls_routes));
    }
    if let Some(listen) = &server.admin {
        set(&mut keys, "admin.listen", text(listen));
        set(&mut keys, "admin.token_file", text("admin.token"));
    }
    for (key, value) in &server.keys {
        set_below(&mut keys, key, value);
    }
    keys
}

/// Sets a key, or the keys of a map in an existing map.
fn set_below(keys: &mut Keys, key: &str, value: &Value) {
    let there = keys.iter_mut().find(|(other, _)| other == key).map(|(_, value)| value);
    if let (Some(Value::Map(there)), Value::Map(more)) = (there, value) {
        for (below, value) in more {
            set_below(there, below, value);
        }
        return;
    }
    set(keys, key, value.clone());
}

fn allow(entry: &mut Keys, rights: &Rights) {
    for (kind, list) in rights.kinds() {
        if !list.is_empty() {
            set(entry, &format!("allow.{kind}"), Value::List(list.iter().map(text).collect()));
        }
    }
    if rights.shared {
        set(entry, "allow.shared", Value::Bool(true));
    }
    if rights.invite {
        set(entry, "allow.invite", Value::Bool(true));
    }
    for (key, value) in &rights.limits {
        set(entry, &format!("limits.{key}"), value.clone());
    }
}

pub(crate) fn client(client: &Client, plan: &Plan) -> Keys {
    let mut paths = Vec::new();
    let several = client.several && client.servers.len() > 1;
    for (nth, path) in client.servers.iter().enumerate() {
        let name = several.then(|| ("name", text(server_name(client, nth))));
        let sni = path.sni.as_ref().map(|sni| ("sni", text(sni)));
        paths.push(if name.is_none() && sni.is_none() {
            text(path.url())
        } else {
            let keys: Vec<_> =
                name.into_iter().chain([("url", text(path.url()))]).chain(sni).collect();
            map(&keys)
        });
    }
    let servers = if paths.len() == 1 { paths.swap_remove(0) } else { Value::List(paths) };
    let mut keys = vec![
        ("servers".to_owned(), servers),
        ("name".to_owned(), text(&client.name)),
        ("token".to_owned(), text(&client.token)),
    ];
    if let Some(made) = &plan.certificate {
        set(&mut keys, "tls.pin", text(&made.pin));
    } else if let Some(ca) = &client.ca {
        set(&mut keys, "tls.ca", text(ca));
    }
    if let Some((cert, key)) = &client.identity {
        set(&mut keys, "tls.cert", text(cert));
        set(&mut keys, "tls.key", text(key));
    }
    for (key, value) in &client.keys {
        set(&mut keys, key, value.clone());
    }
    if !client.services.is_empty() {
        let services = client.services.iter().map(service).collect();
        keys.push(("services".to_owned(), Value::List(services)));
    }
    let forward = |forward: &crate::plan::Forward| {
        let mut keys = vec![("listen".to_owned(), text(&forward.listen))];
        if let Some(target) = &forward.target {
            keys.push(("target".to_owned(), text(target)));
        }
        if let Some(token) = &forward.token {
            keys.push(("token".to_owned(), text(token)));
        }
        keys.extend(forward.keys.iter().cloned());
        Value::Map(keys)
    };
    if !client.forwards.is_empty() {
        let forwards = client.forwards.iter().map(forward).collect();
        keys.push(("forwards".to_owned(), Value::List(forwards)));
    }
    keys
}

/// The name of one of several servers: its host, if no other server has the host and if the host
/// can be a name.
pub(crate) fn server_name(client: &Client, nth: usize) -> String {
    let host = client.servers.get(nth).map(|path| path.host.as_str()).unwrap_or_default();
    let is_alone = client.servers.iter().filter(|path| path.host == host).count() == 1;
    if is_alone && name(host) == host { host.to_owned() } else { format!("server-{}", nth + 1) }
}

fn service(service: &Service) -> Value {
    let targets: Vec<&String> = std::iter::once(&service.target).chain(&service.others).collect();
    let mut keys =
        vec![("name".to_owned(), text(&service.name)), ("target".to_owned(), texts(&targets))];
    match &service.visitors {
        None => keys.push(("public".to_owned(), texts(&service.public))),
        Some(visitors) => {
            keys.push(("public".to_owned(), text("private")));
            let visitor = |visitor: &crate::plan::Visitor| match &visitor.token {
                Some(token) => map(&[("name", text(&visitor.name)), ("token", text(token))]),
                None => text(&visitor.name),
            };
            let visitors = visitors.iter().map(visitor).collect();
            keys.push(("visitors".to_owned(), Value::List(visitors)));
        }
    }
    keys.extend(service.keys.iter().cloned());
    Value::Map(keys)
}
