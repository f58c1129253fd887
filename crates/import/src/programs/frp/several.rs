//! Several files of `frpc` with different servers: one client with a server for each file, whose
//! proxies are published at that server.

use crate::plan::{Client, Plan, text};
use crate::section::Book;
use crate::write::server_name;

/// Makes one client of all, if each dials a server of its own as the same user with the same
/// authorities and certificate, which a client has once. Where a file has visitors, each file stays
/// a client of its own, because a visit goes over the first server that answers.
pub(super) fn join(plan: &mut Plan, users: &[&str], book: &Book) {
    if plan.clients.len() < 2 || !plan.server.sources.is_empty() {
        return;
    }
    let is_one_user = users.iter().all(|user| users.first() == Some(user));
    let has_visitors = plan.clients.iter().any(|client| !client.forwards.is_empty());
    let place = |client: &Client| {
        client.servers.first().map(|path| (path.host.to_ascii_lowercase(), path.port))
    };
    let places: Vec<_> = plan.clients.iter().map(place).collect();
    let is_apart = |(n, place): (usize, &Option<_>)| {
        place.is_some() && !places.iter().take(n).any(|other| other == place)
    };
    let identified = |client: &Client| (client.ca.clone(), client.identity.clone());
    let behind = plan.clients.iter().skip(1);
    let is_alike =
        plan.clients.iter().zip(behind).all(|(one, next)| identified(one) == identified(next));
    if !is_one_user || !is_alike || has_visitors || !places.iter().enumerate().all(is_apart) {
        return;
    }
    let mut all = std::mem::take(&mut plan.clients).into_iter();
    let Some(mut first) = all.next() else { return };
    first.several = true;
    let mut of_server = vec![first.services.len()];
    for next in all {
        of_server.push(next.services.len());
        take(&mut first, next, book);
    }
    let servers =
        of_server.iter().enumerate().flat_map(|(n, count)| std::iter::repeat_n(n, *count));
    let servers: Vec<_> = servers.map(|n| server_name(&first, n)).collect();
    for (service, server) in first.services.iter_mut().zip(servers) {
        service.set("servers", text(server));
    }
    if let Some(source) = first.sources.first() {
        let why = "the files have different servers, and make one client; server.yaml is for each \
                   of the servers";
        book.add(source, 0, "serverAddr", why, "import a file alone for a client of its own");
    }
    plan.clients.push(first);
}

/// Adds the server and the services of a further file. Of a setting that a client has once, that of
/// the first file counts.
fn take(first: &mut Client, next: Client, book: &Book) {
    let source = next.sources.first().cloned().unwrap_or_default();
    let differs = |key: &str| {
        let why = "another file has another value, and a client has one: that of the first file \
                   counts";
        book.add(&source, 0, key, why, "a client of its own");
    };
    for (key, value) in next.keys {
        match first.keys.iter().find(|(known, _)| *known == key) {
            Some((_, known)) if *known == value => {}
            Some(_) => differs(&key),
            None => first.keys.push((key, value)),
        }
    }
    first.admin = first.admin.take().or(next.admin);
    first.servers.extend(next.servers);
    first.sources.extend(next.sources);
    for service in next.services {
        let wanted = service.name.clone();
        first.publish(service);
        let given = first.services.last().map(|service| service.name.clone()).unwrap_or_default();
        if given != wanted {
            let why = format!("another file has a proxy {wanted}; this proxy is service {given}");
            book.add(&source, 0, "proxies", &why, "`services[].name`");
        }
    }
}
