//! Secret proxies and their visitors: private services, and forwards to them.

use super::{OfClient, Secret, client_of};
use crate::address::{at, bind, name};
use crate::plan::{Forward, Plan, Visitor};
use crate::section::Section;

pub(super) fn map(files: &[OfClient<'_>], secrets: Vec<Secret<'_>>, plan: &mut Plan) {
    // Pairs of visitors and the services that they visit: indexes of both.
    let mut visits: Vec<(usize, String)> = Vec::new();
    for file in files {
        for section in file.section.sections("visitors") {
            visitor(&section, file, files, &secrets, &mut visits, plan);
        }
    }
    for (n, secret) in secrets.iter().enumerate() {
        let token = plan.shared(secret.key);
        let mut names: Vec<String> = Vec::new();
        for user in &secret.users {
            let name = if *user == "*" { "*".to_owned() } else { client_of(user, files, plan) };
            crate::plan::add(&mut names, name);
        }
        let known = || visits.iter().filter(|(service, _)| *service == n).map(|(_, name)| name);
        if secret.users.is_empty() {
            for name in known() {
                crate::plan::add(&mut names, name);
            }
        }
        if names.is_empty() {
            names.push("*".to_owned());
        }
        if known().next().is_none() {
            lonely(&secret.section, secret.key, plan);
        }
        let visitor = |name| Visitor { name, token: Some(token.clone()) };
        let services = &mut plan.clients[secret.client].services;
        if let Some(service) = services.iter_mut().find(|service| service.name == secret.name) {
            service.visitors = Some(names.into_iter().map(visitor).collect());
        }
    }
}

/// The other side is not among the sources.
fn lonely(section: &Section<'_>, key: &str, plan: &Plan) {
    if !plan.is_strong(key) {
        let why = "the secret is too short for a token; a new one is in the file, and the other \
                   side needs the same";
        section.note_at("secretKey", why, "import the files of both sides together");
    }
}

fn visitor(
    section: &Section<'_>,
    file: &OfClient<'_>,
    files: &[OfClient<'_>],
    secrets: &[Secret<'_>],
    visits: &mut Vec<(usize, String)>,
    plan: &mut Plan,
) {
    if section.flag("enabled") == Some(false) {
        section.lacks_all("frpc does not start it, and no forward is written", "");
        return;
    }
    if section.has("plugin") {
        let why = "there is no virtual network, and no forward is written";
        section.lacks_all(why, "a private service for each port, `socks5://` forwards");
        return;
    }
    section.text("name");
    let kind = section.text("type").unwrap_or("stcp");
    let port = section.number::<i64>("bindPort");
    let host = section.text("bindAddr").unwrap_or("127.0.0.1");
    let Some(wanted) = section.text("serverName") else {
        section.lacks_all("`serverName` is missing, and no forward is written", "`target`");
        return;
    };
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) else {
        section.lacks_all(
            "without a port it only stands in for another visitor, which `p2p: auto` does itself",
            "`p2p: auto`",
        );
        return;
    };
    let user = section.text("serverUser").unwrap_or(file.user);
    let key = section.text("secretKey").unwrap_or_default();
    let is = |secret: &Secret<'_>| secret.wanted == wanted && secret.user == user;
    let target = match secrets.iter().position(is) {
        Some(n) => {
            let own = &plan.clients[file.client].name;
            visits.push((n, own.clone()));
            let secret = &secrets[n];
            if secret.client == file.client {
                let why = "a client does not visit itself, and no forward is written";
                section.lacks_all(why, "the target of the service");
                return;
            }
            format!("{}/{}", plan.clients[secret.client].name, secret.name)
        }
        None => {
            let why =
                "the client with the service is not among the files; its name here is a guess";
            section.note_at("serverName", why, "import the files of both sides together");
            lonely(section, key, plan);
            format!("{}/{}", client_of(user, files, plan), name(wanted))
        }
    };
    let over =
        if kind == "sudp" || secrets.iter().any(|s| is(s) && s.is_udp) { "udp" } else { "tcp" };
    let token = Some(plan.shared(key));
    let listen = format!("{over}://{}", at(bind(host), port));
    let target = Some(format!("service://{target}"));
    let forward = Forward { listen, target, token, ..Forward::default() };
    plan.clients[file.client].forwards.push(forward);
}
