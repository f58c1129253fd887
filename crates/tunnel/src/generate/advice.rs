//! The text that `generate certs` prints at its end: a list of the files, and the lines for both
//! configurations, ready to paste.

use std::net::IpAddr;
use std::path::Path;

use ops::term::{Screen, Sheet};
use tls::HostName;

use super::made::{Made, file_of_node};

/// The settings of etcd. Its gateway dials the member itself, by the certificate of the member.
const ETCD: &str = "
In the environment of each member of etcd, with ca.crt, etcd.crt and etcd.key beside it:

ETCD_CERT_FILE=etcd.crt
ETCD_KEY_FILE=etcd.key
ETCD_TRUSTED_CA_FILE=ca.crt
ETCD_CLIENT_CERT_AUTH=true
ETCD_PEER_CERT_FILE=etcd.crt
ETCD_PEER_KEY_FILE=etcd.key
ETCD_PEER_TRUSTED_CA_FILE=ca.crt
ETCD_PEER_CLIENT_CERT_AUTH=true";

/// The whole text.
pub(super) fn text(folder: &Path, made: &Made, screen: Screen) -> String {
    let mut lines = list(folder, made, screen);
    if made.server.is_some() || !made.clients.is_empty() {
        lines.extend(server(made));
    }
    for (name, _) in &made.clients {
        lines.extend(client(made, name));
    }
    for (name, _) in &made.nodes {
        lines.extend(node(name));
    }
    if made.etcd.is_some() {
        lines.push(ETCD.to_owned());
    }
    for (name, _) in &made.clients {
        lines.push(format!(
            "\nThe token of {name}, one file for both machines:\n\n\
             (umask 077; tunnel generate token > {name}.token)"
        ));
    }
    lines.join("\n")
}

fn list(folder: &Path, made: &Made, screen: Screen) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |file: &str, what: String| {
        let path = if folder == Path::new(".") { file.into() } else { folder.join(file) };
        rows.push((path.display().to_string(), what));
    };
    let until = |day: &str| {
        // The certificate expires with its authority, possibly earlier than requested.
        let why = if day == made.ends { ", when its authority ends" } else { "" };
        format!("until {day}{why}")
    };
    if let Some(root) = &made.authority {
        row("ca.crt", format!("new authority, until {}", root.until));
        row("ca.key", "its key: who has it can let anybody in; keep it off both machines".into());
    }
    if let Some((names, issued)) = &made.server {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        row("server.crt", format!("server {}, {}", names.join(", "), until(&issued.until)));
        row("server.key", "its key, for the server alone".into());
    }
    if let Some((names, issued)) = &made.etcd {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        row("etcd.crt", format!("members {names} of etcd, {}", until(&issued.until)));
        row("etcd.key", "its key, for these members alone".into());
    }
    for (name, issued) in &made.clients {
        row(&format!("{name}.crt"), format!("client {name}, {}", until(&issued.until)));
        row(&format!("{name}.key"), "its key, for that client alone".into());
    }
    for (name, issued) in &made.nodes {
        let file = file_of_node(name);
        row(&format!("{file}.crt"), format!("node {name}, {}", until(&issued.until)));
        row(&format!("{file}.key"), "its key, for that node alone".into());
    }
    let mut sheet = Sheet::new(screen);
    sheet.pairs(&rows);
    sheet.finish().as_str().lines().map(str::to_owned).collect()
}

fn server(made: &Made) -> Vec<String> {
    let mut lines = Vec::new();
    if made.server.is_some() {
        let beside = "ca.crt, server.crt and server.key";
        lines.push(format!("\nIn the file of the server, with {beside} beside it:\n"));
        lines.push("tls: { cert: server.crt, key: server.key, client_ca: ca.crt }".to_owned());
    } else if made.authority.is_some() {
        // The server's own certificate comes from elsewhere.
        lines.push("\nIn the file of the server, with ca.crt beside it:\n".to_owned());
        lines.push("tls: { client_ca: ca.crt }".to_owned());
    } else {
        lines.push("\nIn the file of the server, under `clients`:\n".to_owned());
    }
    // If the authority existed before, the server's file already has a `clients` key.
    if !made.clients.is_empty() && (made.server.is_some() || made.authority.is_some()) {
        lines.push("clients:".to_owned());
    }
    for (name, _) in &made.clients {
        let token = format!("token_file: \"{name}.token\"");
        let allow = "allow: { tcp: \"10000-10100\" }";
        lines.push(format!("  - {{ name: \"{name}\", {token}, {allow} }}"));
    }
    lines
}

fn client(made: &Made, name: &str) -> Vec<String> {
    let files = format!("{name}.crt and {name}.key");
    let identity = format!("cert: \"{name}.crt\", key: \"{name}.key\"");
    // An authority that was created only for clients has not signed the server's certificate.
    let (files, tls) = if made.server.is_none() && made.authority.is_some() {
        (files, identity)
    } else {
        (format!("ca.crt, {files}"), format!("ca: ca.crt, {identity}"))
    };
    let mut lines = vec![format!("\nIn the file of client {name}, with {files} beside it:\n")];
    lines.extend(dialled(made).map(|host| format!("servers: \"tls://{host}:7000\"")));
    lines.push(format!("name: \"{name}\""));
    lines.push(format!("token_file: \"{name}.token\""));
    lines.push(format!("tls: {{ {tls} }}"));
    lines
}

fn node(name: &str) -> Vec<String> {
    let file = file_of_node(name);
    vec![
        format!(
            "\nIn the file of node {name}, with ca.crt, {file}.crt and {file}.key beside it, and its \
             addresses:\n"
        ),
        "cluster:".to_owned(),
        format!("  node: \"{name}\""),
        format!("  peers: {{ ca: ca.crt, cert: \"{file}.crt\", key: \"{file}.key\" }}"),
    ]
}

/// The first name of the server that can be dialled. A name with an asterisk cannot.
fn dialled(made: &Made) -> Option<String> {
    let (names, _) = made.server.as_ref()?;
    names.iter().find_map(|name| match name {
        HostName::Name(name) => (!name.starts_with('*')).then(|| name.clone()),
        HostName::Address(IpAddr::V6(ip)) => Some(format!("[{ip}]")),
        HostName::Address(IpAddr::V4(ip)) => Some(ip.to_string()),
    })
}
