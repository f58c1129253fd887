//! The client role: links to the server on all workers, services dialled for incoming streams,
//! forwards as entrances.
//!
//! ```text
//!   shared.rs      the data that all parts below share
//!   uplink.rs      what belongs to a server: links, services, public addresses
//!   charge.rs      which of several servers has the services; standing.rs moves them there
//!   detour.rs      paths to a server through another server; detours.rs those in use
//!   links.rs       links that were made together; keeping.rs keeps each of them
//!   owner.rs       reactions to a link: streams, messages of the server, state changes
//!   register.rs    the registration of services; published.rs what the server answered
//!   services.rs    the services on a worker; destination.rs the address that a visitor dialled
//!   forwards.rs    forwards as entrances
//!   found/         servers that an API or DNS names
//!   home.rs        what links with other clients need of this client
//!   homes.rs       further nodes of a cluster with which this client has links
//!   invites.rs     invitations of visitors; inviting.rs requests them
//!   connect.rs     a byte stream for `tunnel connect`
//!   replay.rs      kept requests that are sent again
//!   reload.rs      the reload of the configuration, from its source.rs; servers.rs for links
//!   moving.rs      `tunnel move`: the links take another path
//!   measured/      paths that are chosen by measurement, and the memory of networks;
//!                  path_order.rs is the order in which links try them
//!   network.rs     changes of the network of this machine
//!   handover.rs    the state for the next process of an upgrade
//!   nat.rs, stun.rs  the NAT between this client and others
//!   outage.rs, trouble.rs  why a server is unreachable, as text
//! ```

mod charge;
mod connect;
mod destination;
mod detour;
mod detours;
mod forwards;
mod found;
mod handover;
mod home;
mod homes;
mod invites;
mod inviting;
mod keeping;
mod links;
mod measured;
mod moving;
mod nat;
mod network;
mod outage;
mod owner;
mod path_order;
mod published;
mod register;
mod reload;
mod replay;
mod servers;
mod services;
mod shared;
mod source;
mod standing;
mod stun;
#[cfg(test)]
mod tests;
mod trouble;
mod uplink;

use std::fmt;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use arc_swap::ArcSwap;
use config::{ClientConfig, Common, Kept};
use link::ProcessBudget;
use ops::events::Events;
use ops::measure::{Meter, Ping, Progress, Speed, SpeedTest};
use ops::moving::MovedLinks;
use ops::nat::NatProbe;
use ops::requests::{RequestDetail, RequestFilter, SeenRequests};
use ops::share::Visits;
use ops::status::{self, DaemonState, Status, Told};
use ops::targets::Targets;
use ops::tested::{Tested, Tester};
use ops::{
    Certificates, Connector, Daemon, Foreseen, Inviter, ListsInForce, Mover, Reloaded, Requests,
    Role, SendFuture, Serving, Traffic, term,
};
use proto::LinkConfig;
use tokio::sync::{Mutex, Notify, mpsc};

use capture::observed::Observed;
use capture::requests::Store;
use families::budget::budget;
use forwards::Forwards;
pub use handover::{HandoverState, UnknownHandover};
use homes::HomesKnown;
use links::{Links, Plan};
use measured::Measured;
use node::session::{Handle, PathBytes, State, Workers};
use node::tcp_info::Ledger;
use node::{descriptors, limits, memory, taken_over, workers};
use peer::accept::PeerHost;
use peer::direct::DirectPaths;
use peer::links::PeerLinks;
use peer::material;
use peer::material::Materials;
use shared::ClientShared;
pub use source::ConfigSource;
use survey::Survey;
use targets::{Records, check_targets, trial};
use uplink::{Uplink, Uplinks};

/// The interval of a look at the servers while this process takes over from a former process.
const TAKEN_OVER: Duration = Duration::from_millis(20);

/// The longest wait for the answer of a server to a registration.
const ANSWER: Duration = Duration::from_secs(5);

/// A running client.
pub struct Client {
    workers: Workers,
    /// The number of workers.
    count: NonZeroUsize,
    shared: Arc<ClientShared>,
    started: Instant,
    source: Option<ConfigSource>,
    ledger: Ledger,
    survey: Survey,
    /// Held while a configuration is applied: a reload, a command and an answer about servers come
    /// independently.
    applying: Mutex<()>,
    /// How often the state was handed over to a process that replaces a failed successor.
    again: AtomicU64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.shared.config.load().name)
    }
}

/// Starts workers, links and the listeners of forwards. `state` is the handover state of the former
/// process, which this process replaces.
pub async fn start(
    config: ClientConfig,
    source: ConfigSource,
    state: Option<HandoverState>,
) -> anyhow::Result<Arc<Client>> {
    let link = memory::link_config(&config.common);
    let client = Client::start_with(config, link, state).await?;
    let client = Arc::new(Client { source: Some(source), ..client });
    let (follower, shared) = (Arc::downgrade(&client), Arc::clone(&client.shared));
    let apply = async move |servers| {
        if let Some(client) = follower.upgrade() {
            client.use_found(servers).await;
        }
    };
    // Dialers stay on the thread of their worker.
    let begin = move |_: &_| drop(tokio::task::spawn_local(found::follow(shared, apply)));
    client.workers.handles()[0].run(begin).await?;
    let (follower, shared) = (Arc::downgrade(&client), Arc::clone(&client.shared));
    let apply = async move |servers| {
        if let Some(client) = follower.upgrade() {
            client.use_homes(servers).await;
        }
    };
    let known = Arc::clone(&shared.homes);
    let config = move || shared.config.load_full();
    let begin = move |_: &_| drop(tokio::task::spawn_local(homes::follow(known, config, apply)));
    client.workers.handles()[0].run(begin).await?;
    Ok(client)
}

impl Client {
    /// Starts a client that reads its configuration once.
    pub async fn start(config: ClientConfig) -> anyhow::Result<Self> {
        let link = memory::link_config(&config.common);
        Self::start_with(config, link, None).await
    }

    /// Starts a client whose links have the settings `link` instead of the configured settings.
    pub async fn start_with(
        config: ClientConfig,
        link: LinkConfig,
        state: Option<HandoverState>,
    ) -> anyhow::Result<Self> {
        let count = config.common.workers.unwrap_or_else(workers::automatic);
        let (config, first_question) = found::with_first_servers(config).await?;
        let materials = material::read(&config)?;
        let state = state.map_or_else(HandoverState::first, Ok)?;
        let continues = state.in_charge.is_some();
        let events = Events::default();
        let measured = Arc::<Measured>::default();
        measured.open(&config).await;
        let uplinks: anyhow::Result<Vec<_>> = config
            .servers
            .iter()
            .map(|server| {
                let links = Links::of(Plan::new(&config, server, link, count.get())?, count.get());
                let uplink = Uplink::new(server, &links, &events, state.generation);
                uplink.note_services(&config);
                Ok(uplink)
            })
            .collect();
        let mut uplinks = uplinks?.into_iter();
        let uplinks = Uplinks::of(uplinks.next().context("no server")?, uplinks.collect());
        uplinks.begin(config.policy, state.in_charge.as_deref());
        let records = Records::of_client();
        records.follow(config.services.iter());

        // All forwards are bound before anything is registered, so that the user learns first of a
        // port in use.
        let bytes = Arc::<PathBytes>::default();
        let visits = PeerLinks::new(count.get(), &bytes);
        let forwards = Forwards::new(&visits);
        let bound = forwards.bind(&config.forwards, count, &uplinks).await?;
        let budget = ProcessBudget::new(budget(&config.common));
        let store = Store::new(Arc::clone(&budget));
        let workers = Workers::start(count, move |_| State::new(memory::lease(&budget, count)))
            .context("starting workers")?;
        if let Some((forward, why)) =
            forwards.follow(bound, workers.handles(), count, &uplinks).await.pop()
        {
            return Err(why).with_context(|| format!("forward {}", forward.listen));
        }
        limits::set_client(&config.limits);
        let shared = Arc::new(ClientShared {
            config: ArcSwap::from_pointee(config),
            host: PeerHost::default(),
            materials: Materials::new(materials),
            direct: DirectPaths::counting(&bytes),
            visits,
            measured,
            uplinks,
            outage: Notify::new(),
            source_changed: Notify::new(),
            homes: Arc::<HomesKnown>::default(),
            first_question,
            forwards,
            records,
            leaving: AtomicBool::new(false),
            continues,
            instance: state.instance,
            serials: Arc::new(AtomicU64::new(1)),
            network_changes: AtomicU64::new(0),
            events,
            observed: Observed::new(store),
            invites: invites::Invites::default(),
        });
        for uplink in shared.uplinks.all().iter() {
            let (links, wanted) = (uplink.links(), uplink.wanted_links());
            keeping::start(&links, workers.handles(), &shared, (uplink, wanted)).await?;
        }
        shared.visits.start(workers.handles(), &shared.home());
        for handle in workers.handles().iter() {
            let shared = Arc::clone(&shared);
            handle.call(move |worker| connect::serve_names(worker, &shared)).await?;
        }
        shared.visits.follow(&shared.config.load_full()).await;
        let handles = Arc::clone(workers.handles());
        let owned = Arc::clone(&shared);
        workers.handles()[0]
            .run(move |_| drop(tokio::task::spawn_local(register::insist(handles, owned))))
            .await?;
        let owned = Arc::clone(&shared);
        workers.handles()[0]
            .run(move |_| drop(tokio::task::spawn_local(check_targets(owned))))
            .await?;
        follow(workers.handles(), &shared).await?;
        taken_over::adopt_visitors(workers.handles()).await?;
        let (started, source, ledger) = (Instant::now(), None, Ledger::default());
        let (again, survey, applying) = (AtomicU64::new(0), Survey::new(&workers), Mutex::new(()));
        Ok(Self { workers, count, shared, started, source, ledger, survey, applying, again })
    }
}

/// Starts the tasks that follow the servers, their paths and the network of this machine. Their
/// dialers stay on the thread of their worker.
async fn follow(handles: &Arc<[Handle]>, shared: &Arc<ClientShared>) -> anyhow::Result<()> {
    let (at, of) = (Arc::clone(handles), Arc::clone(shared));
    let begin = move |_: &_| {
        let both = || (Arc::clone(&at), Arc::clone(&of));
        let ((at_one, of_one), (at_two, of_two)) = (both(), both());
        drop(tokio::task::spawn_local(standing::measure(at_one, of_one)));
        drop(tokio::task::spawn_local(standing::stand(at_two, of_two)));
        let ((at_one, of_one), (at_two, of_two)) = (both(), both());
        drop(tokio::task::spawn_local(measured::follow(at_one, of_one)));
        drop(tokio::task::spawn_local(network::follow(at_two, of_two)));
    };
    Ok(handles[0].run(begin).await?)
}

impl Client {
    /// The names of the servers, for a line of the log.
    fn server_names(&self) -> String {
        let all = self.shared.uplinks.all();
        let names: Vec<_> = all.iter().map(|uplink| uplink.session().name.clone()).collect();
        let word = if names.len() == 1 { "server" } else { "servers" };
        format!("{word} {}", names.join(", "))
    }

    /// The status of the current session of an uplink.
    fn session_status(
        &self,
        config: &ClientConfig,
        (uplink, is_first): (&Uplink, bool),
        mut session: status::Session,
        counts: &mut Vec<status::Service>,
    ) -> status::Session {
        if let Some(trouble) = uplink.published.trouble() {
            session.state = Told::because(trouble.state, trouble.text);
        }
        let shadows = config.shadows();
        let shadows_of = |name: &str| {
            let own = shadows.iter().filter(|shadow| shadow.by == name);
            own.map(|shadow| shadow.of.clone()).collect()
        };
        let live = uplink.session().live() > 0;
        session.services = uplink.published.services(&uplink.services(config), live);
        session.standby = !uplink.is_in_charge();
        session.why = self.shared.uplinks.why(uplink);
        session.server = Some(uplink.figures());
        session.paths = self.shared.measured.shown(&uplink.label(), &uplink.links());
        for forward in &mut session.forwards {
            forward.state = uplink.published.reached(live).into();
            // The address of a listener on port 0 has the port that the system chose.
            let is_it = |known: &&config::Forward| known.listen.to_string() == forward.address;
            forward.kept = config.forwards.iter().find(is_it).is_some_and(|known| known.kept);
            forward.shadows = shadows_of(&forward.address);
        }
        let absent = |(forward, why): (config::Forward, String)| status::Service {
            address: forward.listen.to_string(),
            target: forward.target.as_ref().map(ToString::to_string).unwrap_or_default(),
            state: Told::because(status::ServiceState::Refused, why),
            kept: forward.kept,
            ..status::Service::default()
        };
        if is_first {
            session.forwards.extend(self.shared.forwards.waiting().into_iter().map(absent));
        }
        let mut counted = None;
        for service in &mut session.services {
            // The counters are those of the service; its other entries are refused addresses.
            if counted.replace(service.name.clone()).as_ref() == Some(&service.name) {
                continue;
            }
            service.shadows = shadows_of(&service.name);
            let known = config.services.iter().find(|known| known.name == service.name);
            if let Some(known) = known {
                self.shared.records.pools.report(known, service);
            }
            // The counters are those of the process: a service at several servers has them once.
            if let Some(place) = counts.iter().position(|count| count.name == service.name) {
                service.add(&counts.swap_remove(place));
            }
        }
        session.settle();
        session
    }
}

impl Daemon for Client {
    fn role(&self) -> Role {
        Role::Client
    }

    fn alive(&self, limit: Duration) -> SendFuture<'_, bool> {
        Box::pin(self.workers.answer(limit))
    }

    fn events(&self) -> Option<&Events> {
        Some(&self.shared.events)
    }

    fn traffic(&self) -> Option<&dyn Traffic> {
        Some(&self.survey)
    }

    fn meter(&self) -> Option<&dyn Meter> {
        Some(self)
    }

    fn speed_test(&self) -> Option<&dyn SpeedTest> {
        Some(self)
    }

    fn nat_probe(&self) -> Option<&dyn NatProbe> {
        Some(self)
    }

    fn mover(&self) -> Option<&dyn Mover> {
        Some(self)
    }

    fn connector(&self) -> Option<&dyn Connector> {
        Some(self)
    }

    fn requests(&self) -> Option<&dyn Requests> {
        Some(self)
    }

    fn tester(&self) -> Option<&dyn Tester> {
        Some(self)
    }

    fn targets(&self) -> Option<&dyn Targets> {
        Some(&self.shared.records.pools)
    }

    fn status(&self) -> SendFuture<'_, Status> {
        Box::pin(async {
            let shared = &self.shared;
            let ledger = &self.ledger;
            let mut sessions = survey::sessions(self.workers.handles(), ledger).await;
            let mut counts = owner::counts(self.workers.handles()).await;
            let config = shared.config.load_full();
            let mut current = Vec::new();
            for uplink in shared.uplinks.all().iter() {
                let of = uplink.session();
                let known = sessions.remove(&of.id);
                let session =
                    known.unwrap_or_else(|| survey::without_links(&of, &sessions, ledger));
                let is_first = current.is_empty();
                current.push(self.session_status(
                    &config,
                    (uplink, is_first),
                    session,
                    &mut counts,
                ));
            }
            Status {
                role: self.role(),
                name: config.name.clone(),
                servers: config.paths().map(|path| path.endpoint.to_string()).collect(),
                pins: config.pins(),
                network: shared.measured.network(),
                uptime_seconds: self.started.elapsed().as_secs(),
                state: DaemonState::Running.into(),
                tasks: survey::tasks(self.workers.handles()).await,
                memory: survey::memory(self.workers.handles()).await,
                descriptors: descriptors::survey(),
                udp: survey::udp(),
                network_changes: shared.network_changes.load(Ordering::Relaxed),
                peers: shared.direct.counted(shared.host.programs.count()),
                // The retiring sessions come after the current sessions.
                sessions: current.into_iter().chain(sessions.into_values()).collect(),
                ..Status::default()
            }
        })
    }
}

impl Meter for Client {
    fn ping(&self, patience: Duration) -> SendFuture<'_, Ping> {
        Box::pin(async move {
            let uplink = self.shared.uplinks.preferred();
            let ping =
                probes::ping_links(self.workers.handles(), &uplink.session(), patience).await;
            let trouble = uplink.published.trouble().map(|trouble| trouble.text);
            Ping { trouble, ..ping }
        })
    }
}

impl SpeedTest for Client {
    fn run(
        &self,
        span: Duration,
        news: mpsc::Sender<Progress>,
    ) -> SendFuture<'_, Result<Speed, String>> {
        Box::pin(async move {
            let session = self.shared.uplinks.preferred().session();
            probes::speedtest(self.workers.handles(), &session, span, news).await
        })
    }
}

impl Tester for Client {
    fn test(
        &self,
        service: String,
        client: Option<String>,
    ) -> SendFuture<'_, anyhow::Result<Tested>> {
        Box::pin(async move {
            anyhow::ensure!(client.is_none(), "this is a client, which has one set of services");
            let config = self.shared.config.load_full();
            let found = config.services.iter().find(|one| one.name == service).cloned();
            trial::here(self.workers.handles(), found, service).await
        })
    }
}

impl Mover for Client {
    fn move_links(&self, to: Option<String>) -> SendFuture<'_, anyhow::Result<MovedLinks>> {
        Box::pin(async move {
            let (uplinks, handles) = (&self.shared.uplinks, self.workers.handles());
            let outcome = moving::move_links(uplinks, handles, to).await?;
            for link in &outcome.moved {
                self.shared.measured.command(&link.to);
            }
            Ok(outcome)
        })
    }
}

impl Connector for Client {
    fn connect(
        &self,
        target: config::Target,
        socket: UnixStream,
    ) -> SendFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            let (shared, handles) = (&self.shared, self.workers.handles());
            if let config::Target::Private(service) = target {
                let peer = shared.visits.peer(&service);
                return connect::visit(&shared.uplinks, handles, &peer, socket).await;
            }
            connect::connect(&shared.uplinks.preferred(), handles, target, socket).await
        })
    }
}

impl Requests for Client {
    fn list(&self, filter: &RequestFilter) -> SeenRequests {
        self.shared.observed.store.list(filter)
    }

    fn since(&self, revision: u64) -> (SeenRequests, u64) {
        self.shared.observed.store.since(revision)
    }

    fn one(&self, id: u64, secrets: bool) -> Option<RequestDetail> {
        self.shared.observed.store.one(id, secrets)
    }

    fn replay(&self, id: u64) -> SendFuture<'_, anyhow::Result<Option<RequestDetail>>> {
        let (shared, handles) = (&self.shared, self.workers.handles());
        Box::pin(replay::replay(&shared.observed.store, shared, handles, id))
    }
}

impl Serving for Client {
    fn summary(&self) -> String {
        let config = self.shared.config.load();
        let count = |n: usize, word| term::count(u64::try_from(n).unwrap_or(u64::MAX), word);
        format!(
            "client {} has {} and {} at {}",
            config.name,
            count(config.services.len(), "service"),
            count(config.forwards.len(), "forward"),
            self.server_names()
        )
    }

    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.reload_source())
    }

    fn check(&self, text: String) -> anyhow::Result<Foreseen> {
        self.try_source(text)
    }

    fn lists_in_force(&self) -> Option<&dyn ListsInForce> {
        Some(self)
    }

    fn inviter(&self) -> Option<&dyn Inviter> {
        Some(self)
    }

    fn common(&self) -> Common {
        self.shared.config.load().common.clone()
    }

    fn user_files(&self) -> Vec<PathBuf> {
        self.files_of_users()
    }

    fn renew_users(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.read_users())
    }

    fn certificates(&self) -> &dyn Certificates {
        self
    }

    fn drain(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            self.shared.leaving.store(true, Ordering::SeqCst);
            self.shared.uplinks.all().iter().for_each(|uplink| uplink.leave());
            self.shared.forwards.close_all(self.workers.handles()).await;
            for uplink in self.shared.uplinks.all().iter() {
                register::withdraw(self.workers.handles(), &self.shared, uplink).await;
            }
            let config = self.shared.config.load_full();
            self.shared.measured.save(&config).await;
            // A link between two clients is a stream here while it exists, as is a carrier that
            // leads through another server.
            self.shared.visits.leave(self.workers.handles()).await;
            detour::leave(self.workers.handles()).await;
            tokio::select! {
                () = survey::drain_links(self.workers.handles()) => {}
                () = self.shared.host.leave(self.workers.handles()) => {}
            }
        })
    }

    fn handover_state(&self, again: bool) -> SendFuture<'_, Option<String>> {
        Box::pin(async move {
            // The server treats the links of both processes as links of one process, and applies
            // the set of services of the higher generation.
            let all = self.shared.uplinks.all();
            let generations = all.iter().map(|uplink| uplink.generation());
            let mut generation = generations.max().unwrap_or_default() + handover::ROOM;
            if again {
                // The processes that have terminated used other generations.
                generation += handover::REST * (1 + self.again.fetch_add(1, Ordering::Relaxed));
            }
            let policy = self.shared.config.load().policy;
            let mut charged = all.iter().filter(|uplink| uplink.is_in_charge());
            let in_charge = charged.next().filter(|_| policy.is_single());
            let in_charge = in_charge.filter(|_| all.len() > 1);
            let in_charge = in_charge.map(|uplink| uplink.label().as_str().to_owned());
            let instance = self.shared.instance;
            let state = HandoverState { instance, generation, in_charge };
            Some(state.to_string())
        })
    }

    fn takes_over(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            // A server that is away must not hold up the former process, which serves the others.
            loop {
                let all = self.shared.uplinks.all();
                let has_answered = |uplink: &&Arc<Uplink>| {
                    uplink.is_in_charge() && uplink.published.has_answered(uplink.generation())
                };
                if all.iter().any(|uplink| has_answered(&uplink)) {
                    break;
                }
                tokio::time::sleep(TAKEN_OVER).await;
            }
            for uplink in self.shared.uplinks.all().iter() {
                if uplink.is_in_charge() && uplink.session().live() > 0 {
                    let answered = uplink.published.answered(uplink.generation());
                    let _ = tokio::time::timeout(ANSWER, answered).await;
                }
            }
        })
    }

    fn hand_over<'a>(&'a self, successor: SendFuture<'a, ()>) -> SendFuture<'a, ()> {
        Box::pin(async {
            self.shared.leaving.store(true, Ordering::SeqCst);
            self.shared.forwards.close_all(self.workers.handles()).await;
            // Visitors arrive over the links of this process until the next process has links.
            successor.await;
            for uplink in self.shared.uplinks.all().iter() {
                uplink.retire(self.workers.handles()).await;
            }
            // A link between two clients is a stream here while it exists, used or not.
            self.shared.visits.leave(self.workers.handles()).await;
            tokio::select! {
                () = survey::drain_links(self.workers.handles()) => {}
                () = self.shared.host.leave(self.workers.handles()) => {}
            }
        })
    }

    fn close(&self) -> SendFuture<'_, ()> {
        Box::pin(async {
            detour::say_goodbye(self.workers.handles()).await;
            survey::say_goodbye(self.workers.handles()).await;
            self.workers.stop().await;
            self.shared.direct.ports.given_back().await;
        })
    }
}

impl ListsInForce for Client {
    fn config(&self) -> Arc<ClientConfig> {
        self.shared.config.load_full()
    }

    fn apply(&self, change: Kept) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.change_lists(change))
    }

    fn observe(&self, service: &str, visits: Visits) {
        self.shared.observed.begin(service, visits);
    }
}

impl Certificates for Client {
    fn files(&self) -> Vec<PathBuf> {
        self.certificate_files()
    }

    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>> {
        Box::pin(self.renew_certificates())
    }
}
