//! The targets of a client's services on one worker: addresses that are dialled, and the targets
//! inside of this process, which are exits and directories.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use config::{FlowLimits, ForwardRights, Over};
use proto::control::ServiceTerms;
use proto::{Budget, ResetCode};
use relay::{
    Allow, Caller, Destination, DialError, Exit, FlowBounds, FlowCaller, FlowEntry, FlowSettings,
    FlowTargets, Gate, Layer, Permit, ProxyKind, ProxyVersion, Report, Settings, StreamInlet,
    TargetAddr, Targets, Visitor, Watcher, accept_duplex, connect_flow, connect_stream,
    exit_stream, refuse_stream, socket_options,
};
use tokio::task::spawn_local;
use transport::{FlowInlet, FlowOutlet, Outlet};

use super::address::address;
use super::choice::{Choice, Several};
use super::pool::{Pool, Pools};
use super::roaming::{Roaming, RoamingHere};
use super::site::Site;
use super::state::TargetsState;
use capture::observed::{ObservedVisitor, Observer};
use capture::requests::Marks;
use node::aim::credentials;
use node::descriptors::Holders;
use node::entrance::TargetWatch;
use node::memory::Accounts;
use node::session::Worker;
use node::{auth_failures, descriptors, limits};

/// A service on one worker.
#[derive(Debug)]
pub struct Local {
    /// The service is only for visitors of a peer link.
    pub is_private: bool,
    /// Its targets, all of which may be drained.
    pool: Arc<Pool>,
    /// The target of streams; `None`: the service accepts no streams.
    streams: Option<Serves>,
    settings: Rc<Settings>,
    /// Limits its streams and flows; `None`: the entrance of a proxy limits them.
    gate: Option<Arc<Gate>>,
    /// The target of flows; `None`: the service accepts no flows.
    flows: Option<(TargetAddr, Rc<FlowSettings>, Rc<FlowTargets>)>,
    /// The targets of the flows, if there are several.
    flow_targets: Option<Rc<Several>>,
    /// The flows of visitors that roam between servers; `None`: none does.
    roaming: Option<RoamingHere>,
    /// The header that reports the visitor's address to the target.
    pub header: Option<Introduction>,
    /// The budget of the worker, for what the service serves itself.
    accounts: Accounts,
    /// The observer of its visitors.
    observer: Option<Observer>,
}

/// The flow limits of the services of this client, by name, over all workers. Without
/// `limits.source` only the server limits each source: it knows which address is a reverse proxy.
#[derive(Debug, Default)]
pub(super) struct Bounds(Mutex<HashMap<String, Arc<FlowBounds>>>);

impl Bounds {
    fn of(&self, service: &str, limits: FlowLimits) -> Arc<FlowBounds> {
        let most = limits.most.map_or(FlowBounds::FLOWS, NonZeroU32::get);
        let per_source = limits.per_source.map_or(u32::MAX, NonZeroU32::get);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = Arc::clone(all.entry(service.to_owned()).or_default());
        bounds.set(most, per_source);
        bounds
    }

    /// Forgets removed services.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|name, _| is_there(name));
    }
}

/// The gates of the services of this client, by name, over all workers.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<String, Arc<Gate>>>);

impl Gates {
    fn of(&self, service: &config::Service) -> Arc<Gate> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Gate::within(Arc::clone(limits::of_client()), None);
        let gate = Arc::clone(all.entry(service.name.clone()).or_insert_with(make));
        gate.set(&service.stream_limits);
        gate
    }

    fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|name, _| is_there(name));
    }
}

/// The records about the targets of all services, over all workers.
#[derive(Debug, Default)]
pub struct Records {
    /// Whether the targets serve.
    pub pools: Pools,
    /// The flow limits of the services.
    bounds: Bounds,
    /// The limits of the streams of services; `None` for the entries of a proxy, whose visitors
    /// were admitted already.
    gates: Option<Gates>,
    /// The flows of visitors that roam between servers; `None` for the entries of a proxy.
    roaming: Option<Roaming>,
    /// The shares that the services have of the descriptors.
    holders: Holders,
}

impl Records {
    /// The records of the entries of a proxy.
    pub fn of_proxy() -> Self {
        Self { pools: Pools::of_what("proxy"), ..Self::default() }
    }

    /// The records of the services of a client.
    pub fn of_client() -> Self {
        let (gates, roaming) = (Some(Gates::default()), Some(Roaming::default()));
        Self { gates, roaming, ..Self::default() }
    }

    /// Follows a configuration: the targets of its services are known, and the limits of the
    /// services are in force, also for open streams.
    pub fn follow<'a>(&self, services: impl Iterator<Item = &'a config::Service>) {
        for service in services {
            self.pools.of(service);
            self.gates.iter().for_each(|gates| drop(gates.of(service)));
        }
    }

    /// Forgets removed services.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.gates.iter().for_each(|gates| gates.retain(&is_there));
        self.roaming.iter().for_each(|roaming| roaming.retain(&is_there));
        self.pools.retain(&is_there);
        self.bounds.retain(is_there);
    }
}

/// Keeps only the flows of this worker to current targets of their services. A flow to any other
/// target ends, and its visitor gets a new flow with the next datagram.
pub fn lead_flows<'a>(
    worker: &Worker,
    services: impl Iterator<Item = &'a config::Service> + Clone,
) {
    worker.state.of::<TargetsState>().lead_flows(|name| {
        let service = services.clone().find(|service| service.name == name);
        service.map(udp_targets).unwrap_or_default()
    });
}

/// The kind of target that serves the streams of a service.
#[derive(Debug)]
enum Serves {
    /// An address, which is dialled.
    Address(Single),
    /// Several addresses, one of which is chosen for each visitor.
    Several(Rc<Several>),
    /// Visitors name their targets.
    Exit(Rc<Exit>),
    /// A directory.
    Files(Folder),
}

/// The only target of a service, and the layer above the connections to it.
#[derive(Clone, Debug)]
struct Single {
    address: TargetAddr,
    layer: Option<Rc<dyn Layer>>,
}

impl Targets for Single {
    fn first(&self) -> TargetAddr {
        self.address.clone()
    }

    fn next(&self, _failed: &[DialError]) -> Option<TargetAddr> {
        None
    }

    fn layer(&self, _target: &TargetAddr) -> Option<Rc<dyn Layer>> {
        self.layer.clone()
    }
}

/// How a target learns the visitor's address.
#[derive(Debug)]
pub struct Introduction {
    pub version: ProxyVersion,
    /// The public addresses that the client requests.
    pub asked: Vec<config::Public>,
    /// There is no proxy on a path to the server, so the address of a carrier is the server's.
    pub is_direct: bool,
}

impl Local {
    /// `is_direct`: as in [`Introduction::is_direct`].
    pub fn new(
        worker: &Worker,
        records: &Records,
        service: &config::Service,
        terms: ServiceTerms,
        is_direct: bool,
    ) -> Self {
        let (name, room) = (&service.name, descriptors::room());
        let socket = families::dial_options(&service.dial, socket_options(&terms));
        let ServiceTerms { timeouts, flows: times, .. } = terms;
        let pool = records.pools.of(service);
        let watch = Rc::new(pool.watch());
        let several = Several::of(service, &pool);
        let streams = Serves::of(service, &watch, several.as_ref());
        let watcher: Option<Rc<dyn Watcher>> = Some(watch);
        let flows = udp_targets(service).into_iter().next().map(|target| {
            let (stats, targets) = worker.state.of::<TargetsState>().flows_of(name);
            let dial = timeouts.dial;
            let watcher = watcher.clone();
            let settings = FlowSettings {
                times,
                bounds: records.bounds.of(name, service.limits),
                stats,
                dial,
                socket: socket.clone(),
                broadcast: service.broadcast,
                room,
                watcher,
                ..FlowSettings::default()
            };
            (target, Rc::new(settings), targets)
        });
        let gate = records.gates.as_ref().map(|gates| gates.of(service));
        let (stats, holder) =
            (worker.state.of::<TargetsState>().stats_of(name), Some(records.holders.of(name)));
        let budget: Option<Rc<dyn Budget>> = Some(Rc::new(worker.state.portion.clone()));
        let settings = Settings {
            timeouts,
            socket,
            stats,
            room,
            holder,
            watcher,
            budget,
            gate: gate.clone(),
            dials: worker.state.dials.of(name),
            ..Settings::default()
        };
        let roaming = records.roaming.as_ref();
        let roaming = roaming.map(|all| RoamingHere::new(worker, name, all.of(name)));
        let header = service.proxy_protocol.map(|version| Introduction {
            version: proxy_version(version),
            asked: service.public.clone(),
            is_direct,
        });
        let accounts = worker.state.accounts.clone();
        let is_private = service.private.is_some();
        let (settings, flow_targets) = (Rc::new(settings), several);
        let observer = None;
        Self {
            is_private,
            pool,
            streams,
            settings,
            gate,
            flows,
            flow_targets,
            roaming,
            header,
            accounts,
            observer,
        }
    }

    /// The same service with an observer of its visits.
    pub fn observed_by(self, observer: Option<Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Connects a stream of a visitor. `mark`: the mark of the visitor's previous target; the far
    /// side waits for the mark of the connected target.
    pub fn serve(
        &self,
        visitor: Visitor,
        header: Option<Bytes>,
        mark: Option<u64>,
        inlet: impl Into<StreamInlet>,
    ) -> Rc<dyn Outlet> {
        self.connect(ObservedVisitor { visitor, replay: None }, header, mark, inlet.into())
    }

    /// Connects the stream of a replayed request.
    pub fn replay(
        &self,
        marks: Rc<Marks>,
        header: Option<Bytes>,
        inlet: StreamInlet,
    ) -> Rc<dyn Outlet> {
        self.connect(
            ObservedVisitor { visitor: Visitor::Unknown, replay: Some(marks) },
            header,
            None,
            inlet,
        )
    }

    /// Whether the requests of the service are kept.
    pub fn keeps(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::keeps)
    }

    /// The permit of a new visitor, if the service has a gate. The error is the answer to a visitor
    /// that is not admitted. A service whose targets are all drained answers as a target that
    /// refuses, so a server gives the visitor to another client, if there is one.
    fn admit(&self, visitor: &Visitor) -> Result<Option<Permit>, ResetCode> {
        admit(&self.pool, self.gate.as_ref(), visitor)
    }

    fn connect(
        &self,
        whose: ObservedVisitor,
        header: Option<Bytes>,
        mark: Option<u64>,
        inlet: StreamInlet,
    ) -> Rc<dyn Outlet> {
        let (settings, visitor) = (&self.settings, whose.visitor.clone());
        let permit = match self.admit(&visitor) {
            Ok(permit) => permit,
            Err(code) => return refuse_stream(&*inlet, Some(settings), code),
        };
        let report = if mark.is_some() { Report::Mark } else { Report::Nothing };
        match &self.streams {
            Some(Serves::Address(target)) => {
                let caller = Caller { visitor, header, report, ..Caller::default() };
                let target = target.clone();
                match &self.observer {
                    None => connect_stream(target, caller, inlet, settings, permit),
                    Some(observer) => {
                        let target = observer.between(target, whose);
                        connect_stream(target, caller, inlet, settings, permit)
                    }
                }
            }
            Some(Serves::Several(targets)) => {
                let choice = targets.choose(&visitor, mark, Over::Tcp);
                let watcher: Option<Rc<dyn Watcher>> = Some(Rc::<Choice>::clone(&choice));
                let own = Rc::new(Settings { watcher, ..Settings::clone(settings) });
                let caller = Caller { visitor, header, report, ..Caller::default() };
                match &self.observer {
                    None => connect_stream(choice, caller, inlet, &own, permit),
                    Some(observer) => {
                        let target = observer.between(choice, whose);
                        connect_stream(target, caller, inlet, &own, permit)
                    }
                }
            }
            // The service had several targets until recently.
            Some(Serves::Exit(_) | Serves::Files(_)) if mark.is_some() => {
                refuse_stream(&*inlet, Some(settings), ResetCode::Unknown)
            }
            Some(Serves::Exit(exit)) => exit_stream(exit, visitor, inlet, settings, permit),
            Some(Serves::Files(folder)) => {
                let Some(files) = folder.files() else {
                    return refuse_stream(&*inlet, Some(settings), ResetCode::Unreachable);
                };
                let Some(account) = self.accounts.open(0, visitor.address()) else {
                    return refuse_stream(&*inlet, Some(settings), ResetCode::Limit);
                };
                let (outlet, mut stream) = accept_duplex(inlet, visitor, settings, permit);
                stream.observe(self.observer.as_ref().map(|observer| observer.spectator(whose)));
                spawn_local(async move { files.serve(stream, account).await });
                outlet
            }
            None => refuse_stream(&*inlet, Some(settings), ResetCode::Unknown),
        }
    }

    /// Connects a flow of a visitor. `None`: the service accepts no flows, and the inlet is closed.
    pub fn serve_flow(
        &self,
        visitor: Visitor,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        if self.flows.is_none() {
            inlet.close(ResetCode::Unknown);
            return None;
        }
        let permit = match self.admit(&visitor) {
            Ok(permit) => permit,
            Err(code) => {
                inlet.close(code);
                return None;
            }
        };
        let choice =
            self.flow_targets.as_ref().map(|targets| targets.choose(&visitor, None, Over::Udp));
        let caller = FlowCaller { visitor, permit, ..FlowCaller::default() };
        self.connect_flow(caller, choice, inlet)
    }

    /// Connects a flow of a visitor that comes by one of several servers, at which the service is
    /// published. `server`: the number of the server. The flow goes on with the socket of the
    /// former flow of the visitor, whichever server and worker that flow has. `None`: as
    /// [`Self::serve_flow`].
    pub fn serve_roaming_flow(
        &self,
        server: u64,
        visitor: Visitor,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        // Port 0 means that the port is unknown. An address that is only claimed is none.
        let at = visitor.address().filter(|at| at.port() != 0);
        let (Some(at), Some(roaming), Some((_, _, flows))) = (at, &self.roaming, &self.flows)
        else {
            return self.serve_flow(visitor, inlet);
        };
        let (entry, claim) = roaming.open(at, server);
        let choose = |mark| {
            let targets = self.flow_targets.as_ref()?;
            let choice = targets.choose(&visitor, mark, Over::Udp);
            entry.note_mark(choice.mark());
            Some(choice)
        };
        let mut caller = FlowCaller::default();
        let choice = if let Some(claim) = claim {
            let taken = roaming.take(claim, flows);
            let (pool, gate) = (Arc::clone(&self.pool), self.gate.clone());
            let visitor = visitor.clone();
            caller.former = Some(Box::pin(async move {
                let socket = taken.await;
                // The permit of the former flow comes with its socket: a visitor counts once.
                let permit = match &socket {
                    Some(socket) if socket.has_permit() => None,
                    Some(_) | None => admit(&pool, gate.as_ref(), &visitor)?,
                };
                Ok((socket, permit))
            }));
            choose(claim.mark)
        } else {
            caller.permit = match self.admit(&visitor) {
                Ok(permit) => permit,
                Err(code) => {
                    inlet.close(code);
                    return None;
                }
            };
            choose(None)
        };
        let entry: Option<Box<dyn FlowEntry>> = Some(Box::new(entry));
        self.connect_flow(FlowCaller { visitor, entry, ..caller }, choice, inlet)
    }

    fn connect_flow(
        &self,
        caller: FlowCaller,
        choice: Option<Rc<Choice>>,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        let (target, settings, flows) = self.flows.as_ref()?;
        let Some(choice) = choice else {
            return Some(connect_flow(target.clone(), caller, inlet, settings, flows));
        };
        let watcher: Option<Rc<dyn Watcher>> = Some(Rc::<Choice>::clone(&choice));
        let own = Rc::new(FlowSettings { watcher, ..FlowSettings::clone(settings) });
        let (first, stand_ins) = (choice.first(), Some(choice as Rc<dyn Targets>));
        Some(connect_flow(first, FlowCaller { stand_ins, ..caller }, inlet, &own, flows))
    }
}

/// As [`Local::admit`].
fn admit(
    pool: &Pool,
    gate: Option<&Arc<Gate>>,
    visitor: &Visitor,
) -> Result<Option<Permit>, ResetCode> {
    if pool.is_drained() {
        return Err(ResetCode::Refused);
    }
    let Some(gate) = gate else { return Ok(None) };
    gate.admit_from(limits::source_of(visitor)).map(Some).ok_or(ResetCode::Limit)
}

impl Serves {
    fn of(
        service: &config::Service,
        watch: &Rc<TargetWatch>,
        several: Option<&Rc<Several>>,
    ) -> Option<Self> {
        if let Some(several) = several {
            return service.carries(Over::Tcp).then(|| Self::Several(Rc::clone(several)));
        }
        let exit = |kind| {
            let rights = service.exit.allow.clone().unwrap_or_else(ForwardRights::ordinary);
            let label = format!("service {}", service.name);
            let users = credentials(&service.exit.basic_auth);
            let users = users.map(|users| users.braked(auth_failures::brake(), &label));
            Self::Exit(Exit::new(kind, users, move |target| allow(rights.clone(), target)))
        };
        match &service.target {
            config::Target::Socks5 => Some(exit(ProxyKind::Socks5)),
            config::Target::HttpProxy => Some(exit(ProxyKind::Http)),
            // The server answers the visitors; only forwards lead to services of other clients.
            config::Target::Redirect(_) | config::Target::Private(_) => None,
            config::Target::Files(dir) => {
                Some(Self::Files(Folder::new(dir, file_options(service), watch)))
            }
            config::Target::Tcp { .. }
            | config::Target::Udp { .. }
            | config::Target::Https { .. }
            | config::Target::H2c { .. }
            | config::Target::Tls { .. }
            | config::Target::Unix(_) => {
                let address = address(&service.target, Over::Tcp)?;
                service.carries(Over::Tcp).then(|| {
                    Self::Address(Single { address, layer: Site::of(service, &service.target) })
                })
            }
        }
    }
}

/// The rule of an exit for a dial of `target`.
fn allow(rights: ForwardRights, target: &TargetAddr) -> Allow {
    let host = match target {
        TargetAddr::Tcp { host, .. } | TargetAddr::Udp { host, .. } => host.clone(),
        TargetAddr::Unix(_) => String::new(),
    };
    Allow::new(move |destination| match destination {
        Destination::Name(name, port) => rights.may_permit(Over::Tcp, name, port),
        Destination::Tcp(ip, port) => {
            rights.permits(Over::Tcp, &host, (ip, port), &net::own::is_own)
        }
        // A visitor of an exit gets only TCP connections.
        Destination::Udp(..) | Destination::Unix(_) => false,
    })
}

/// The directory of a service. A directory that is absent is checked again for each visitor.
#[derive(Debug)]
struct Folder {
    dir: PathBuf,
    options: web::FileOptions,
    opened: OnceCell<Rc<web::Files>>,
    watch: Rc<TargetWatch>,
}

impl Folder {
    fn new(dir: &Path, options: web::FileOptions, watch: &Rc<TargetWatch>) -> Self {
        let (dir, opened) = (dir.to_owned(), OnceCell::new());
        let folder = Self { dir, options, opened, watch: Rc::clone(watch) };
        folder.files();
        folder
    }

    /// `None`: the directory cannot be opened. The log and the status report it.
    fn files(&self) -> Option<Rc<web::Files>> {
        if let Some(files) = self.opened.get() {
            return Some(Rc::clone(files));
        }
        let opened = web::Files::new(&self.dir, self.options.clone());
        let opened = opened.map(|files| Rc::new(files.withholding(files::kept::is_kept)));
        self.watch.note_opened(&opened);
        let files = opened.ok()?;
        Some(Rc::clone(self.opened.get_or_init(|| files)))
    }
}

/// How the files of a service are served.
fn file_options(service: &config::Service) -> web::FileOptions {
    let config::Files { list, try_files, only } = &service.files;
    web::FileOptions {
        service: service.name.as_str().into(),
        list: *list,
        try_files: try_files.iter().map(|tried| tried.as_str().into()).collect(),
        only: only.as_deref().map(Into::into),
    }
}

pub(super) const fn proxy_version(version: config::ProxyProtocol) -> ProxyVersion {
    match version {
        config::ProxyProtocol::V1 => ProxyVersion::V1,
        config::ProxyProtocol::V2 => ProxyVersion::V2,
    }
}

/// The target addresses of flows of a service. Empty: the service accepts no flows.
fn udp_targets(service: &config::Service) -> Vec<TargetAddr> {
    if !service.carries(Over::Udp) {
        return Vec::new();
    }
    service.targets().filter_map(|(target, _)| address(target, Over::Udp)).collect()
}
