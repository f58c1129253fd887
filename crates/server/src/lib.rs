//! The server role: carriers are accepted, are greeted, and join or begin links on workers; clients
//! register services, which become entrances.
//!
//! ```text
//!   shared.rs      the data that all parts below share
//!   listening.rs   the ports of the configuration, including those that wait for their address
//!   accept.rs      listeners of carriers: handshake, greeting, handover to the link's worker
//!   auth.rs        log-in: credentials, rights, takeover by a newer client process
//!   clients/       all clients that may log in, and the changes by a reload
//!   hook/          `auth.http`: an external service that knows additional clients
//!   reload.rs      the reload of the configuration
//!   enrolments.rs  codes that admit new clients
//!   brake.rs       delays failed log-ins and logs each kind once
//!   registry/      sessions and links, entrances of services
//!   directory/     which client has which port or name
//!   cluster/       the server as a node of a cluster
//!   presence.rs    which processes of clients are at this node of a cluster
//!   shared_clients.rs  the codes and the enrolled clients of a cluster
//!   about.rs       what a claim says to other nodes about its services
//!   shed.rs        the clients of a node that stops go to other nodes in portions
//!   cluster_view.rs  what is answered to questions about the cluster
//!   hops/          visitors of clients that have their links with other nodes
//!   strays.rs      carriers whose links other nodes have
//!   private/       private services, and the joining of streams of two clients
//!   stun.rs        the ports at which the server answers STUN
//!   invitations.rs one-time codes of visitors of private services
//!   sightings.rs   the last address, the end and the last refused log-in of each client
//!   offers/        WebRTC connections, which begin with an HTTP request
//!   owner.rs       reactions to a link: streams (forwards), registrations, state changes
//! ```
//!
//! Ports that all clients share, and the names behind these ports, are the crate `doors`.

mod about;
mod accept;
mod auth;
mod brake;
mod clients;
mod cluster;
mod cluster_view;
mod directory;
mod enrolments;
mod hook;
mod hops;
mod invitations;
mod listening;
#[cfg(feature = "webrtc")]
mod offers;
mod owner;
mod presence;
mod private;
mod registry;
mod reload;
mod shared;
mod shared_clients;
mod shed;
mod sightings;
mod source;
mod strays;
mod stun;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use arc_swap::ArcSwap;
use config::{Common, Over, ServerConfig};
use link::ProcessBudget;
use logging::AUDIT;
use net::inherited::Place;
use ops::clients::{self as client_list, Applied, Change, Details, Held, HoldOrder};
use ops::enrol::{Opened, Order};
use ops::events::Events;
use ops::measure::{Meter, Ping};
use ops::status::{self, AWAY_MAX, DaemonState, LinkState, Peers, Status};
use ops::tested::{Tested, Tester};
use ops::{
    Certificates, ClusterView, Cursor, Daemon, Enrolment, Entries, Foreseen, Reloaded, Role,
    SendFuture, Serving, StatusDelta, Traffic, WrongConfig,
};
use proto::LinkConfig;
use proto::greeting::{Features, Name};
use termination::Terminator;
use tls::Identity;
use tokio::task::JoinSet;

use families::ServerSide;
use families::budget::budget;
#[cfg(any(test, feature = "testing"))]
use node::session::Handle;
use node::session::{State, Workers};
use node::tcp_info::Ledger;
use node::{descriptors, memory, taken_over, workers};
use probes::PingRotation;
use survey::Survey;
use targets::trial;

use cluster::{ServerNode, SharedDirectory};
use directory::{Directory, Local};
use doors::remembered::{self, NameAway};
use doors::{Doors, certificates};
pub use enrolments::Enrolled;
pub use families::browser::has_page;
use hops::{NewParts, NodeParts};
use listening::{Port, Waiting};
use registry::{ClientNotes, Registry};
use shared::{ServerShared, admits_codes, without_clients};
pub use source::ConfigSource;
use stun::StunReport;

/// A running server.
pub struct Server {
    workers: Workers,
    registry: Arc<Registry>,
    listen: Vec<String>,
    /// The URLs at which visitors of names connect.
    visitors: Vec<String>,
    /// The ports that wait for their addresses.
    waiting: Waiting,
    doors: Arc<Doors>,
    /// The state directory.
    state: Option<PathBuf>,
    /// The node of a cluster; `None`: the server is alone.
    node: Option<Arc<ServerNode>>,
    /// Its links and entrances.
    parts: Option<NodeParts>,
    /// Orders certificates, keeps the known names, and runs the node of a cluster, until it is
    /// dropped.
    _orders: JoinSet<()>,
    started: Instant,
    /// The configuration in force, without the clients.
    config: ArcSwap<ServerConfig>,
    side: ServerSide,
    source: Option<ConfigSource>,
    ledger: Ledger,
    survey: Survey,
    /// The rotation of its links in `tunnel ping`.
    turn: PingRotation,
}

/// The state that one poll of the status keeps for the next.
#[derive(Debug)]
struct GlanceNotes {
    /// A sample address, as it is announced.
    origin: String,
    sessions: survey::Notes,
    clients: ClientNotes,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.listen.join(", "))
    }
}

/// Starts listeners and workers. `identity` must be present when a listener speaks TLS.
pub async fn start(
    config: ServerConfig,
    identity: Option<Identity>,
    source: ConfigSource,
) -> anyhow::Result<Arc<Server>> {
    let link = memory::link_config(&config.common);
    let (kept, state) = (Arc::clone(&source.enrolled), source.state.clone());
    let server =
        Server::start_with(config, identity, (link, Features::OURS), Some(kept), Some(&state))
            .await?;
    Ok(Arc::new(Server { source: Some(source), ..server }))
}

/// The registry of a server, and the node of the server that does not run yet, if the server is one
/// of several.
fn registry_of(
    config: &ServerConfig,
    shared: Arc<ServerShared>,
    workers: &Workers,
    state: Option<&Path>,
) -> anyhow::Result<(Arc<Registry>, Option<NewParts>)> {
    let handles = Arc::clone(workers.handles());
    let Some(cluster) = &config.cluster else {
        let directory = Arc::new(Local::new(state));
        return Ok((Registry::new(shared, handles, directory, None), None));
    };
    let new = NewParts::of_config(cluster, &handles, (&config.common, state))?;
    let directory: Arc<dyn Directory> = Arc::<SharedDirectory>::clone(new.node().directory());
    let presence = Some(Arc::clone(new.node().presence()));
    Ok((Registry::new(shared, handles, directory, presence), Some(new)))
}

/// Lets a node share certificates with the others, before it orders one.
fn share_certificates(
    config: &ServerConfig,
    terminator: Option<&Arc<Terminator>>,
    node: Option<&NewParts>,
) {
    let store = node.and_then(|new| new.node().store());
    let secret = certificates::common_secret(config);
    if let (Some(terminator), Some(store), Some(secret)) = (terminator, store, secret) {
        terminator.share(secret, Arc::new(store));
    }
}

impl Server {
    /// Starts a server that reads its configuration once and admits no client by a code.
    pub async fn start(config: ServerConfig, identity: Option<Identity>) -> anyhow::Result<Self> {
        let link = memory::link_config(&config.common);
        Self::start_with(config, identity, (link, Features::OURS), None, None).await
    }

    /// Like [`start`](Self::start), but codes can enrol clients. `kept` stores these clients.
    pub async fn start_with_codes(
        config: ServerConfig,
        identity: Option<Identity>,
        kept: Arc<dyn Enrolled>,
    ) -> anyhow::Result<Self> {
        let link = memory::link_config(&config.common);
        Self::start_with(config, identity, (link, Features::OURS), Some(kept), None).await
    }

    /// Starts a server whose links have the settings `link` instead of the configured settings, and
    /// which announces these features to clients. `kept` stores the enrolled clients. `state` is
    /// the directory in which `quic://` keeps data for the next process.
    pub async fn start_with(
        config: ServerConfig,
        identity: Option<Identity>,
        (link, features): (LinkConfig, Features),
        kept: Option<Arc<dyn Enrolled>>,
        state: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let count = config.common.workers.unwrap_or_else(workers::automatic);
        let side = ServerSide::new(&config, identity.as_ref(), state)?;
        let terminator = certificates::terminator(&config, state)?;
        let of_shared = (kept, terminator.clone(), StunReport::new(side.stun()));
        let shared = Arc::new(ServerShared::new(&config, (link, features), of_shared, state)?);
        // Ports are bound first, so that a port in use is reported before anything runs.
        let doors = Doors::new(Arc::clone(&shared.hosts), &config, state)?;
        let (groups, absent) = listening::bind_all(&config, &side, count.get())?;
        let of_absent = absent.iter().filter_map(|port| {
            let listen = config.listen.get(port.nth()?)?;
            Some((&listen.endpoint, port.address?))
        });
        let of_bound = groups.iter().filter_map(|port| match port {
            Port::Carriers(_, endpoint, bound) => Some((endpoint, bound.address)),
            Port::Door(_) => None,
        });
        shared.stun.bound(of_bound.chain(of_absent));
        let budget = ProcessBudget::new(budget(&config.common));
        let workers = Workers::start(count, move |_| State::new(memory::lease(&budget, count)))
            .context("starting workers")?;
        let (registry, new_node) = registry_of(&config, shared, &workers, state)?;
        let (mut listen, mut visitors) = (Vec::new(), Vec::new());
        let (mut http, mut tls) = (None, None);
        let of_doors = groups.iter().filter_map(|port| match port {
            Port::Door(door) => Some((door.admits(), door.address.port())),
            Port::Carriers(..) => None,
        });
        let of_absent =
            absent.iter().filter_map(|port| Some((port.admits(&config), port.address?.port())));
        for ((admits_http, admits_tls), port) in of_doors.chain(of_absent) {
            http = http.or_else(|| admits_http.then_some(port));
            tls = tls.or_else(|| admits_tls.then_some(port));
        }
        registry.shared().hosts.set_ports(http, tls);
        let open = groups.iter().map(|port| (port.nth(), port.url()));
        for (nth, url) in open.chain(absent.iter().map(|port| (port.nth(), port.url.clone()))) {
            match nth {
                Some(nth) => listen.push((nth, url)),
                None => visitors.push(url),
            }
        }
        if let Some(worker) = workers.handles().first() {
            // A client learns the port at its log-in.
            stun::serve(side.stun(), &config, worker).await?;
        }
        for port in groups {
            port.open(workers.handles(), &doors, &registry).await?;
        }
        let waiting = Waiting::default();
        let parts = (Arc::clone(&doors), Arc::clone(&registry));
        let of_config = (without_clients(config.clone()), side.clone());
        waiting.insist(absent, of_config, parts, workers.handles()).await?;
        for url in &config.public_url.clients {
            tracing::info!("clients reach this server at {url}");
        }
        // In the order of the configuration.
        listen.sort_by_key(|(nth, _)| *nth);
        let listen = listen.into_iter().map(|(_, url)| url).collect();
        share_certificates(&config, terminator.as_ref(), new_node.as_ref());
        let mut orders = certificates::drive(terminator.as_ref());
        orders.spawn(remembered::keep(Arc::clone(&registry.shared().hosts)));
        if let Some(worker) = workers.handles().first() {
            hook::keep_asking(Arc::clone(&registry), worker).await?;
        }
        taken_over::adopt_visitors(workers.handles()).await?;
        let node = new_node.as_ref().map(|new| Arc::clone(new.node()));
        let parts = NewParts::run_if_some(new_node, &registry, &mut orders).await?;
        let config = ArcSwap::from_pointee(without_clients(config));
        let (started, source) = (Instant::now(), None);
        let (ledger, turn) = (Ledger::default(), PingRotation::default());
        let survey = Survey::new(&workers);
        let state = state.map(Path::to_owned);
        Ok(Self {
            workers,
            registry,
            listen,
            visitors,
            waiting,
            doors,
            state,
            node,
            parts,
            _orders: orders,
            started,
            config,
            side,
            source,
            ledger,
            survey,
            turn,
        })
    }

    /// The handles of its workers.
    #[cfg(any(test, feature = "testing"))]
    pub fn handles(&self) -> &Arc<[Handle]> {
        self.workers.handles()
    }

    #[cfg(test)]
    fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    fn shared(&self) -> &ServerShared {
        self.registry.shared()
    }

    /// The clients on hold.
    fn holds(&self) -> Vec<status::ClientHeld> {
        let all = self.shared().hosts.holds.all().into_iter();
        all.map(|(client, hold)| status::ClientHeld { client, hold: hold.shown() }).collect()
    }

    /// Asks all clients for links to the next process until this process has no link. Visitors of
    /// other nodes wait at the next process for the clients, so the other nodes move first: none of
    /// their visitors finds a client here that has gone.
    async fn move_clients(&self, parts: Option<&NodeParts>) {
        loop {
            if let Some(parts) = parts {
                parts.retire_incoming().await;
            }
            survey::retire_links(self.workers.handles()).await;
            self.registry.close_left().await;
            let defaults = survey::defaults(self.workers.handles()).await;
            let direct: u64 = defaults.iter().map(|default| default.streams).sum();
            if direct == 0 && survey::links(self.workers.handles()).await == 0 {
                return;
            }
            tokio::time::sleep(survey::DRAIN_LOOK).await;
        }
    }

    /// Lets the clients go to the other nodes of the cluster, if there are any, in half of the time
    /// that a drain has.
    async fn shed(&self) {
        if self.node.as_ref().is_some_and(|node| node.has_others()) {
            let limit = self.config.load().common.drain_timeout.duration() / 2;
            self.registry.let_go();
            shed::shed(&self.registry, self.workers.handles(), limit).await;
        }
    }

    async fn save_names(&self) {
        let shared = Arc::clone(self.registry.shared_arc());
        // A panic was logged.
        let _ = tokio::task::spawn_blocking(move || shared.hosts.save_names()).await;
    }

    /// The URLs at which the server listens for clients.
    pub fn listen(&self) -> &[String] {
        &self.listen
    }

    /// All sessions, with the addresses of their services as others reach them.
    async fn sessions(&self) -> Vec<status::Session> {
        let mut sessions = survey::sessions(self.workers.handles(), &self.ledger).await;
        self.settle(&mut sessions);
        sessions.into_values().collect()
    }

    /// Adds the data that the workers do not have.
    fn settle(&self, sessions: &mut BTreeMap<u64, status::Session>) {
        let hosts = &self.shared().hosts;
        let services = sessions.values_mut().flat_map(|session| &mut session.services);
        services.for_each(|service| service.address = hosts.public_form(&service.address));
        self.registry.add_failures(sessions);
        sessions.values_mut().for_each(status::Session::settle);
    }

    /// The changing values of a status, without the sessions.
    async fn gauges(&self) -> Status {
        let handles = self.workers.handles();
        let cluster = match &self.node {
            Some(node) => Some(node.status().await),
            None => None,
        };
        Status {
            role: self.role(),
            uptime_seconds: self.started.elapsed().as_secs(),
            state: DaemonState::Running.into(),
            default_targets: survey::defaults(handles).await,
            memory: survey::memory(handles).await,
            descriptors: descriptors::survey(),
            udp: survey::udp(),
            cluster,
            ..Status::default()
        }
    }
}

impl Daemon for Server {
    fn role(&self) -> Role {
        Role::Server
    }

    fn alive(&self, limit: Duration) -> SendFuture<'_, bool> {
        Box::pin(self.workers.answer(limit))
    }

    fn events(&self) -> Option<&Events> {
        Some(&self.shared().events)
    }

    fn traffic(&self) -> Option<&dyn Traffic> {
        Some(&self.survey)
    }

    fn meter(&self) -> Option<&dyn Meter> {
        Some(self)
    }

    fn enrolment(&self) -> Option<&dyn Enrolment> {
        Some(self)
    }

    fn tester(&self) -> Option<&dyn Tester> {
        Some(self)
    }

    fn cluster(&self) -> Option<&dyn ClusterView> {
        Some(self)
    }

    fn delta<'a>(&'a self, cursor: &'a mut Cursor) -> SendFuture<'a, StatusDelta> {
        Box::pin(async move {
            let notes: Option<GlanceNotes> = cursor.take();
            // A reload may change the announced addresses.
            let origin = self.shared().hosts.public_form("tcp://:1");
            let notes = notes.filter(|notes| notes.origin == origin);
            let whole = notes.is_none();
            let (sessions, clients) = notes.map(|notes| (notes.sessions, notes.clients)).unzip();
            let handles = self.workers.handles();
            let failures = self.registry.failure_prints();
            let (mut changes, sessions) = survey::changes(handles, sessions, failures).await;
            self.settle(&mut changes.sessions);
            let status = self.gauges().await;
            let (of_clients, clients) = self.registry.changed_clients(clients);
            cursor.keep(GlanceNotes { origin, sessions, clients });
            let survey::Changes { sessions, gone } = changes;
            let sessions = sessions.into_iter().collect();
            StatusDelta { whole, status, sessions, gone, clients: Some(of_clients) }
        })
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let sessions = self.sessions().await;
            Status { sessions, ..self.brief().await }
        })
    }

    fn brief(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let hosts = &self.shared().hosts;
            let names_away = hosts.names_away();
            let shown = |NameAway { host, client, age }: &NameAway| status::NameAway {
                address: hosts.public_form(&hosts.url(host).unwrap_or_else(|_| host.to_string())),
                client: client.to_string(),
                seconds: age.as_secs(),
            };
            Status {
                listen: self.listen.iter().map(|url| self.waiting.shown(url)).collect(),
                pins: self.side.pin().into_iter().collect(),
                doors: self.visitors.iter().map(|url| self.waiting.shown(url)).collect(),
                certificates: self.shared().hosts.certificates(),
                names_away: names_away.iter().take(AWAY_MAX).map(shown).collect(),
                names_away_total: u64::try_from(names_away.len()).unwrap_or(u64::MAX),
                holds: self.holds(),
                logins: self.registry.brake().outcomes(),
                tasks: survey::tasks(self.workers.handles()).await,
                peers: Peers {
                    streams: self.shared().private.counted(),
                    stun: self.shared().stun.counted(),
                    ..Peers::default()
                },
                ..self.gauges().await
            }
        })
    }
}

impl Tester for Server {
    fn test(
        &self,
        service: String,
        client: Option<String>,
    ) -> SendFuture<'_, anyhow::Result<Tested>> {
        Box::pin(async move {
            let name = Name::new(&service).map_err(|why| WrongConfig::one(why.to_string()))?;
            let sessions = survey::sessions(self.workers.handles(), &self.ledger).await;
            let has_it = |one: &&status::Session| {
                client.as_ref().is_none_or(|client| *client == one.peer)
                    && one.services.iter().any(|one| one.name == service)
                    && one.links.iter().any(|link| link.state.state() == LinkState::Up)
            };
            let mut owners: Vec<_> = sessions.iter().filter(|(_, one)| has_it(one)).collect();
            // A process that has taken over from another is the newer session.
            owners.sort_by_key(|(id, _)| std::cmp::Reverse(**id));
            let (session, owner) = owners
                .first()
                .with_context(|| format!("no connected client publishes a service `{service}`"))?;
            let others: BTreeSet<_> = owners.iter().map(|(_, one)| one.peer.as_str()).collect();
            anyhow::ensure!(
                others.len() == 1,
                "{} publish a service `{service}`: name one of them (hint: --client)",
                Vec::from_iter(others).join(", ")
            );
            let handles = self.workers.handles();
            let asked = probes::ask_client(handles, **session, name).await;
            let (round_trip, targets) = asked.map_err(anyhow::Error::msg)?;
            let ok = trial::all_serve(&targets);
            let client = Some(owner.peer.clone());
            Ok(Tested { service, client, ok, link_micros: Some(round_trip), targets })
        })
    }
}

impl Enrolment for Server {
    fn enroll(&self, order: Order) -> SendFuture<'_, anyhow::Result<Opened>> {
        Box::pin(async {
            let name = order.name.clone();
            let admits = admits_codes(&self.config.load());
            if let Ok(name) = Name::new(&name) {
                self.registry.learn(&name).await;
            }
            let made = self.shared().enrolments.begin(order, self.knows(&name), admits, None)?;
            let secret = self.registry.offer_code(made).await?;
            tracing::info!(target: AUDIT, client = name, "a code was made with which client {name} can enrol");
            let config = self.config.load();
            let read = self.identity(&config)?.map(|identity| identity.pin().to_string());
            // A server that does not read its configuration again has the certificate of its start.
            let pin = read.or_else(|| self.side.pin().filter(|_| self.source.is_none()));
            let self_signed = config.tls.identity.is_none();
            // A code does not replace a certificate, so it works only where none is requested.
            let places = self.listen.iter().zip(&config.listen);
            let listen = places.filter(|(_, at)| config.is_exempt(at));
            // Clients must dial one transport of a `mux://` port.
            let listen = listen.map(|(url, _)| url.replacen("mux://", "tls://", 1)).collect();
            let public = config.public_url.clients.iter().map(ToString::to_string).collect();
            Ok(Opened { secret, pin, self_signed, listen, public })
        })
    }

    fn revoke(&self, name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        Box::pin(async move {
            let name = Name::new(&name).map_err(|why| WrongConfig::one(why.to_string()))?;
            // The client's links are on the workers, so this call sends the change to the workers.
            self.registry.revoke(&name).await
        })
    }
}

impl Entries for Server {
    fn knows(&self, name: &str) -> bool {
        self.shared().clients.are_told_of(name)
    }

    fn all(&self) -> client_list::Clients {
        let uptime_seconds = self.started.elapsed().as_secs();
        let pin = self.side.pin();
        let list = self.registry.clients();
        client_list::Clients { uptime_seconds, pin, list, ..Default::default() }
    }

    fn one(&self, name: String) -> SendFuture<'_, Option<Details>> {
        Box::pin(async move {
            self.registry.learn(&Name::new(&name).ok()?).await;
            let mut details = self.registry.client(&name)?;
            let sessions = self.sessions().await;
            details.sessions = sessions.into_iter().filter(|one| one.peer == name).collect();
            Some(details)
        })
    }

    fn kick(&self, name: String) -> SendFuture<'_, bool> {
        Box::pin(async move { self.registry.kick(&name).await })
    }

    fn change_enrolled(&self, change: Change) -> SendFuture<'_, anyhow::Result<Option<Applied>>> {
        Box::pin(self.registry.change(change))
    }

    fn hold(&self, order: HoldOrder) -> SendFuture<'_, anyhow::Result<Option<Held>>> {
        Box::pin(self.registry.hold(order))
    }

    fn apply(&self, change: Change, text: String) -> SendFuture<'_, anyhow::Result<Applied>> {
        Box::pin(async move { self.apply_client_of(&change, text).await })
    }
}

impl Meter for Server {
    fn ping(&self, patience: Duration) -> SendFuture<'_, Ping> {
        Box::pin(probes::ping_clients(self.workers.handles(), &self.turn, patience))
    }
}

impl Serving for Server {
    fn summary(&self) -> String {
        format!("serving clients on {}", self.listen.join(", "))
    }

    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.reload_source())
    }

    fn check(&self, text: String) -> anyhow::Result<Foreseen> {
        self.try_source(text)
    }

    fn common(&self) -> Common {
        self.config.load().common.clone()
    }

    fn certificates(&self) -> &dyn Certificates {
        self
    }

    fn entries(&self) -> Option<&dyn Entries> {
        Some(self)
    }

    fn drain(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            self.shed().await;
            self.shared().strays.end();
            doors::close(self.workers.handles()).await;
            self.registry.close_entrances().await;
            let Some(parts) = &self.parts else {
                return survey::drain_links(self.workers.handles()).await;
            };
            parts.close_entrances().await;
            // The links to other nodes would be made again otherwise.
            tokio::join!(parts.leave(), survey::drain_links(self.workers.handles()));
        })
    }

    fn will_listen(&self, place: &Place) -> bool {
        match place {
            Place::Tcp(at) => self.shared().clients.may_publish(Over::Tcp, *at),
            Place::Udp(at) => self.shared().clients.may_publish(Over::Udp, *at),
            Place::Unix(_) | Place::File(..) | Place::Visitors => false,
        }
    }

    fn handover_state(&self, again: bool) -> SendFuture<'_, Option<String>> {
        Box::pin(async move {
            if !again {
                self.save_names().await;
            }
            None
        })
    }

    fn heirloom(&self) -> SendFuture<'_, Option<String>> {
        Box::pin(async {
            match &self.node {
                Some(node) => node.heirloom().await,
                None => None,
            }
        })
    }

    fn keep_heirloom(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            if let Some(node) = &self.node {
                node.keep_heirloom().await;
            }
        })
    }

    fn inherit(&self, heirloom: Option<String>) -> SendFuture<'_, ()> {
        Box::pin(async move {
            if let Some(node) = &self.node {
                node.inherit(heirloom.as_deref()).await;
            }
        })
    }

    fn takes_over(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            if let Some(parts) = &self.parts {
                parts.opened().await;
            }
        })
    }

    fn hand_over<'a>(&'a self, successor: SendFuture<'a, ()>) -> SendFuture<'a, ()> {
        Box::pin(async {
            doors::close(self.workers.handles()).await;
            self.registry.leave();
            let Some(parts) = &self.parts else { return self.move_clients(None).await };
            if let Some(node) = &self.node {
                node.end().await;
            }
            // Visitors reach clients of other nodes here until the next process has the ports.
            let far = async {
                successor.await;
                self.shared().strays.end();
                parts.close_entrances().await;
                parts.retire_outgoing().await;
            };
            tokio::join!(far, self.move_clients(Some(parts)));
        })
    }

    fn close(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            self.save_names().await;
            let leave = async {
                if let Some(node) = &self.node {
                    node.leave().await;
                }
            };
            // The engine is reached through the workers.
            tokio::join!(survey::say_goodbye(self.workers.handles()), leave);
            self.workers.stop().await;
        })
    }
}

impl Certificates for Server {
    fn files(&self) -> Vec<PathBuf> {
        self.certificate_files()
    }

    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>> {
        Box::pin(async {
            let config = self.config.load_full();
            // A fault in the files of one does not hold up the other.
            let of_node = self.renew_of_node(&config).await;
            self.renew_certificates().and(of_node)
        })
    }
}
