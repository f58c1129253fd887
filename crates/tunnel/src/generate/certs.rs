//! Certificates for both sides: an authority, a server certificate, a certificate for each client,
//! and for each node of a cluster.
//!
//! If the folder already has an authority, that authority issues the certificates. So clients can
//! be added later, on the machine that keeps `ca.key`.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use ops::term::Screen;
use proto::greeting::{NAME_MAX, Name};
use tls::{Authority, HostName};

use super::advice;
use super::folder::{self, File};
use super::made::{Made, file_of_node};

/// Names of the files of the authority, of the server, and of the members of etcd. The files of a
/// client have the client's name.
pub(super) const CA: &str = "ca";
pub(super) const SERVER: &str = "server";
pub(super) const ETCD: &str = "etcd";

/// The client of a new authority if no client is named, as in `tunnel server` without a file.
const FIRST_CLIENT: &str = "home";

/// The first part of the name in the certificate of a node, which no client can have
/// (`nodes/src/names.rs`).
const NODE: &str = "node:";

/// The largest number of names in one certificate, and of clients at once. A chain must fit into a
/// handshake, and peers accept about 64 KiB.
const NAMES_MAX: usize = 100;

/// The certificates to issue.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// Names and addresses of the server. If empty, no server certificate is made.
    pub(crate) server: &'a [HostName],
    /// Names of clients.
    pub(crate) clients: &'a [String],
    /// Names of nodes of a cluster.
    pub(crate) nodes: &'a [String],
    /// Names and addresses of the members of etcd. If empty, etcd gets no certificate.
    pub(crate) etcd: &'a [HostName],
    /// Lifetime of the server and client certificates, in years.
    pub(crate) years: u8,
    /// The output folder.
    pub(crate) folder: &'a Path,
}

/// Issues the ordered certificates. Returns the text for the user: the list of files and the lines
/// for the configuration. If one of the files exists, nothing is written.
pub(crate) fn certs(order: &Order<'_>) -> anyhow::Result<String> {
    let folder = order.folder;
    let known = known_authority(folder)?;
    let mut clients: Vec<&str> = order.clients.iter().map(String::as_str).collect();
    let is_for_cluster = !order.nodes.is_empty() || !order.etcd.is_empty();
    if clients.is_empty() && !is_for_cluster && known.is_none() {
        clients.push(FIRST_CLIENT);
    }
    check(order, &clients)?;

    let (authority, root) = match known {
        Some(authority) => (authority, None),
        None => {
            let (authority, root) = Authority::create(order.years)?;
            (authority, Some(root))
        }
    };
    let server = match distinct(order.server) {
        names if names.is_empty() => None,
        names => {
            let issued = authority.server(&names, order.years)?;
            Some((names, issued))
        }
    };
    let etcd = match distinct(order.etcd) {
        names if names.is_empty() => None,
        names => {
            let issued = authority.members(&names, order.years)?;
            Some((names, issued))
        }
    };
    let issue = |name: &str| Ok((name.to_owned(), authority.client(name, order.years)?));
    let clients = clients.into_iter().map(issue).collect::<anyhow::Result<_>>()?;
    let issue = |name: &String| {
        Ok((name.clone(), authority.client(&format!("{NODE}{name}"), order.years)?))
    };
    let nodes = order.nodes.iter().map(issue).collect::<anyhow::Result<_>>()?;
    let made = Made { authority: root, ends: authority.until(), server, clients, nodes, etcd };
    folder::write(folder, &files(&made))?;
    Ok(advice::text(folder, &made, Screen::of_stdout(false)))
}

/// The names, each once.
fn distinct(names: &[HostName]) -> Vec<HostName> {
    let mut distinct: Vec<HostName> = Vec::with_capacity(names.len());
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name.clone());
        }
    }
    distinct
}

/// The authority in this folder, if there is one.
fn known_authority(folder: &Path) -> anyhow::Result<Option<Authority>> {
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    let (missing, there) = match (folder::exists(&certificate)?, folder::exists(&key)?) {
        (false, false) => return Ok(None),
        (true, true) => return Ok(Some(Authority::load(&certificate, &key)?)),
        (true, false) => (&key, &certificate),
        (false, true) => (&certificate, &key),
    };
    bail!(
        "{} is here, {} is not: bring it back, or choose another folder with -o for a new authority",
        there.display(),
        missing.display()
    )
}

fn check(order: &Order<'_>, clients: &[&str]) -> anyhow::Result<()> {
    let most =
        [order.server.len(), clients.len(), order.nodes.len(), order.etcd.len()].into_iter().max();
    let most = most.unwrap_or_default();
    ensure!(most <= NAMES_MAX, "{most} names at once; at most {NAMES_MAX}");
    for (n, name) in clients.iter().enumerate() {
        Name::new(name).with_context(|| format!("client `{name}`"))?;
        // The client's files would have the names of the authority's or the server's files.
        let taken = [CA, SERVER, ETCD].iter().any(|taken| name.eq_ignore_ascii_case(taken));
        ensure!(!taken, "client `{name}`: its files would be those of the {name}; choose another");
        ensure!(!clients[..n].contains(name), "client `{name}` is named twice");
    }
    let longest = NAME_MAX - NODE.len();
    for (n, name) in order.nodes.iter().enumerate() {
        Name::new(name).with_context(|| format!("node `{name}`"))?;
        ensure!(name.len() <= longest, "node `{name}`: a name has at most {longest} characters");
        ensure!(!order.nodes[..n].contains(name), "node `{name}` is named twice");
        let file = file_of_node(name);
        let taken = clients.contains(&file.as_str());
        ensure!(!taken, "node `{name}`: its files would be those of client {file}");
    }
    Ok(())
}

fn files(made: &Made) -> Vec<File<'_>> {
    let mut files = Vec::new();
    let mut add = |name: &str, issued| files.extend(File::pair(name, issued));
    if let Some(root) = &made.authority {
        add(CA, root);
    }
    if let Some((_, issued)) = &made.server {
        add(SERVER, issued);
    }
    if let Some((_, issued)) = &made.etcd {
        add(ETCD, issued);
    }
    for (name, issued) in &made.clients {
        add(name, issued);
    }
    for (name, issued) in &made.nodes {
        add(&file_of_node(name), issued);
    }
    files
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn order(folder: &Path, server: &[&str], clients: &[&str]) -> anyhow::Result<String> {
        let server: Vec<HostName> = server.iter().map(|name| name.parse().unwrap()).collect();
        let clients: Vec<String> = clients.iter().map(|&name| name.to_owned()).collect();
        certs(&Order {
            server: &server,
            clients: &clients,
            nodes: &[],
            etcd: &[],
            years: 2,
            folder,
        })
    }

    fn nodes(folder: &Path, nodes: &[&str], clients: &[&str]) -> anyhow::Result<String> {
        let [nodes, clients] = [nodes, clients]
            .map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        let etcd = ["etcd1".parse().unwrap(), "10.0.0.1".parse().unwrap()];
        let etcd = if nodes.is_empty() { &[][..] } else { &etcd };
        certs(&Order { server: &[], clients: &clients, nodes: &nodes, etcd, years: 2, folder })
    }

    fn listing(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_first_call_makes_all_three_and_a_second_adds_a_client_of_the_same_authority() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("certs");
        order(&folder, &["a.example"], &[]).unwrap();
        let first = ["ca.crt", "ca.key", "home.crt", "home.key", "server.crt", "server.key"];
        assert_eq!(listing(&folder), first);
        let root = fs::read(folder.join("ca.crt")).unwrap();
        order(&folder, &[], &["laptop", "phone"]).unwrap();
        assert_eq!(listing(&folder).len(), 10);
        assert_eq!(fs::read(folder.join("ca.crt")).unwrap(), root);
    }

    #[test]
    fn clients_of_a_server_whose_certificate_comes_from_elsewhere_trust_it_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let said = order(dir.path(), &[], &["phone"]).unwrap();
        assert_eq!(listing(dir.path()), ["ca.crt", "ca.key", "phone.crt", "phone.key"]);
        assert!(said.contains("\ntls: { client_ca: ca.crt }\nclients:\n  - "), "{said}");
        assert!(said.contains("\ntls: { cert: \"phone.crt\", key: \"phone.key\" }\n"), "{said}");
    }

    #[test]
    fn nothing_is_written_over_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        order(dir.path(), &["a.example"], &[]).unwrap();
        let before = listing(dir.path());
        let said = order(dir.path(), &["a.example"], &["laptop"]).unwrap_err().to_string();
        assert!(said.contains("server.crt") && said.contains("server.key"), "{said}");
        assert_eq!(listing(dir.path()), before);
    }

    #[test]
    fn half_an_authority_is_told() {
        let dir = tempfile::tempdir().unwrap();
        order(dir.path(), &["a.example"], &[]).unwrap();
        fs::remove_file(dir.path().join("ca.key")).unwrap();
        let said = order(dir.path(), &[], &["laptop"]).unwrap_err().to_string();
        assert!(said.contains("ca.key is not: bring it back"), "{said}");
    }

    #[test]
    fn names_that_no_client_can_have_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let said = |clients: &[&str]| format!("{:#}", order(dir.path(), &[], clients).unwrap_err());
        assert!(said(&["a/b"]).contains("`a/b`: a name is 1 to 64"));
        assert!(said(&["CA"]).contains("choose another"));
        assert!(said(&["a", "a"]).contains("twice"));
        assert!(listing(dir.path()).is_empty());
    }

    #[test]
    fn nodes_have_an_authority_without_clients_and_names_that_no_client_can_have() {
        let dir = tempfile::tempdir().unwrap();
        let said = nodes(dir.path(), &["fra1", "fra2"], &[]).unwrap();
        let files = ["node-fra1.crt", "node-fra1.key", "node-fra2.crt", "node-fra2.key"];
        let first = ["ca.crt", "ca.key", "etcd.crt", "etcd.key"];
        assert_eq!(listing(dir.path()), [&first[..], &files].concat());
        let members = "ETCD_CERT_FILE=etcd.crt\n";
        assert!(
            said.contains("members etcd1, 10.0.0.1 of etcd") && said.contains(members),
            "{said}"
        );
        let lines = "\ncluster:\n  node: \"fra2\"\n  peers: { ca: ca.crt, cert: \
                     \"node-fra2.crt\", key: \"node-fra2.key\" }";
        assert!(said.contains(lines), "{said}");
        let certificate = &tls::load_certificates(&dir.path().join("node-fra1.crt")).unwrap()[0];
        assert_eq!(tls::certificate_name(certificate).as_deref(), Some("node:fra1"));
        let wrong = |names: &[&str], clients: &[&str]| {
            format!("{:#}", nodes(dir.path(), names, clients).unwrap_err())
        };
        assert!(wrong(&["a b"], &[]).contains("`a b`: a name is 1 to 64"));
        assert!(wrong(&[&"n".repeat(60)], &[]).contains("at most 59 characters"));
        assert!(wrong(&["a", "a"], &[]).contains("twice"));
        assert!(wrong(&["a"], &["node-a"]).contains("those of client node-a"));
    }
}
