//! `tunnel where` and `tunnel cluster`: the cluster as a running node sees it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, ToSocketAddrs as _};

use anyhow::{Context, bail};
use config::{Endpoint, Host};
use ops::cluster::{RekeyStep, render_cluster_clients, render_places, render_rekey};
use ops::command::{ListClusterClients, Locate, Rekey, ShowCluster};
use ops::status::{Cluster, ClusterNode, render_cluster};
use ops::term::{self, Screen};

use crate::cli::{ClusterClientsArgs, ClusterCommand, WhereArgs, Which};
use crate::instances::ask;

/// Shows where a client, a name or a port is.
pub(crate) fn locate(args: &WhereArgs) -> anyhow::Result<()> {
    let WhereArgs { name, which, json, wide } = args;
    let places = ask(which, Locate { name: asked(name).to_owned() })?;
    if places.is_empty() {
        bail!("no node has a client, a name or a port `{name}`");
    }
    term::show(&places, *json, |places| render_places(places, Screen::of_stdout(*wide)))
}

/// The part of a URL that a place is known by: `http://app.example.com:8080/x` has the host
/// `app.example.com`, and `tcp://:10022` has the port 10022.
fn asked(name: &str) -> &str {
    let Some((scheme, rest)) = name.split_once("://") else { return name };
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((_, port)) if matches!(scheme, "tcp" | "udp") => port,
        Some((host, _)) => host,
        None => authority,
    }
}

/// Shows the cluster, or its records of DNS.
pub(crate) fn cluster(command: &ClusterCommand) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Status { which, json, wide } => {
            let cluster = status(which)?;
            term::show(&cluster, *json, |cluster| render_cluster(cluster, Screen::of_stdout(*wide)))
        }
        ClusterCommand::Clients(args) => {
            let ClusterClientsArgs { begins, after, limit, which, json, wide } = args;
            let wanted = ListClusterClients {
                begins: begins.clone(),
                after: after.clone(),
                limit: Some(*limit),
            };
            let page = ask(which, wanted)?;
            term::show(&page, *json, |page| render_cluster_clients(page, Screen::of_stdout(*wide)))
        }
        ClusterCommand::Rekey { which, json } => rekey(which, *json),
        ClusterCommand::Dns { name, ttl, which } => {
            let cluster = status(which)?;
            let records = records(&cluster, name, *ttl, &resolved);
            Ok(term::out(records.trim_end())?)
        }
    }
}

/// Takes all steps of a change of the secret. An error: the former secret is still needed.
fn rekey(which: &Which, json: bool) -> anyhow::Result<()> {
    let mut all = RekeyStep::default();
    loop {
        let after = all.next.clone().filter(|next| !next.is_empty());
        all.add(ask(which, Rekey { after })?);
        if all.next.is_none() {
            break;
        }
        term::err(format_args!("{} values read, {} sealed anew", all.read, all.sealed));
    }
    term::show(&all, json, |all| render_rekey(all, Screen::of_stdout(true)))?;
    if !all.needs_former().is_empty() {
        bail!("the former secret is still needed");
    }
    Ok(())
}

fn status(which: &Which) -> anyhow::Result<Cluster> {
    ask(which, ShowCluster {})?.context("this server is no node of a cluster")
}

/// The addresses of a host, by the resolver of this machine.
fn resolved(host: &str) -> Vec<IpAddr> {
    let found = (host, 0).to_socket_addrs();
    found.map(|all| all.map(|address| address.ip()).collect()).unwrap_or_default()
}

/// The lines of a zone file (RFC 1035, section 5). A comment says what is missing.
fn records(
    cluster: &Cluster,
    names: &[String],
    ttl: u32,
    resolve: &dyn Fn(&str) -> Vec<IpAddr>,
) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let mut addresses = BTreeSet::new();
    for ClusterNode { name, clients, draining, .. } in &cluster.nodes {
        if *draining {
            let _ = writeln!(text, "; {name} is draining and gets no record");
            continue;
        }
        let own: BTreeSet<_> = clients.iter().flat_map(|url| of_url(url, resolve)).collect();
        if own.is_empty() {
            let why = if clients.is_empty() { "has no `cluster.clients`" } else { "is not found" };
            let _ = writeln!(text, "; {name} {why}, and so gets no record");
        }
        addresses.extend(own);
    }
    for name in names {
        let name = name.trim_end_matches('.');
        for address in &addresses {
            let kind = if address.is_ipv4() { "A" } else { "AAAA" };
            let _ = writeln!(text, "{name}. {ttl} IN {kind} {address}");
        }
    }
    text
}

/// The addresses of a URL of a node.
fn of_url(url: &str, resolve: &dyn Fn(&str) -> Vec<IpAddr>) -> Vec<IpAddr> {
    let Ok(endpoint) = url.parse::<Endpoint>() else { return Vec::new() };
    match &endpoint.host {
        Host::Ip(ip) => vec![*ip],
        Host::Name(name) => resolve(name),
        // The interface means nothing on another machine.
        Host::Scoped(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_asked_for_by_its_host_or_its_port() {
        for (text, name) in [
            ("home", "home"),
            ("http://app.example.com", "app.example.com"),
            ("https://app.example.com:8443/path", "app.example.com"),
            ("tcp://:10022", "10022"),
            ("10022", "10022"),
        ] {
            assert_eq!(asked(text), name);
        }
    }

    #[test]
    fn each_node_with_an_address_has_a_record_of_each_name() {
        let node = |name: &str, clients: &[&str]| ClusterNode {
            name: name.into(),
            clients: clients.iter().map(|&url| url.to_owned()).collect(),
            ..ClusterNode::default()
        };
        let nodes = vec![
            node("a", &["tls://192.0.2.1:7000", "quic://192.0.2.1:7000"]),
            node("b", &["tls://b.example:7000"]),
            node("c", &[]),
            ClusterNode { draining: true, ..node("d", &["tls://192.0.2.4:7000"]) },
        ];
        let cluster = Cluster { nodes, ..Cluster::default() };
        let resolve = |name: &str| match name {
            "b.example" => ["192.0.2.2", "2001:db8::2"].map(|ip| ip.parse().unwrap()).into(),
            _ => Vec::new(),
        };
        let names = ["t.example".to_owned(), "app.example.".to_owned()];
        let text = records(&cluster, &names, 60, &resolve);
        let expected = "\
; c has no `cluster.clients`, and so gets no record
; d is draining and gets no record
t.example. 60 IN A 192.0.2.1
t.example. 60 IN A 192.0.2.2
t.example. 60 IN AAAA 2001:db8::2
app.example. 60 IN A 192.0.2.1
app.example. 60 IN A 192.0.2.2
app.example. 60 IN AAAA 2001:db8::2
";
        assert_eq!(text, expected);
    }
}
