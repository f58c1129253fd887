//! Decodes `cluster`: the node, its links to other nodes, and the store that the nodes share.

use std::path::Path as FilePath;

use super::auth::service_url;
use super::listen::address;
use crate::endpoint::server_url;
use crate::key_table::KeyTable as _;
use crate::model::cluster::ADDRESSES_MAX;
use crate::model::credentials::{Kept, Token, tokens_of};
use crate::model::{
    Cluster, ClusterDirectory, ClusterPeers, EtcdUser, NodeTls, Path, PathTls, ServerConfig,
    credentials,
};
use crate::section::{Item, Reading, Section};
use crate::{BadValue, Endpoint, Host, Scheme, Secret, secrecy, values};

/// The transports between nodes. A node proves its name by a certificate, and over `tcp://` by the
/// secret of the cluster; a node link needs no proxy and no reverse proxy.
const TRANSPORTS: [Scheme; 3] = [Scheme::QUIC, Scheme::TLS, Scheme::TCP];

/// The largest possible `ports_max`: all ports of TCP and of UDP.
const PORTS_MAX: u32 = 2 * 65_535;

/// The largest password of etcd, in bytes. etcd keeps a hash of it (bcrypt), which counts 72 bytes.
const PASSWORD_MAX: usize = 1 << 10;

/// The shortest secret, in characters.
const SECRET_MIN: usize = 32;

/// The hints for required keys.
const NAME: &str = "the same name at all nodes";
const PEERS: &str = "for example quic://10.0.0.1:7100";
const ETCD: &str = "for example https://10.0.0.11:2379";

/// Decodes `cluster`. `None` if the key is missing, or after a problem.
pub(super) fn cluster(s: &Section<'_>) -> Option<Cluster> {
    let s = s.section::<ServerConfig>("cluster")?;
    let name = s.required("name", NAME, values::name);
    let node = s.value("node", values::name);
    let zone = s.value("zone", values::name);
    let secrets = secrets(&s);
    let peers = match s.section::<Cluster>("peers") {
        Some(peers) => {
            let has_secret = s.has("secret") || s.has("secret_file");
            self::peers(&peers, has_secret)
        }
        None => missing(&s, "peers", "peers: { listen, ca, cert, key }"),
    };
    let directory = match s.section::<Cluster>("directory") {
        Some(directory) => self::directory(&directory),
        None => missing(&s, "directory", "directory: { etcd: [\"https://10.0.0.11:2379\"] }"),
    };
    let ports_max = s.or("ports_max", Cluster::usual("ports_max"), ports_max);
    let rebalance = s.or("rebalance", Cluster::usual("rebalance"), values::switch);
    let clients = urls(&s, "clients", client_url);
    let clients = clients.into_iter().map(|(_, url)| url).collect();
    Some(Cluster {
        name: name?,
        node,
        zone,
        secrets,
        peers: peers?,
        directory: directory?,
        ports_max: ports_max?,
        rebalance: rebalance?,
        clients,
    })
}

/// Decodes `secret` or `secret_file`. Without a secret the nodes share less, so it is optional.
fn secrets(s: &Section<'_>) -> Vec<Token> {
    let secrets = tokens_of(s, ["secret", "secret_file"], 2, Kept::Plain, None);
    let key = if s.has("secret") { "secret" } else { "secret_file" };
    // The keys that are derived from the secret have 32 bytes.
    if secrets.iter().any(|secret| secret.secret.reveal().len() < SECRET_MIN) {
        let bad = BadValue::new(format!("the secret has less than {SECRET_MIN} characters"));
        s.bad(key, bad.hint(credentials::MAKE_TOKEN));
    }
    secrets
}

/// Reports a map that is missing. A value that is no map was reported already.
fn missing<T>(s: &Section<'_>, key: &str, hint: &str) -> Option<T> {
    if !s.has(key) {
        s.missing(key, hint);
    }
    None
}

/// Decodes a list of at most [`ADDRESSES_MAX`] URLs, each with its position.
fn urls(
    s: &Section<'_>,
    key: &str,
    read: impl Fn(&str) -> Result<Endpoint, BadValue>,
) -> Vec<(Item, Endpoint)> {
    let items = s.one_or_list(key);
    if items.len() > ADDRESSES_MAX {
        let bad = BadValue::new(format!("{} addresses", items.len()));
        s.bad(key, bad.hint(format!("at most {ADDRESSES_MAX}")));
    }
    let read = |item: Item| {
        let url = s.cx.value(&item, &read)?;
        Some((item, url))
    };
    items.into_iter().filter_map(read).collect()
}

/// Decodes `peers`. `has_secret`: the cluster has a secret, or a faulty one.
fn peers(s: &Section<'_>, has_secret: bool) -> Option<ClusterPeers> {
    let listen = urls(s, "listen", between_nodes);
    if !s.has("listen") {
        s.missing("listen", PEERS);
    } else if s.one_or_list("listen").is_empty() {
        s.bad("listen", BadValue::new("an empty list").hint(PEERS));
    }
    for (item, endpoint) in &listen {
        address(s, item, endpoint, &mut s.cx.taken.borrow_mut());
    }
    let advertised = urls(s, "advertise", dialled);
    in_the_clear(s, &listen, &advertised, has_secret);
    let listen: Vec<_> = listen.into_iter().map(|(_, endpoint)| endpoint).collect();
    let mut advertise: Vec<_> = advertised.into_iter().map(|(_, endpoint)| endpoint).collect();
    if !s.has("advertise") {
        if let Some(vague) = listen.iter().find(|endpoint| !is_specific(endpoint)) {
            let bad = BadValue::new(format!("other nodes cannot dial {vague}"));
            let scheme = vague.scheme.name;
            let hint = format!("name the address of this node: advertise: {scheme}://HOST:PORT");
            s.bad("listen", bad.hint(hint));
        }
        advertise.clone_from(&listen);
    }
    let (ca, identity) = (values::path(s, "ca"), credentials::key_pair(s));
    let keys = ["ca", "cert", "key"];
    let is_clear = !listen.is_empty() && listen.iter().all(|at| at.scheme == Scheme::TCP);
    if is_clear && !keys.iter().any(|key| s.has(key)) {
        return Some(ClusterPeers { listen, tls: None, advertise });
    }
    // A certificate without its key was reported.
    let wanted = if s.has("cert") == s.has("key") { &keys[..2] } else { &keys[..1] };
    for key in wanted.iter().filter(|key| !s.has(key)) {
        s.missing(key, "an authority of the cluster signs a certificate for each node");
    }
    let tls = Some(NodeTls { ca: ca?, identity: identity? });
    Some(ClusterPeers { listen, tls, advertise })
}

/// Parses an address of a node for other nodes.
fn between_nodes(text: &str) -> Result<Endpoint, BadValue> {
    let endpoint: Endpoint = text.parse().map_err(|bad: BadValue| bad.hint(PEERS))?;
    if TRANSPORTS.contains(&endpoint.scheme) {
        return Ok(endpoint);
    }
    let bad =
        BadValue::new(format!("nodes do not speak {}:// to each other", endpoint.scheme.name));
    Err(bad.hint("use quic:// or tls://; in a private network tcp://"))
}

/// Reports addresses of `tcp://` that prove no name, that nobody dials, or that are in a network of
/// others.
fn in_the_clear(
    s: &Section<'_>,
    listen: &[(Item, Endpoint)],
    advertised: &[(Item, Endpoint)],
    has_secret: bool,
) {
    let is_clear = |(_, at): &&(Item, Endpoint)| at.scheme == Scheme::TCP;
    let listens = listen.iter().any(|at| is_clear(&at));
    if let Some((item, _)) = listen.iter().find(is_clear).filter(|_| !has_secret) {
        let bad = BadValue::new("nothing proves the name of a node over tcp://");
        s.cx.problem(
            item.at(),
            &item.path,
            bad.hint("set `cluster.secret`, or use quic:// or tls://"),
        );
    }
    if let Some((item, _)) = advertised.iter().find(is_clear).filter(|_| !listens) {
        let bad = BadValue::new("this node does not listen for other nodes at tcp://");
        s.cx.problem(item.at(), &item.path, bad.hint("add an address of tcp:// to `listen`"));
    }
    let exposed = listen.iter().filter(is_clear).find(|(_, at)| !at.host.is_loopback());
    if let Some((item, _)) = exposed {
        let bad = BadValue::new("others on the way can read and change the bytes of visitors");
        let hint = "tcp:// between nodes is for a private network or WireGuard";
        s.cx.warn(item.at(), &item.path, bad.hint(hint));
    }
}

/// Parses an address that other nodes dial.
fn dialled(text: &str) -> Result<Endpoint, BadValue> {
    let endpoint = between_nodes(text)?;
    if is_specific(&endpoint) {
        return Ok(endpoint);
    }
    Err(BadValue::new(format!("`{text}` cannot be dialled")).hint("name an address and a port"))
}

/// Whether an address can be dialled.
fn is_specific(endpoint: &Endpoint) -> bool {
    let is_somewhere = match &endpoint.host {
        Host::Ip(ip) => !ip.is_unspecified(),
        Host::Name(_) => true,
        // The interface means nothing on another machine.
        Host::Scoped(_) => false,
    };
    is_somewhere && endpoint.port != 0
}

/// Parses an address that clients dial.
fn client_url(text: &str) -> Result<Endpoint, BadValue> {
    let endpoint = server_url(text)?;
    if endpoint.port == 0 {
        return Err(BadValue::new("port 0 cannot be dialled"));
    }
    if endpoint.host.ip().is_some_and(|ip| ip.is_unspecified()) {
        let bad = BadValue::new(format!("`{text}` is no address that a client can dial"));
        return Err(bad.hint("name the address of this node"));
    }
    Ok(endpoint)
}

fn ports_max(text: &str) -> Result<u32, BadValue> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let bad = || {
        BadValue::new(format!("`{text}` is not a number of ports"))
            .hint(format!("1 to {PORTS_MAX}"))
    };
    text.parse().ok().filter(|most| is_number && (1..=PORTS_MAX).contains(most)).ok_or_else(bad)
}

fn directory(s: &Section<'_>) -> Option<ClusterDirectory> {
    let tls = s.map::<PathTls>("tls", ClusterDirectory::map("tls")).unwrap_or_default();
    let members = urls(s, "etcd", member);
    if !s.has("etcd") {
        s.missing("etcd", ETCD);
    } else if s.one_or_list("etcd").is_empty() {
        s.bad("etcd", BadValue::new("an empty list").hint(ETCD));
    }
    let log_in = log_in(s);
    for (item, endpoint) in &members {
        if endpoint.scheme.tls || endpoint.host.is_loopback() {
            continue;
        }
        let risk = if log_in.is_some() {
            "no TLS on the way to etcd: the password travels in the clear"
        } else {
            "no TLS on the way to etcd: others can read and change what the nodes share"
        };
        s.cx.warn(item.at(), &item.path, BadValue::new(risk).hint("use https://"));
    }
    let path = |(_, endpoint)| {
        let PathTls { trust, identity, min_version } = tls.clone();
        let (sni, headers, proxy, dial) = Default::default();
        Path { endpoint, trust, identity, min_version, sni, headers, proxy, via: None, dial }
    };
    Some(ClusterDirectory { members: members.into_iter().map(path).collect(), log_in })
}

/// Parses the URL of a member of etcd.
fn member(text: &str) -> Result<Endpoint, BadValue> {
    let endpoint = service_url(text, ETCD, "give it as keys: user, password_file")?;
    match endpoint.path.as_deref() {
        None | Some("/") => Ok(Endpoint { path: None, ..endpoint }),
        Some(_) => Err(BadValue::new("a member of etcd has no path").hint(ETCD)),
    }
}

/// Decodes `user` and `password_file`, which must be given together.
fn log_in(s: &Section<'_>) -> Option<EtcdUser> {
    let name = s.value("user", |text| match text {
        "" => Err(BadValue::new("an empty name")),
        _ => Ok(text.to_owned()),
    });
    let password = s.value("password_file", |text| {
        let read = s.cx.read(FilePath::new(text), Reading::SECRET);
        let read = read.map_err(|why| secrecy::unreadable(text, &why))?;
        let password = read.reveal().trim_end_matches(['\r', '\n']);
        if password.is_empty() || password.len() > PASSWORD_MAX || password.contains(['\r', '\n']) {
            let bad = BadValue::new("the file has no password");
            return Err(bad.hint(format!("one line of at most {PASSWORD_MAX} bytes")));
        }
        Ok(Secret::new(password))
    });
    let pairs = [("user", "password_file"), ("password_file", "user")];
    for (has, lacks) in pairs.into_iter().filter(|(has, lacks)| s.has(has) && !s.has(lacks)) {
        s.bad(has, BadValue::new(format!("`{has}` without `{lacks}`")).hint("etcd wants both"));
    }
    Some(EtcdUser { name: name?, password: password? })
}
