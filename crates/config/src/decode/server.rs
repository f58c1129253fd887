//! Decodes server.yaml.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use super::{auth, cluster, doors, listen, visit};
use crate::endpoint::{NO_ZONE, no_zone, port};
use crate::key_table::{KeyMap, KeyPlace, KeyTable};
use crate::model::limits::limits;
use crate::model::{
    AcceptProxy, AnyClient, ClientGrant, Common, Http, Listen, Rights, ServerConfig, ServerP2p,
    ServerTls, ServerWebrtc, TlsRoutes, VisitRights, credentials, entry,
};
use crate::public_url::PublicUrl;
use crate::section::{Cx, Item, Section};
use crate::yaml::Kind;
use crate::{
    BadValue, CLIENT_PORTS, ForwardRight, ForwardRights, GUEST_PORTS, Host, HostRights, Net, Over,
    PortRights, PublicUrls, Scheme, values,
};

/// Decodes the file. `None` only after a problem was reported.
pub(crate) fn server(cx: &Cx<'_>, root: Item) -> Option<ServerConfig> {
    let s = Section::open(cx, root, KeyMap { at: Some(KeyPlace::Server), ..ServerConfig::MAP })?;
    let tls = s.section::<ServerConfig>("tls").map(|tls| ServerTls {
        identity: credentials::key_pair(&tls),
        client_ca: values::path(&tls, "client_ca"),
    });
    let tls = tls.unwrap_or_default();
    let listen = listen::listen(&s, &tls);
    let doors = doors::doors(&s, &listen);
    // With a `client_ca`, the certificate proves the name, and a token is an optional second
    // factor.
    let by_certificate = tls.client_ca.is_some();
    let public_bind = s.value("public_bind", ip).unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let public_url = public_url(&s);
    let stun = s.value("stun", port);
    let has_http = doors.as_ref().is_some_and(|(http, _)| !http.listen.is_empty());
    let webrtc = of_server(&s, &listen, has_http);
    let trusted_proxies: Vec<Net> = s.each("trusted_proxies", str::parse);
    let ports = s.section::<ServerConfig>("accept_proxy");
    let of_ports = |key| {
        let rights = ports.as_ref().map(|ports| ports.each(key, str::parse)).unwrap_or_default();
        PortRights { default_bind: Some(public_bind), rights }
    };
    let limits = limits::<ServerConfig>(&s).streams();
    let accept_proxy = AcceptProxy { tcp: of_ports("tcp"), udp: of_ports("udp") };
    let is_mux = |listen: &Listen| listen.mux.as_ref().is_some_and(|mux| mux.accept_proxy);
    let accepts = ports.is_some()
        || doors.as_ref().is_some_and(|(http, tls)| http.accept_proxy || tls.accept_proxy)
        || listen.iter().any(is_mux);
    if accepts && trusted_proxies.is_empty() {
        visit::nobody_announces(cx, s.at());
    }
    let mut names = BTreeSet::new();
    let client = |item| client(cx, item, (public_bind, CLIENT_PORTS), by_certificate, &mut names);
    let clients: Vec<_> = s.list("clients").into_iter().filter_map(client).collect();
    let auth = auth::auth(&s);
    let cluster = cluster::cluster(&s);
    let any_client = any_client(&s, public_bind, &listen);
    let known = clients.iter().map(|client| &client.rights).chain(&any_client);
    let has_names = |rights: &Rights| !rights.http.0.is_empty() || !rights.tls.0.is_empty();
    let is_open =
        |(http, tls): &(Http, TlsRoutes)| !http.listen.is_empty() || !tls.listen.is_empty();
    let has_doors =
        doors.as_ref().is_some_and(is_open) || listen.iter().any(|listen| listen.mux.is_some());
    doors::rights(&s, has_doors, known.into_iter().any(has_names));
    let common = Common::of(&s, crate::Role::Server)?;
    let (http, tls_routes) = doors?;
    let orders_alone = cluster.as_ref().is_some_and(|cluster| cluster.secrets.is_empty());
    if orders_alone && !tls_routes.acme.is_empty() {
        let bad = BadValue::new("each node of the cluster orders its own certificates");
        s.warn("cluster", bad.hint("give all nodes the same `secret`, and one of them orders"));
    }
    Some(ServerConfig {
        listen,
        tls,
        clients,
        any_client,
        auth,
        public_bind,
        public_url,
        stun,
        webrtc,
        trusted_proxies,
        accept_proxy,
        cluster,
        visitors: entry::visitors(&s, usize::MAX),
        limits,
        http,
        tls_routes,
        common,
    })
}

fn public_url(s: &Section<'_>) -> PublicUrls {
    let mut urls = PublicUrls::default();
    for url in s.each("public_url", str::parse) {
        match url {
            PublicUrl::Client(url) => urls.clients.push(url),
            PublicUrl::Names(names) => urls.names.push(names),
        }
    }
    urls
}

pub(crate) fn ip(text: &str) -> Result<IpAddr, BadValue> {
    match text.parse()? {
        Host::Ip(ip) => Ok(ip),
        Host::Scoped(_) => Err(no_zone(text, NO_ZONE)),
        Host::Name(name) => {
            Err(BadValue::new(format!("`{name}` is not an address"))
                .hint("0.0.0.0, [::] or 127.0.0.1"))
        }
    }
}

/// Decodes a client in its own file.
pub(crate) fn grant(cx: &Cx<'_>, root: Item, bind: IpAddr, ports: u32) -> Option<ClientGrant> {
    client(cx, root, (bind, ports), false, &mut BTreeSet::new())
}

fn client(
    cx: &Cx<'_>,
    item: Item,
    (bind, ports): (IpAddr, u32),
    by_certificate: bool,
    names: &mut BTreeSet<String>,
) -> Option<ClientGrant> {
    let s = Section::open(cx, item, ClientGrant::MAP)?;
    let name = s.required("name", "the name the client gives in its own file", values::name);
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        let bad = BadValue::new(format!("a second client named {name}"));
        s.bad("name", bad.hint("names are unique"));
    }
    let without = (!by_certificate).then_some(credentials::TOKEN_WANTED);
    let tokens = credentials::tokens(&s, 2, credentials::Kept::OrHashed, without);
    let rights = rights::<ClientGrant>(&s, bind, ports);
    let name = name?;
    Some(ClientGrant { name, tokens, rights, enrolled: false })
}

/// Decodes `allow_any_client`: `true`, `false`, or the rights of unknown clients.
fn any_client(s: &Section<'_>, bind: IpAddr, listen: &[Listen]) -> Option<Rights> {
    let item = s.key("allow_any_client")?;
    let rights = match &item.node.kind {
        Kind::Map(_) => {
            let s = Section::open(s.cx, item.clone(), AnyClient::MAP)?;
            rights::<AnyClient>(&s, bind, GUEST_PORTS)
        }
        Kind::Scalar { .. } | Kind::List(_) => {
            let may = s.cx.value(&item, values::switch)?;
            may.then(|| Rights::none(bind))?
        }
    };
    if !listen.is_empty() && !listen.iter().any(|at| at.endpoint.scheme.binds_log_ins) {
        let over = Scheme::list("and", |scheme| scheme.binds_log_ins);
        let bad = BadValue::new(format!("who is unknown can come in over {over} only"));
        s.cx.warn(item.at(), &item.path, bad.hint("add such a port under `listen`"));
    }
    Some(rights)
}

/// Decodes rights and limits. Without `limits.ports` a client may have as many ports as `allow.tcp`
/// and `allow.udp` list, and at most `most`.
fn rights<K: KeyTable>(s: &Section<'_>, bind: IpAddr, most: u32) -> Rights {
    let limited = limits::<K>(s);
    let none = Rights { limits: limited.streams(), flows: limited.flows(), ..Rights::none(bind) };
    let rights = match s.section::<K>("allow") {
        Some(allow) => allowed(&allow, none),
        None => none,
    };
    let listed = || rights.tcp.count().saturating_add(rights.udp.count()).min(most);
    let ports = limited.ports.unwrap_or_else(listed);
    Rights { ports, hosts: limited.hosts, ..rights }
}

/// Decodes `allow`.
fn allowed(s: &Section<'_>, none: Rights) -> Rights {
    let ports =
        |key| PortRights { default_bind: none.tcp.default_bind, rights: s.each(key, str::parse) };
    let switch = |key, default| s.value(key, values::switch).unwrap_or(default);
    Rights {
        tcp: ports("tcp"),
        udp: ports("udp"),
        http: HostRights(s.each("http", str::parse)),
        tls: HostRights(s.each("tls", str::parse)),
        pass_through: switch("pass_through", none.pass_through),
        forward: ForwardRights(s.each("forward", str::parse)),
        via: ForwardRights(s.each("via", via)),
        visit: VisitRights(s.each("visit", str::parse)),
        shared: switch("shared", none.shared),
        dscp: switch("dscp", none.dscp),
        invite: switch("invite", none.invite),
        speedtest: switch("speedtest", none.speedtest),
        ..none
    }
}

/// Parses a right of `allow.via`: a place that is dialled by TCP.
fn via(text: &str) -> Result<ForwardRight, BadValue> {
    let right = text.parse::<ForwardRight>()?;
    if right.is_unix() || right.is_over(Over::Udp) {
        let bad = BadValue::new(format!("`{text}` is no server that is dialled by TCP"));
        return Err(bad.hint("host:port of the other server: fra.example.com:7000"));
    }
    Ok(right)
}

/// `p2p` of a server.
pub(super) fn of_server(
    s: &Section<'_>,
    listen: &[Listen],
    has_http: bool,
) -> Option<ServerWebrtc> {
    let p2p = s.section::<ServerConfig>("p2p")?;
    let webrtc = p2p.map("webrtc", ServerP2p::map("webrtc"))?;
    let takes_offers = |at: &Listen| {
        let is_mux = at.mux.is_some() && at.endpoint.path.is_some();
        is_mux || (at.endpoint.scheme.http && at.mux.is_none())
    };
    if !has_http && !listen.iter().any(takes_offers) {
        let bad = BadValue::new(
            "offers of WebRTC come to a listener of wss://, ws:// or mux:// with a path, or to \
             http.listen",
        );
        p2p.bad("webrtc", bad.hint("add one: wss://[::]:7443/tunnel"));
    }
    Some(webrtc)
}
