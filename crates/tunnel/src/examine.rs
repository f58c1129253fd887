//! Opens the certificates, keys and authorities that a configuration names. So `tunnel check` finds
//! the problems that a start would have, and reports each of them with its key. The parser has
//! already read the token files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use config::{
    AccessLog, ClientConfig, Cluster, Common, KeyPair, LogFile, NodeTls, Pages, ProxyConfig,
    ServerConfig,
};
use families::Unfit;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use tls::{Identity, MaterialError, Trust, client_config};

/// A file or a setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The keys that may contain the setting, the most specific key first: `servers[0].tls.ca`,
    /// then `tls.ca`.
    pub(crate) keys: Vec<String>,
    /// The name of the file, and the description of the problem.
    pub(crate) problem: String,
    /// Whether the fault prevents a start. Otherwise the fault is a warning.
    pub(crate) fatal: bool,
}

/// The faults of a server's configuration.
pub(crate) fn server(config: &ServerConfig) -> Vec<Fault> {
    let tls = [String::from("tls")];
    let mut faults = Vec::new();
    if let Some(pair) = &config.tls.identity {
        key_pair(pair, &tls, &mut faults);
    }
    if let Some(ca) = &config.tls.client_ca {
        authorities(Trust::Authority(ca.clone()), &tls, "client_ca", &mut faults);
    }
    if let Some(auth) = &config.auth {
        way(&auth.path, &["auth.http.".to_owned()], &["auth.http.tls".to_owned()], &mut faults);
    }
    if let Some(cluster) = &config.cluster {
        node(cluster, &mut faults);
    }
    let Pages { not_found, unavailable } = &config.http.pages;
    for (key, page) in [("not_found", not_found), ("unavailable", unavailable)] {
        if let Some(page) = page
            && let Err(error) = File::open(page)
        {
            let problem = format!("{}: {error}", page.display());
            faults.push(Fault { keys: vec![format!("http.pages.{key}")], problem, fatal: true });
        }
    }
    for (n, pair) in config.tls_routes.certificates.iter().enumerate() {
        key_pair(pair, &[format!("tls_routes.certificates[{n}]")], &mut faults);
    }
    for (n, account) in config.tls_routes.acme.iter().enumerate() {
        // One account may be written without a list.
        let mut sections = ["tls_routes.acme".to_owned(), format!("tls_routes.acme[{n}]")];
        if config.tls_routes.acme.len() > 1 {
            sections.reverse();
        }
        if let Some(ca) = account.ca.clone() {
            authorities(Trust::Authority(ca), &sections, "ca", &mut faults);
        }
        if let Some(dns) = &account.dns
            && let Err(problem) = program(&dns.exec)
        {
            let problem = format!("{}: {problem}", dns.exec.display());
            faults.push(Fault { keys: keys(&sections, "dns.exec"), problem, fatal: true });
        }
    }
    collector(&config.common, &mut faults);
    written(&config.common, &mut faults);
    faults
}

/// The faults of a client's configuration.
pub(crate) fn client(config: &ClientConfig) -> Vec<Fault> {
    let mut faults = Vec::new();
    collector(&config.common, &mut faults);
    written(&config.common, &mut faults);
    for (places, path) in config.placed_paths() {
        let sections = places.iter().map(|place| format!("{place}.tls"));
        let sections: Vec<_> = sections.chain(["tls".to_owned()]).collect();
        let places_of = places.iter().map(|place| format!("{place}."));
        let places: Vec<_> = places_of.chain([String::new()]).collect();
        way(path, &places, &sections, &mut faults);
    }
    for (section, tls) in config.peer_tls() {
        let sections = [section, "tls".to_owned()];
        authorities(Trust::Authority(tls.ca.clone()), &sections[..1], "ca", &mut faults);
        let Some(pair) = config.identity_of(tls) else { continue };
        // The certificate of the log-in at the server is examined with its path.
        let before = faults.len();
        if tls.identity.is_some() {
            key_pair(pair, &sections[..1], &mut faults);
        }
        if faults.len() == before
            && let Ok(identity) = Identity::load(&pair.cert, &pair.key)
            && let Some(problem) = of_another(&identity, &config.name)
        {
            let problem = format!("{}: {problem}", pair.cert.display());
            faults.push(Fault { keys: keys(&sections, "cert"), problem, fatal: false });
        }
    }
    faults
}

/// The faults of a proxy's configuration.
pub(crate) fn proxy(config: &ProxyConfig) -> Vec<Fault> {
    let mut faults = Vec::new();
    collector(&config.common, &mut faults);
    written(&config.common, &mut faults);
    for (n, proxy) in config.proxies.iter().enumerate() {
        if let Some(pair) = &proxy.tls {
            key_pair(pair, &[format!("proxies[{n}].tls")], &mut faults);
        }
        if let Some(config::Trust::Ca(ca)) = &proxy.service.target_tls.trust {
            let section = [format!("proxies[{n}].target_tls")];
            authorities(Trust::Authority(ca.clone()), &section, "ca", &mut faults);
        }
    }
    faults
}

/// The problem of a certificate that does not contain the name of this client.
fn of_another(identity: &Identity, client: &str) -> Option<String> {
    let name = identity.client_name().unwrap_or_default();
    (name != client).then(|| {
        format!(
            "the certificate has the name `{name}`, and this client is `{client}`: the other \
             client refuses it (hint: tunnel generate certs --client {client})"
        )
    })
}

/// The faults of a node of a cluster.
fn node(cluster: &Cluster, faults: &mut Vec<Fault>) {
    let section = ["cluster.peers".to_owned()];
    if let Some(NodeTls { ca, identity }) = &cluster.peers.tls {
        authorities(Trust::Authority(ca.clone()), &section, "ca", faults);
        key_pair(identity, &section, faults);
    }
    for (n, path) in cluster.directory.members.iter().enumerate() {
        // One member may be written without a list.
        let places = ["cluster.directory.etcd", &format!("cluster.directory.etcd[{n}]")];
        let places = places.map(|place| format!("{place}."));
        way(path, &places, &["cluster.directory.tls".to_owned()], faults);
    }
}

/// Examines one path. `places` are the prefixes under which the keys of the path may be, and
/// `sections` the sections that may contain its TLS keys.
fn way(path: &config::Path, places: &[String], sections: &[String], faults: &mut Vec<Fault>) {
    if let Err(Unfit { key, problem }) = families::check(path) {
        let keys = places.iter().map(|place| format!("{place}{key}")).collect();
        faults.push(Fault { keys, problem, fatal: true });
    }
    if !path.endpoint.scheme.tls {
        return;
    }
    match &path.trust {
        config::Trust::Pins(_) => {}
        config::Trust::Ca(ca) => {
            authorities(Trust::Authority(ca.clone()), sections, "ca", faults);
        }
        config::Trust::System => authorities(Trust::System, sections, "ca", faults),
    }
    if let Some(pair) = &path.identity {
        key_pair(pair, sections, faults);
    }
}

fn keys(sections: &[String], key: &str) -> Vec<String> {
    sections.iter().map(|section| format!("{section}.{key}")).collect()
}

/// Checks that this user may write the files and folders that the daemon writes. A daemon of
/// another user has different permissions, so a refusal is only a warning.
fn written(common: &Common, faults: &mut Vec<Fault>) {
    let mut warn = |keys: [&str; 2], path: &Path, outcome: Result<(), Errno>| {
        if let Err(why) = outcome {
            let problem = format!(
                "{}: this user may not write there: {why} (hint: as a unit, `tunnel install` says \
                 what its user may write)",
                path.display()
            );
            faults.push(Fault { keys: keys.map(str::to_owned).to_vec(), problem, fatal: false });
        }
    };
    let mut file = |keys, log: &LogFile| warn(keys, &log.path, may_write(&log.path));
    if let Some(log) = &common.log_file {
        file(["log.file", "log"], log);
    }
    if let AccessLog::File(log) = &common.log_access {
        file(["log.access", "log"], log);
    }
    if let Some(log) = &common.log_requests {
        file(["log.requests.file", "log.requests"], &log.file);
    }
    let folders = [("state_dir", common.state_dir.as_deref())];
    let sockets = [("control", common.control.as_deref().and_then(Path::parent))];
    for (key, folder) in folders.into_iter().chain(sockets) {
        if let Some(folder) = folder {
            warn([key, key], folder, may_fill(folder));
        }
    }
}

/// Whether this user may write a file, or create it if it is missing.
fn may_write(path: &Path) -> Result<(), Errno> {
    match access(path, Access::WRITE_OK) {
        Err(Errno::NOENT) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            access(folder.unwrap_or_else(|| Path::new(".")), Access::WRITE_OK | Access::EXEC_OK)
        }
        outcome => outcome,
    }
}

/// Whether this user may create files in a folder, or create the folder.
fn may_fill(folder: &Path) -> Result<(), Errno> {
    let there = folder.ancestors().find(|folder| folder.exists());
    let there = there.filter(|folder| !folder.as_os_str().is_empty());
    access(there.unwrap_or_else(|| Path::new(".")), Access::WRITE_OK | Access::EXEC_OK)
}

/// Checks that this program can push metrics with the configured header fields.
#[cfg(feature = "otlp")]
fn collector(common: &Common, faults: &mut Vec<Fault>) {
    let Some(otlp) = &common.otlp else { return };
    if let Err(problem) = admin::otlp::fields(&otlp.headers) {
        faults.push(Fault { keys: vec!["otlp.headers".to_owned()], problem, fatal: true });
    }
}

#[cfg(not(feature = "otlp"))]
fn collector(common: &Common, faults: &mut Vec<Fault>) {
    if common.otlp.is_some() {
        let problem = "this binary was built without OTLP (cargo build --features otlp)".to_owned();
        faults.push(Fault { keys: vec!["otlp".to_owned()], problem, fatal: true });
    }
}

/// Examines a certificate and its key. If the certificate is wrong, the key file is still opened,
/// so that the faults of both are reported at once.
fn key_pair(pair: &KeyPair, sections: &[String], faults: &mut Vec<Fault>) {
    let error = match Identity::load(&pair.cert, &pair.key) {
        Ok(identity) => {
            if let Some(problem) = identity.out_of_date() {
                // This is only a warning: the clock may be wrong, or the certificate may be renewed
                // before a client connects.
                let problem = format!("{}: {problem}", pair.cert.display());
                faults.push(Fault { keys: keys(sections, "cert"), problem, fatal: false });
            }
            return;
        }
        Err(error) => error,
    };
    let of_certificate = |path: &Path| path == pair.cert;
    let certificate = match &error {
        MaterialError::File { path, .. } => of_certificate(path),
        MaterialError::Setting(_) => true,
    };
    let key = if certificate { "cert" } else { "key" };
    faults.push(Fault { keys: keys(sections, key), problem: error.to_string(), fatal: true });
    if certificate
        && !of_certificate(&pair.key)
        && let Err(error) = File::open(&pair.key)
    {
        let problem = format!("{}: {error}", pair.key.display());
        faults.push(Fault { keys: keys(sections, "key"), problem, fatal: true });
    }
}

/// Whether a file is executable according to its mode.
fn program(path: &Path) -> io::Result<()> {
    let file = fs::metadata(path)?;
    if file.is_file() && file.permissions().mode() & 0o111 != 0 {
        return Ok(());
    }
    Err(io::Error::other("this is not a program (hint: chmod +x makes a script one)"))
}

fn authorities(trust: Trust, sections: &[String], key: &str, faults: &mut Vec<Fault>) {
    // Authorities must meet the same requirements for a client that trusts them as for a server
    // that verifies clients.
    if let Err(error) = client_config(&trust, None, &[]) {
        faults.push(Fault { keys: keys(sections, key), problem: error.to_string(), fatal: true });
    }
}
