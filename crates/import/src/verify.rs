//! Our own decoder reads the files before they are shown or written. A part that it refuses is left
//! out and becomes a finding, so that every import passes `tunnel check`.
//!
//! A refused service is left out as a whole: without one of its keys it might be more open than in
//! the source.

use std::collections::BTreeSet;

use config::edit::file;
use config::{
    ClientFlags, Problem, ProxyFlags, Role, ServerFlags, Sources, Text, load_client, load_proxy,
    load_server,
};

use crate::plan::{Keys, PORT, Path, Plan, UNKNOWN};
use crate::section::Book;
use crate::{Failure, write};

/// A placeholder token for variables and files that are not on this machine.
const TOKEN: &str = "Kw5vN1xTq8Zr3LbYc6MsPd2GhJ9fUe4a";

/// Leaving out one part can make another invalid, such as a target without its service.
const ROUNDS: usize = 8;

/// Decodes a file as our daemons do. Returns a summary of the result.
pub(crate) fn check(name: &str, text: &str) -> Result<Vec<String>, Vec<Problem>> {
    let sources = Sources { env: &|_| Some(TOKEN.to_owned()), read: &|_| Ok(TOKEN.to_owned()) };
    let file = Some(Text { name, text });
    match (name.ends_with(".yaml"), Role::of(text)) {
        (false, _) => Ok(Vec::new()),
        (true, Some(Role::Server)) => {
            load_server(file, &ServerFlags::default(), &sources).map(|it| it.config.summary())
        }
        (true, Some(Role::Proxy)) => {
            load_proxy(file, &ProxyFlags::default(), &sources).map(|it| it.config.summary())
        }
        (true, Some(Role::Client) | None) => {
            load_client(file, &ClientFlags::default(), &sources).map(|it| it.config.summary())
        }
    }
}

/// Leaves out the parts of the clients' files that the decoder refuses.
pub(crate) fn settle_clients(plan: &mut Plan, book: &Book) -> Result<(), Failure> {
    for n in 0..plan.clients.len() {
        rounds(plan, |plan| {
            let text = file(&write::client(&plan.clients[n], plan));
            let problems = check("client.yaml", &text).err()?;
            leave_out_of_client(plan, n, &problems, book);
            Some(problems)
        })?;
    }
    Ok(())
}

/// Leaves out the parts of the server's file that the decoder refuses.
pub(crate) fn settle_server(plan: &mut Plan, book: &Book) -> Result<(), Failure> {
    rounds(plan, |plan| {
        let text = file(&write::server(plan));
        let problems = check("server.yaml", &text).err()?;
        leave_out_of_server(plan, &problems, book);
        Some(problems)
    })
}

/// Leaves out the parts of a proxy's file that the decoder refuses. A refused entry is left out as
/// a whole.
pub(crate) fn settle_proxy(plan: &mut Plan, book: &Book) -> Result<(), Failure> {
    rounds(plan, |plan| {
        let proxy = plan.proxy.as_mut()?;
        let problems = check(write::PROXY, &file(&write::proxy(proxy))).err()?;
        let mut entries = BTreeSet::new();
        for problem in &problems {
            let (key, index, _) = first(&problem.key_path);
            report(book, proxy.sources.first(), &problem.key_path, problem);
            match index.filter(|_| key == "proxies") {
                Some(index) => drop(entries.insert(index)),
                None => drop_key(&mut proxy.keys, key),
            }
        }
        remove(&mut proxy.entries, &entries);
        Some(problems)
    })
}

fn rounds(
    plan: &mut Plan,
    mut round: impl FnMut(&mut Plan) -> Option<Vec<Problem>>,
) -> Result<(), Failure> {
    for _ in 0..ROUNDS {
        if round(plan).is_none() {
            return Ok(());
        }
    }
    match round(plan).and_then(|problems| problems.into_iter().next()) {
        None => Ok(()),
        Some(problem) => Err(Failure::Option(format!(
            "what the source says is no configuration of ours: {}: {}",
            problem.key_path, problem.message
        ))),
    }
}

/// The first key of a path, its index, and the rest of the path.
fn first(path: &str) -> (&str, Option<usize>, &str) {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (key, rest) = path.split_at(end);
    let Some(inside) = rest.strip_prefix('[') else {
        return (key, None, rest.trim_start_matches('.'));
    };
    let (index, rest) = inside.split_once(']').unwrap_or((inside, ""));
    (key, index.parse().ok(), rest.trim_start_matches('.'))
}

fn report(book: &Book, source: Option<&String>, key: &str, problem: &Problem) {
    let why = format!("our own check refuses it, and it is left out: {}", problem.message);
    let hint = problem.hint.clone().unwrap_or_default();
    let source = source.map_or("server.yaml", String::as_str);
    book.add(source, 0, key, &why, &hint);
}

fn drop_key(keys: &mut Keys, key: &str) {
    keys.retain(|(other, _)| other != key);
}

/// Removes the items with these indexes.
fn remove<T>(list: &mut Vec<T>, indexes: &BTreeSet<usize>) {
    let mut n = 0;
    list.retain(|_| {
        n += 1;
        !indexes.contains(&(n - 1))
    });
}

fn leave_out_of_client(plan: &mut Plan, n: usize, problems: &[Problem], book: &Book) {
    let client = &mut plan.clients[n];
    let (mut services, mut forwards) = (BTreeSet::new(), BTreeSet::new());
    let mut paths = BTreeSet::new();
    for problem in problems {
        let (key, index, _) = first(&problem.key_path);
        let source = client.sources.first();
        match (key, index) {
            ("services", Some(index)) => {
                if services.insert(index)
                    && let Some(service) = client.services.get(index)
                {
                    report(book, source, &format!("service {}", service.name), problem);
                }
            }
            ("forwards", Some(index)) => {
                if forwards.insert(index)
                    && let Some(forward) = client.forwards.get(index)
                {
                    report(book, source, &format!("forward {}", forward.listen), problem);
                }
            }
            ("servers", index) => {
                report(book, source, "servers", problem);
                match index {
                    Some(index) => drop(paths.insert(index)),
                    None => paths.extend(0..client.servers.len()),
                }
            }
            ("tls", _) => {
                report(book, source, "tls", problem);
                client.identity = None;
                client.ca = None;
            }
            (key, _) => {
                report(book, source, key, problem);
                drop_key(&mut client.keys, key);
                if key == "admin" {
                    client.admin = None;
                }
            }
        }
    }
    remove(&mut client.services, &services);
    remove(&mut client.forwards, &forwards);
    remove(&mut client.servers, &paths);
    if client.servers.is_empty() {
        client.servers.push(Path::new("tls", UNKNOWN, PORT));
    }
}

fn leave_out_of_server(plan: &mut Plan, problems: &[Problem], book: &Book) {
    let server = &mut plan.server;
    let (mut listen, mut rights) = (BTreeSet::new(), BTreeSet::new());
    for problem in problems {
        let (key, index, rest) = first(&problem.key_path);
        report(book, server.sources.first(), &problem.key_path, problem);
        match key {
            "listen" => {
                listen.insert(index.unwrap_or(0));
            }
            "clients" => {
                let Some(n) = index.filter(|n| *n < server.clients.len()) else { continue };
                let client = &mut server.clients[n];
                let (kind, _, below) = first(rest);
                let (right, entry, _) = first(below);
                match (kind, client.rights.kind(right), entry) {
                    ("allow", Some(_), Some(entry)) => {
                        rights.insert((n, right, entry));
                    }
                    ("allow", Some(list), None) => list.clear(),
                    _ => client.rights.limits.clear(),
                }
            }
            "http" => server.http.clear(),
            "tls_routes" => server.tls_routes.clear(),
            "admin" => server.admin = None,
            "tls" => server.identity = None,
            _ => {}
        }
        drop_key(&mut server.keys, key);
    }
    remove(&mut server.listen, &listen);
    // From the last to the first, so that the other indexes stay valid.
    for (n, right, entry) in rights.into_iter().rev() {
        if let Some(list) = server.clients[n].rights.kind(right).filter(|list| entry < list.len()) {
            list.remove(entry);
        }
    }
    if server.listen.is_empty() {
        server.listen.push(format!("tls://[::]:{PORT}"));
    }
}
