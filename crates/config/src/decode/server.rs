//! Decodes server.yaml.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;

use super::{Cx, Item, Section, auth, common, doors, listen, p2p, values, visit};
use crate::endpoint::{NO_ZONE, no_zone, port};
use crate::keys::{
    ACCEPT_PROXY, ALL_LIMITS, ALL_SOURCE_LIMITS, ALL_STREAM_LIMITS, ALLOW, ANY_ALLOW, ANY_CLIENT,
    ANY_LIMITS, ANY_SOURCE_LIMITS, ANY_STREAM_LIMITS, CLIENT_ENTRY, LIMITS, LOG_OF_SERVER, SERVER,
    SERVER_TLS, SOURCE_LIMITS, STREAM_LIMITS, Table,
};
use crate::model::{AcceptProxy, ClientGrant, Listen, Rights, ServerConfig, ServerTls};
use crate::public_url::{PublicUrl, PublicUrls};
use crate::yaml::Kind;
use crate::{
    BadValue, CLIENT_PORTS, ForwardRights, GUEST_PORTS, Host, HostRights, Net, PortRights, Scheme,
    VisitRights,
};

/// Decodes the file. `None` only after a problem was reported.
pub(crate) fn server(cx: &Cx<'_>, root: Item) -> Option<ServerConfig> {
    let s = Section::open(cx, root, &SERVER)?;
    let tls = s.section("tls", &SERVER_TLS).map(|tls| ServerTls {
        identity: values::key_pair(&tls),
        client_ca: values::path(&tls, "client_ca"),
    });
    let tls = tls.unwrap_or_default();
    let mut taken = listen::Addresses::default();
    let listen = listen::listen(&s, &tls, &mut taken);
    let (http, tls_routes) = doors::doors(&s, &listen, &mut taken);
    // With a `client_ca`, the certificate proves the name, and a token is an optional second
    // factor.
    let by_certificate = tls.client_ca.is_some();
    let public_bind = s.value("public_bind", ip).unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let public_url = public_url(&s);
    let stun = s.value("stun", port);
    let webrtc = p2p::of_server(&s, &listen, !http.listen.is_empty());
    let trusted_proxies: Vec<Net> = values::entries(&s, "trusted_proxies");
    let ports = s.section("accept_proxy", &ACCEPT_PROXY);
    let of_ports = |key| {
        let rights = ports.as_ref().map(|ports| values::entries(ports, key)).unwrap_or_default();
        PortRights { default_bind: Some(public_bind), rights }
    };
    let limits = s.section("limits", &ALL_LIMITS);
    let each = [&ALL_SOURCE_LIMITS, &ALL_STREAM_LIMITS];
    let limits = limits.map(|own| values::limits(&own, "streams", each)).unwrap_or_default();
    let accept_proxy = AcceptProxy { tcp: of_ports("tcp"), udp: of_ports("udp") };
    let is_mux = |listen: &Listen| listen.mux.as_ref().is_some_and(|mux| mux.accept_proxy);
    let accepts = ports.is_some()
        || http.accept_proxy
        || tls_routes.accept_proxy
        || listen.iter().any(is_mux);
    if accepts && trusted_proxies.is_empty() {
        visit::nobody_announces(cx, s.at());
    }
    let mut names = BTreeSet::new();
    let items = s.key("clients").map(|item| cx.list(&item)).unwrap_or_default();
    let clients: Vec<_> = items
        .into_iter()
        .filter_map(|item| {
            client(cx, item, (public_bind, CLIENT_PORTS), by_certificate, &mut names)
        })
        .collect();
    let auth = auth::auth(&s);
    let any_client = any_client(&s, public_bind, &listen);
    let known = clients.iter().map(|client| &client.rights).chain(&any_client);
    let has_names = |rights: &Rights| !rights.http.0.is_empty() || !rights.tls.0.is_empty();
    let has_doors = !http.listen.is_empty()
        || !tls_routes.listen.is_empty()
        || listen.iter().any(|listen| listen.mux.is_some());
    doors::rights(&s, has_doors, known.into_iter().any(has_names));
    let common = common::common(&s, &LOG_OF_SERVER, crate::Role::Server);
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
        limits,
        http,
        tls_routes,
        common,
    })
}

fn public_url(s: &Section<'_>) -> PublicUrls {
    let mut urls = PublicUrls::default();
    for url in values::entries(s, "public_url") {
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
    let s = Section::open(cx, item, &CLIENT_ENTRY)?;
    if s.key("name").is_none() {
        s.missing("name", "the name the client gives in its own file");
    }
    let name = s.value("name", values::name);
    if let Some(name) = &name
        && !names.insert(name.clone())
    {
        s.bad(
            "name",
            BadValue::new(format!("a second client named {name}")).hint("names are unique"),
        );
    }
    let without = (!by_certificate).then_some(common::TOKEN_WANTED);
    let tokens = common::tokens(&s, 2, common::Kept::OrHashed, without);
    let rights = rights(&s, [&ALLOW, &LIMITS, &SOURCE_LIMITS, &STREAM_LIMITS], bind, ports);
    let name = name?;
    Some(ClientGrant { name, tokens, rights, enrolled: false })
}

/// Decodes `allow_any_client`: `true`, `false`, or the rights of unknown clients.
fn any_client(s: &Section<'_>, bind: IpAddr, listen: &[Listen]) -> Option<Rights> {
    let item = s.key("allow_any_client")?;
    let rights = match &item.node.kind {
        Kind::Map(_) => {
            let s = Section::open(s.cx, item.clone(), &ANY_CLIENT)?;
            rights(
                &s,
                [&ANY_ALLOW, &ANY_LIMITS, &ANY_SOURCE_LIMITS, &ANY_STREAM_LIMITS],
                bind,
                GUEST_PORTS,
            )
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
fn rights(
    s: &Section<'_>,
    [allow, limits, source, stream]: [&Table; 4],
    bind: IpAddr,
    most: u32,
) -> Rights {
    let allow = s.section("allow", allow);
    let limits = s.section("limits", limits);
    let limit = |key, what| limits.as_ref()?.value(key, |text| values::limit(text, what));
    let flows = limits.as_ref().map(|s| values::flow_limits(s, source)).unwrap_or_default();
    let own = limits.as_ref().map(|s| values::limits(s, "streams", [source, stream]));
    let own = own.unwrap_or_default();
    let hosts = limit("hosts", "hosts");
    let ports = limits.as_ref().and_then(|s| s.value("ports", port_limit));
    let names =
        |key| HostRights(allow.as_ref().map(|a| values::entries(a, key)).unwrap_or_default());
    let (http, tls) = (names("http"), names("tls"));
    let of_ports = |key| {
        let rights = allow.as_ref().map(|a| values::entries(a, key)).unwrap_or_default();
        PortRights { default_bind: Some(bind), rights }
    };
    let (tcp, udp) = (of_ports("tcp"), of_ports("udp"));
    let ports = ports.unwrap_or_else(|| tcp.count().saturating_add(udp.count()).min(most));
    let forward =
        ForwardRights(allow.as_ref().map(|a| values::entries(a, "forward")).unwrap_or_default());
    let visit =
        VisitRights(allow.as_ref().map(|a| values::entries(a, "visit")).unwrap_or_default());
    let switch = |key| allow.as_ref().and_then(|a| a.value(key, values::switch));
    let speedtest = switch("speedtest").unwrap_or(true);
    let pass_through = switch("pass_through").unwrap_or(false);
    let shared = switch("shared").unwrap_or(false);
    let dscp = switch("dscp").unwrap_or(false);
    let invite = switch("invite").unwrap_or(false);
    Rights {
        tcp,
        udp,
        http,
        tls,
        pass_through,
        forward,
        visit,
        shared,
        dscp,
        invite,
        speedtest,
        limits: own,
        ports,
        hosts,
        flows,
    }
}

fn port_limit(text: &str) -> Result<u32, BadValue> {
    if text == "unlimited" {
        return Ok(u32::MAX);
    }
    let bad = |_| BadValue::new(format!("`{text}` is not a number of ports"));
    let limit = text.parse::<NonZeroU32>();
    limit.map(NonZeroU32::get).map_err(|why| bad(why).hint("1 or more, or `unlimited`"))
}
