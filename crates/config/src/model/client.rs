//! The model of a client, the side behind NAT.

use std::num::NonZeroUsize;

use proto::control::{MESSAGE_MAX, ServiceTerms};
use proto::{Limits, Visitors};

use crate::key_table::KeyTable;
use crate::model::change::Changed;
use crate::model::common::Common;
use crate::model::credentials::Token;
use crate::model::forward::Forward;
use crate::model::found::{PathDefaults, ServersFrom, SrvName};
use crate::model::limits::Limited;
use crate::model::p2p::P2p;
use crate::model::path::{Choose, Path, PathSpread, PathTls, Trust};
use crate::model::private::{Private, Visit};
use crate::model::public::Public;
use crate::model::servers::{Policy, ServerPaths};
use crate::model::service::{Service, VisitorLists};
use crate::problem::unknown;
use crate::section::Section;
use crate::{BadValue, Lists, Net, Span, values};

/// The largest number of networks in the lists of visitors of all services. Each network has at
/// most 18 bytes (version, prefix, IPv6 address), so the networks fill at most half of the message
/// that registers the services.
const NETWORKS_OF_ALL: usize = MESSAGE_MAX / 2 / 18;

/// The largest size of the host names and the HTTP options of all services, in bytes. They fill at
/// most a quarter of the message that registers the services.
const HTTP_OF_ALL: usize = MESSAGE_MAX / 4;

/// A checked client.yaml.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(rows, compare, later("sni"))]
#[row(token_file: "path", absent = "instead of `token`", reconnect, holds = TokenFile,
    text = "The file with the token with which the client logs in to the server.")]
#[row(tls: map, keys = PathTls, of = "of the server", absent = "authorities of the system", reconnect,
    text = "The TLS settings of the client on paths without their own tls.")]
#[row(headers: "map of names to values", none, reconnect, holds = Fields,
    text = "Additional HTTP headers of WebSocket requests on paths without their own headers.")]
#[row(proxy: "`http://`, `socks4://`, `socks4a://`, `socks5://` or `socks5h://` URL, `none`",
    absent = "the environment", reconnect, holds = Url,
    text = "The outgoing proxy through which the client dials on paths without their own proxy.")]
#[row(retry: map, keys = Retry, reconnect,
    text = "The pauses between attempts of the client to connect to the server.",
    differs = |client| (client.retry_min, client.retry_max))]
#[row(allow_from: "addresses, networks and `@FILE`, one or list", none = "everybody", live,
    text = "The addresses from which visitors may use services without allow_from.",
    differs = |client| client.visitors.allow_from.clone())]
#[row(deny_from: "addresses, networks and `@FILE`, one or list", none = "nobody", live,
    text = "The addresses from which visitors may not use services without deny_from.",
    differs = |client| client.visitors.deny_from.clone())]
#[row(id_prefix: "name", none, live,
    text = "The prefix of the name of each service of the client.")]
pub struct ClientConfig {
    /// The paths to the server in order of preference, or several servers with their paths.
    ///
    /// At least one server, unless the servers are found while the client runs. All settings of a
    /// path are compared.
    #[key("URL or map, one or list", list, keys = ServerPaths, required,
        note = "not with `servers_from` or `srv`", reconnect, holds = Url)]
    pub servers: Vec<ServerPaths>,
    /// The API that names the servers of the client, in the place of servers.
    /// The map has `url`, `every` [5m, 10s to 1d], `token` or `token_file`, `headers`, `proxy` and
    /// `tls`.
    #[key("URL or map", none, live, holds = Url)]
    pub servers_from: Option<ServersFrom>,
    /// The service in DNS whose SRV records name the servers of the client.
    #[key("name such as `_tunnel._tcp.example.com`", none, live)]
    pub srv: Option<SrvName>,
    /// The settings of the top for the paths of servers that are found.
    pub path_defaults: PathDefaults,
    /// Which of several servers has the services and forwards of the client.
    #[key("`all`, `failover`, `nearest`", name = "use", default = "all", live)]
    pub policy: Policy,
    /// The name by which the server knows the client.
    #[key("name", required, restart)]
    pub name: String,
    /// The token with which the client logs in to the server.
    ///
    /// `None`: the certificates of the paths prove the name. The path of the token file is
    /// irrelevant in a comparison; only the token counts.
    #[key("text", required,
        note = "not where every path is `tls://`, `quic://` or `kcp://` and shows a certificate",
        reconnect, holds = Token,
        differs = |client| client.token.as_ref().map(|token| token.secret.clone()))]
    pub token: Option<Token>,
    /// Permits sending data that verify the token to a server that does not know the client.
    #[key("`true`, `false`", default = "false", reconnect)]
    pub introduce: bool,
    /// The number of links of the client to its server.
    ///
    /// `None`: one per worker, at least 2; with `spread: by_stream` one per worker and path.
    #[key(
        "`auto` or 1-1024",
        absent = "`auto` (one per worker, at least 2)",
        reconnect,
        unit = "links"
    )]
    pub connections: Option<NonZeroUsize>,
    /// The number of nodes of a cluster with which the client has links at the same time.
    ///
    /// The nodes name their addresses by `cluster.clients`. A client with several servers, or with
    /// `use: failover` or `nearest`, adds no nodes. `None`: as many as the cluster wants.
    #[key("`auto` or 1-4", absent = "`auto` (2, where there are 2 nodes)", live, unit = "nodes")]
    pub homes: Option<NonZeroUsize>,
    /// How the links of the client are distributed over its paths to the server.
    ///
    /// The first four paths take part.
    #[key("`none`, `by_stream`, `backup`", default = "none", reconnect)]
    pub spread: PathSpread,
    /// How the client chooses among its paths to a server.
    ///
    /// `measured` does not go together with `spread: by_stream`.
    #[key("`listed`, `measured`", default = "listed", reconnect)]
    pub choose: Choose,
    /// The prefix of each service's name. Its changes appear in the names of the services.
    pub id_prefix: Option<String>,
    /// The visitors that may use a service without lists of its own.
    pub visitors: VisitorLists,
    /// The services that the client publishes.
    ///
    /// Ranges are expanded, and names are unique.
    #[key("list", list, keys = super::entry::Written, of = "of the service", none, live, at = Service)]
    pub services: Vec<Service>,
    /// The local listeners of the client whose targets the server or another client dials.
    #[key("list", list, none, of = "of the forward", live, at = Forward)]
    pub forwards: Vec<Forward>,
    /// The private services of other clients that the client visits, with the proofs for them.
    ///
    /// They are besides the tokens of forwards.
    #[key("list", list, of = "of the visit", none, live)]
    pub visits: Vec<Visit>,
    /// The search for direct paths to other clients.
    #[key(map, live)]
    pub p2p: P2p,
    /// The entries that later entries shadow: those of the file behind those of flags, and both
    /// behind those of commands. Visitors do not see them.
    pub shadowed: Lists,
    /// Shortest pause between two attempts to connect.
    pub retry_min: Span,
    /// Longest pause between two attempts to connect.
    pub retry_max: Span,
    /// The load balancers whose PROXY protocol headers the forwards accept.
    #[key("address or network, one or list", none, live)]
    pub trusted_proxies: Vec<Net>,
    /// The limits of streams and flows of the client.
    #[key(map, keys = Limited, of = "of the client", live)]
    pub limits: Limits,
    /// Keys of both roles.
    #[key(flat, compare)]
    pub common: Common,
}

/// The keys of the file in which a client keeps the lists that commands change.
#[derive(KeyTable)]
#[keys(rows)]
#[row(services: "list", list, keys = super::entry::Written, at = Service, none,
    text = "The services that commands have added.")]
#[row(forwards: "list", list, keys = Forward, at = Forward, none,
    text = "The forwards that commands have added.")]
#[row(without: "names, one or list", none,
    text = "The services and forwards of the file that commands have removed.")]
pub(crate) struct KeptLists;

impl ClientConfig {
    /// The keys whose values differ in `other`.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<Changed> {
        let mut found = Vec::new();
        self.compare(other, &mut found);
        found
    }

    /// The configuration in force after a reload of a process that runs with `running`. Keys that
    /// need a restart keep their running values.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> Self {
        self.keep_running(running);
        self
    }

    /// What names the servers of the client while it runs, for people; `None`: the file does.
    #[must_use]
    pub fn finds_servers(&self) -> Option<String> {
        let api = self.servers_from.as_ref().map(ServersFrom::url);
        api.or_else(|| self.srv.as_ref().map(ToString::to_string))
    }

    /// The same with the server of this name alone; unchanged without such a server.
    #[must_use]
    pub fn at_server(&self, name: &str) -> Self {
        let mut at = self.clone();
        let own: Vec<_> =
            self.servers.iter().filter(|server| server.label() == name).cloned().collect();
        if !own.is_empty() {
            at.servers = own;
        }
        at
    }

    /// The paths to all servers.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.servers.iter().flat_map(|server| &server.paths)
    }

    /// The same, mutable.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.servers.iter_mut().flat_map(|server| &mut server.paths)
    }

    /// The paths to all servers, each with the places in the file where it may stand, the most
    /// exact first: `servers[1].paths[0]`.
    pub fn placed_paths(&self) -> impl Iterator<Item = (Vec<String>, &Path)> {
        self.servers.iter().enumerate().flat_map(|(n, server)| {
            let is_alone = server.name.is_none();
            server.paths.iter().enumerate().map(move |(m, path)| {
                let places = if is_alone {
                    vec![format!("servers[{m}]"), "servers".to_owned()]
                } else {
                    let of = format!("servers[{n}]");
                    vec![format!("{of}.paths[{m}]"), format!("{of}.paths"), of]
                };
                (places, path)
            })
        })
    }

    /// The error of a service that names a server that the client does not have.
    pub(crate) fn unknown_server(&self, service: &Service) -> Option<BadValue> {
        let is_unknown = |name: &&String| self.finds_servers().is_none() && !self.has_server(name);
        let name = service.servers.iter().find(is_unknown)?;
        Some(self.no_server(name))
    }

    /// As [`Self::unknown_server`], of a forward.
    pub(crate) fn unknown_server_of(&self, forward: &Forward) -> Option<BadValue> {
        let is_unknown = |name: &&String| self.finds_servers().is_none() && !self.has_server(name);
        let name = forward.server.as_ref().filter(is_unknown)?;
        Some(self.no_server(name))
    }

    /// The first entry of `lists` that names a server that the client does not have, as an error.
    #[must_use]
    pub fn names_no_server(&self, lists: &Lists) -> Option<BadValue> {
        let of_service = lists.services.iter().find_map(|one| self.unknown_server(one));
        let of_forward = || lists.forwards.iter().find_map(|one| self.unknown_server_of(one));
        of_service.or_else(of_forward)
    }

    /// Removes the entries of `lists` that name a server that the client does not have, and returns
    /// an error for each.
    pub fn without_unknown_servers(&self, lists: &mut Lists) -> Vec<BadValue> {
        let mut found = Vec::new();
        lists.services.retain(|one| match self.unknown_server(one) {
            Some(bad) => {
                found.push(BadValue { message: format!("{}: {}", one.name, bad.message), ..bad });
                false
            }
            None => true,
        });
        lists.forwards.retain(|one| match self.unknown_server_of(one) {
            Some(bad) => {
                found.push(BadValue { message: format!("{}: {}", one.listen, bad.message), ..bad });
                false
            }
            None => true,
        });
        found
    }

    fn has_server(&self, name: &str) -> bool {
        self.servers.iter().any(|server| server.label() == name)
    }

    fn no_server(&self, name: &str) -> BadValue {
        let known: Vec<_> = self.servers.iter().map(ServerPaths::label).collect();
        let known: Vec<_> = known.iter().map(String::as_str).collect();
        unknown(&format!("server `{name}`"), name, &known)
    }

    /// The terms for the visitors of a service of this client.
    #[must_use]
    pub fn terms_of(&self, service: &Service) -> ServiceTerms {
        let private = service.private.as_ref().map(Private::patterns);
        // The client's lists of networks apply only to visitors with an address.
        let visitors =
            if private.is_some() { Visitors::default() } else { self.visitors_of(service) };
        ServiceTerms { visitors, private, http: service.http_terms(), ..service.terms.clone() }
    }

    /// The URL that a visitor uses for a public address of a service: the address, and for a name
    /// also the path of the requests.
    #[must_use]
    pub fn url(&self, service: &Service, address: &str) -> String {
        let is_http = ["http://", "https://"].iter().any(|scheme| address.starts_with(scheme));
        let path = self.terms_of(service).http.path.filter(|_| is_http).unwrap_or_default();
        format!("{address}{path}")
    }

    /// Which visitors may use a service of this client.
    pub(crate) fn visitors_of(&self, service: &Service) -> Visitors {
        let (own, default) = (&service.visitors, &self.visitors);
        let allow_from = own.allow_from.as_ref().or(default.allow_from.as_ref());
        let deny_from = own.deny_from.as_ref().or(default.deny_from.as_ref());
        Visitors {
            allow_from: allow_from.cloned(),
            deny_from: deny_from.cloned().unwrap_or_default(),
        }
    }

    /// The pins that this client trusts, each once.
    #[must_use]
    pub fn pins(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for path in self.paths() {
            if let Trust::Pins(pins) = &path.trust {
                all.extend(
                    pins.iter().filter(|pin| !all.contains(pin)).cloned().collect::<Vec<_>>(),
                );
            }
        }
        all
    }

    /// A summary of the configuration, line by line.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let several = self.servers.len() > 1;
        let found = self.finds_servers();
        let mut lines: Vec<String> = found
            .map(|source| format!("client {} asks {source} for its servers", self.name))
            .into_iter()
            .collect();
        for server in &self.servers {
            let of = if several { format!(" at server {}", server.label()) } else { String::new() };
            lines.extend(server.paths.iter().map(|p| {
                let proxy = p.proxy.as_ref().map(|proxy| format!(" through {proxy}"));
                let via = p.via.as_ref().map(|via| format!(" via {via}"));
                let (proxy, via) = (proxy.unwrap_or_default(), via.unwrap_or_default());
                let extras = p.dial.extras();
                format!("client {} to {}{of}{via}{proxy}{extras}", self.name, p.endpoint)
            }));
        }
        if several || self.finds_servers().is_some() {
            lines.push(match self.policy {
                Policy::All => "publishes at every server".to_owned(),
                Policy::Failover => "publishes at the first server that is reachable".to_owned(),
                Policy::Nearest => "publishes at the nearest server that is reachable".to_owned(),
            });
        }
        lines.extend(self.pins().iter().map(|pin| format!("trusts a server with the pin {pin}")));
        for service in &self.services {
            lines.push(format!(
                "service {}: {} -> {}{}{}",
                service.name,
                service.places(),
                service.aims(),
                service.extras(&self.terms_of(service).visitors),
                self.origin(service.kept, &service.name)
            ));
        }
        for forward in &self.forwards {
            let auth = if forward.basic_auth.is_empty() { "" } else { ", basic_auth" };
            let origin = self.origin(forward.kept, &forward.listen.to_string());
            let how = match forward.private() {
                Some(service) => format!("a private service of client {}", service.client),
                None => "dialled by the server".to_owned(),
            };
            lines.push(format!("forward {forward} ({how}){auth}{origin}"));
        }
        lines
    }

    /// The origin of an entry, and the entry that it shadows.
    fn origin(&self, kept: bool, name: &str) -> String {
        let mut notes = Vec::new();
        if kept {
            notes.push("added at run time".to_owned());
        }
        let behind = self.shadows().into_iter().filter(|shadow| shadow.by == name);
        notes.extend(behind.map(|shadow| format!("in the place of {}", shadow.of)));
        if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) }
    }

    /// The exits that any visitor may use.
    pub(crate) fn open_exits(&self) -> impl Iterator<Item = &Service> {
        self.services.iter().filter(|service| service.is_open_exit(&self.visitors_of(service)))
    }

    /// The services whose target is the admin API of this daemon.
    pub(crate) fn admin_services(&self) -> impl Iterator<Item = &Service> {
        let admin = self.common.admin.iter();
        admin.flat_map(|admin| {
            let is_admin = |service: &&Service| service.targets().any(|(to, _)| admin.is_at(to));
            self.services.iter().filter(is_admin)
        })
    }

    /// Replaces `{name}` by the client's own label.
    pub(crate) fn expand(&mut self) -> Result<(), BadValue> {
        let services = std::mem::take(&mut self.services);
        let mut lists = Lists { services, forwards: Vec::new() };
        let outcome = lists.expand(&self.full_name());
        self.services = lists.services;
        // Shadowed services were not compared with each other, and need no such check.
        drop(self.shadowed.expand(&self.full_name()));
        outcome
    }

    /// The name whose label replaces `{name}` in host names: `name` with the prefix `id_prefix`.
    pub(crate) fn full_name(&self) -> String {
        match &self.id_prefix {
            Some(prefix) => format!("{prefix}-{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Checks the number of networks in the lists of visitors, and the size of names and HTTP
    /// options.
    pub(crate) fn check_sizes(&self) -> Result<(), BadValue> {
        let of_http = |service: &Service| {
            let names = service.public.iter().map(|public| match public {
                Public::Name { host, .. } => host.len(),
                Public::Tcp { .. } | Public::Udp { .. } => 0,
            });
            names.sum::<usize>() + service.http_terms().encoded_len()
        };
        if self.services.iter().map(of_http).sum::<usize>() > HTTP_OF_ALL {
            let what = "bytes in the host names and options of HTTP of all services";
            return Err(BadValue::new(format!("more than {HTTP_OF_ALL} {what}"))
                .hint("shorten the lists of `basic_auth`, `headers` and `response_headers`"));
        }
        let count = |service| {
            let Visitors { allow_from, deny_from } = self.visitors_of(service);
            allow_from.map_or(0, |list| list.len()) + deny_from.len()
        };
        if self.services.iter().map(count).sum::<usize>() <= NETWORKS_OF_ALL {
            return Ok(());
        }
        let lists = "networks in `allow_from` and `deny_from` of all services";
        let bad = BadValue::new(format!("more than {NETWORKS_OF_ALL} {lists}"));
        Err(bad.hint("each port of a range has the lists of its service"))
    }
}

/// The section `retry`.
#[derive(KeyTable)]
#[keys(read = retry)]
pub(crate) struct Retry {
    /// The shortest pause between two attempts to connect to the server.
    ///
    /// The default is short enough that visitors do not notice a restart of the server.
    #[key("duration", default = "200ms", note = "at most `max`")]
    pub(crate) min: Span,
    /// The longest pause between two attempts to connect to the server.
    ///
    /// With the default, the client is connected again within 2 s after the network returns.
    #[key("duration", default = "1500ms")]
    pub(crate) max: Span,
}

fn retry(s: &Section<'_>) -> Option<Retry> {
    let (min, max) = values::range::<Retry, _>(s, ("min", "max"), Span::positive)?;
    Some(Retry { min, max })
}
