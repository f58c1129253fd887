//! Makes entrances of registered services: rights, binding, takeover, withdrawal.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use config::Over;
use logging::{AUDIT, RepeatLimit};
use ops::status;
use proto::Target;
use proto::control::{
    Register, Registered, ServiceError, ServiceErrorCode, ServiceResult, ServiceSpec,
};
use relay::{Gate, Timeouts};
use rustix::io::Errno;

use crate::entrance::{self, Entrance};
use crate::listeners::Listeners;
use crate::route::{Aim, Route};
use crate::session::{Handle, Session};
use crate::transports::bind_advice;

use super::super::clients::Client;

/// A resource that one client at a time may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A port of this protocol. A TCP port and the UDP port of the same number are two resources.
    Port(Over, SocketAddr),
}

impl Key {
    /// The address at which visitors connect.
    const fn address(self) -> SocketAddr {
        let Self::Port(_, address) = self;
        address
    }
}

/// A public address as a client asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Public {
    /// A TCP port; 0 lets the server choose.
    Tcp(SocketAddr),
}

impl Public {
    /// The resource that this address takes.
    const fn key(self) -> Key {
        let Self::Tcp(address) = self;
        Key::Port(Over::Tcp, address)
    }
}

/// All entrances of a server.
#[derive(Debug, Default)]
pub(super) struct Published {
    entrances: HashMap<Key, Entry>,
    /// The last registration of each session, by its id.
    registered: HashMap<u64, (Register, Registered)>,
    /// Limits the log lines about refusals, by client and service, because a client can register
    /// again and again.
    told: RepeatLimit<(String, String)>,
}

#[derive(Debug)]
struct Entry {
    entrance: Arc<Entrance>,
    /// The client's name.
    owner: String,
    /// The gate of the client. The gate of the entrance lies within it.
    gate: Arc<Gate>,
    /// The server chose the port, because the client asked for port 0.
    chosen: bool,
    /// The owner's latest registration includes this entrance.
    wanted: bool,
}

/// The client whose registration is applied, and the workers that listen for it.
#[derive(Clone, Copy)]
pub(super) struct Registrant<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) client: &'a Client,
    pub(super) public_bind: IpAddr,
    pub(super) handles: &'a [Handle],
}

/// The numbers of further ports and hosts that a client may have.
#[derive(Clone, Copy, Debug)]
struct Room {
    ports: u32,
    hosts: u32,
}

type Outcome<T> = Result<T, ServiceError>;

fn error(code: ServiceErrorCode, text: String) -> ServiceError {
    ServiceError { code, text }
}

impl Published {
    /// Applies a registration: new entrances open, known entrances stay open and lead to this
    /// session, other entrances of the client close. A registration of the last generation gets the
    /// known answer again; an older one gets `None`.
    pub(super) async fn apply(
        &mut self,
        to: Registrant<'_>,
        register: Register,
    ) -> Option<Registered> {
        if let Some((_, known)) = self.registered.get(&to.session.id) {
            if known.generation == register.generation {
                return Some(known.clone());
            }
            if known.generation > register.generation {
                return None;
            }
        }
        Some(self.set(to, register).await)
    }

    /// Applies the last registration of a client again, after its rights have changed. `None` when
    /// the session has not registered.
    pub(super) async fn review(&mut self, to: Registrant<'_>) -> Option<Registered> {
        let (register, _) = self.registered.get(&to.session.id)?.clone();
        Some(self.set(to, register).await)
    }

    async fn set(&mut self, to: Registrant<'_>, register: Register) -> Registered {
        let owner = &to.session.name;
        // Ports that are no longer wanted close first, because another address may want the same
        // port.
        let texts = register.services.iter().flat_map(|spec| &spec.public);
        let asked: HashSet<_> =
            texts.filter_map(|text| parse(text, to.public_bind).ok()).map(Public::key).collect();
        for (key, entry) in self.entrances.iter_mut().filter(|(_, e)| e.owner == *owner) {
            entry.wanted = entry.chosen || asked.contains(key);
        }
        self.close_unwanted(owner, to.handles).await;
        self.entrances.values_mut().filter(|e| e.owner == *owner).for_each(|e| e.wanted = false);
        let mut results = Vec::with_capacity(register.services.len());
        let most = |limit: Option<NonZeroU32>| limit.map_or(u32::MAX, NonZeroU32::get);
        let mut room = Room { ports: most(to.client.ports), hosts: most(to.client.hosts) };
        for spec in &register.services {
            let outcome = self.publish(to, spec, &mut room).await;
            // A client asks again for services that it could not have.
            let before = self.registered.get(&to.session.id);
            let is_news = before.is_none_or(|(_, before)| {
                !before.results.iter().any(|r| r.name == spec.name && r.outcome == outcome)
            });
            match &outcome {
                _ if !is_news => {}
                Ok(at) => {
                    tracing::info!(target: AUDIT, client = owner, service = %spec.name.as_str(), "published at {}", at.join(", "))
                }
                Err(e) => {
                    let (owner, service) = (owner.clone(), spec.name.as_str().to_owned());
                    if self.told.pass((owner.clone(), service.clone()), Instant::now()).is_some() {
                        tracing::warn!(target: AUDIT, client = owner, service, "not published: {e}");
                    }
                }
            }
            results.push(ServiceResult { name: spec.name.clone(), outcome });
        }
        self.close_unwanted(owner, to.handles).await;
        let registered = Registered { generation: register.generation, results };
        self.registered.insert(to.session.id, (register, registered.clone()));
        registered
    }

    /// Publishes one service. Returns its public addresses. `room` has the numbers of ports and
    /// hosts that the client may still have.
    async fn publish(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        room: &mut Room,
    ) -> Outcome<Vec<String>> {
        let mut reached = Vec::new();
        for text in &spec.public {
            if let Some(place) = host(text) {
                return Err(room.host(to, text, place));
            }
            let Some(left) = room.ports.checked_sub(1) else {
                let name = &to.session.name;
                let text =
                    format!("{text}: client `{name}` has as many ports as `limits.ports` allows");
                return Err(error(ServiceErrorCode::Limit, text));
            };
            let address = self.open(to, spec, text).await?;
            room.ports = left;
            // Without a host, because the client knows the host by which it reaches the server.
            reached.push(if address.ip().is_unspecified() {
                format!("tcp://:{}", address.port())
            } else {
                format!("tcp://{address}")
            });
        }
        Ok(reached)
    }

    async fn open(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        text: &str,
    ) -> Outcome<SocketAddr> {
        let public = parse(text, to.public_bind)?;
        let address = public.key().address();
        let (bind, port) = (address.ip(), address.port());
        let name = spec.name.as_str();
        if port == 0 {
            return self.open_any(to, spec, bind).await;
        }
        if !to.client.tcp.permits(bind, port) {
            // A right without an address applies to `public_bind` only.
            let right = if bind == to.public_bind {
                port.to_string()
            } else {
                SocketAddr::new(bind, port).to_string()
            };
            let name = &to.session.name;
            let text = format!(
                "{text} is not allowed to client `{name}`: add `{right}` to `allow.tcp` of this client on \
                 the server"
            );
            return Err(error(ServiceErrorCode::NotAllowed, text));
        }
        if let Some(entry) = self.entrances.get_mut(&public.key()) {
            if entry.owner != to.session.name {
                let other = "another client publishes there; choose another port";
                return Err(error(
                    ServiceErrorCode::PortTaken,
                    format!("{text} is taken: {other}"),
                ));
            }
            if entry.wanted {
                return Err(error(
                    ServiceErrorCode::NameTaken,
                    format!("{text} is published by another service of this client"),
                ));
            }
            entry.wanted = true;
            entry.lead_to(to, spec);
            return Ok(address);
        }
        self.bind(to, spec, address, false).await.map_err(|e| refusal(text, name, &e))
    }

    /// Opens an entrance on a port that the server chooses: the port that this service had before,
    /// or else the first free port that the client may have.
    async fn open_any(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        bind: IpAddr,
    ) -> Outcome<SocketAddr> {
        let known = self.entrances.iter_mut().find(|(Key::Port(over, address), entry)| {
            *over == Over::Tcp
                && entry.chosen
                && !entry.wanted
                && entry.owner == to.session.name
                && to.client.tcp.permits(bind, address.port())
                && address.ip() == bind
                && entry.entrance.name() == spec.name.as_str()
        });
        if let Some((key, entry)) = known {
            entry.wanted = true;
            entry.lead_to(to, spec);
            return Ok(key.address());
        }
        let ranges: Vec<_> = to.client.tcp.ranges(bind).collect();
        for (first, last) in ranges {
            for port in first..=last {
                let address = SocketAddr::new(bind, port);
                if self.entrances.contains_key(&Key::Port(Over::Tcp, address)) {
                    continue;
                }
                match self.bind(to, spec, address, true).await {
                    Ok(address) => return Ok(address),
                    Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                    Err(e) => return Err(refusal("tcp://:0", spec.name.as_str(), &e)),
                }
            }
        }
        Err(error(
            ServiceErrorCode::NotAllowed,
            format!(
                "client `{}` has no free port in `allow.tcp` of the server to choose from",
                to.session.name
            ),
        ))
    }

    async fn bind(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        address: SocketAddr,
        chosen: bool,
    ) -> io::Result<SocketAddr> {
        let sockets = Listeners::Tcp(net::listen_group(address, to.handles.len())?);
        let entrance = Arc::new(Entrance {
            id: entrance::next_id(),
            address: format!("tcp://{address}"),
            timeouts: Timeouts::default(),
            route: Route::new(
                aim(spec),
                to.session,
                Gate::within(Arc::clone(&to.client.gate), None),
            ),
        });
        if let Err(e) = entrance::open_everywhere(to.handles, &entrance, sockets).await {
            entrance::close_everywhere(to.handles, entrance.id).await;
            return Err(e);
        }
        let owner = to.session.name.clone();
        let gate = Arc::clone(&to.client.gate);
        let key = Public::Tcp(address).key();
        self.entrances.insert(key, Entry { entrance, owner, gate, chosen, wanted: true });
        Ok(address)
    }

    async fn close_unwanted(&mut self, owner: &str, handles: &[Handle]) {
        let gone = self.take(|entry| entry.owner == owner && !entry.wanted);
        for entrance in gone {
            tracing::info!(target: AUDIT, client = owner, service = entrance.name(), "withdrawn");
            entrance::close_everywhere(handles, entrance.id).await;
        }
    }

    /// Closes the entrances of an ended session. Entrances that a newer session took over stay
    /// open.
    pub(super) async fn withdraw(&mut self, session: &Session, handles: &[Handle]) {
        self.registered.remove(&session.id);
        for entrance in self.take(|entry| entry.entrance.route.session.load().id == session.id) {
            tracing::info!(target: AUDIT, client = session.name, service = entrance.name(), "withdrawn");
            entrance::close_everywhere(handles, entrance.id).await;
        }
    }

    pub(super) async fn close_all(&mut self, handles: &[Handle]) {
        for entrance in self.take(|_| true) {
            entrance::close_everywhere(handles, entrance.id).await;
        }
    }

    fn take(&mut self, matches: impl Fn(&Entry) -> bool) -> Vec<Arc<Entrance>> {
        let gone = self.entrances.extract_if(|_, entry| matches(entry));
        gone.map(|(_, entry)| entry.entrance).collect()
    }

    pub(super) fn add_failures(&self, sessions: &mut BTreeMap<u64, status::Session>) {
        for (id, (_, registered)) in &self.registered {
            let Some(session) = sessions.get_mut(id) else { continue };
            for result in &registered.results {
                let Err(error) = &result.outcome else { continue };
                session.services.push(status::Service {
                    name: result.name.as_str().to_owned(),
                    state: error.to_string(),
                    ..status::Service::default()
                });
            }
        }
    }
}

impl Entry {
    /// Leads new visitors to this session and counts them for the client as it is now. Present
    /// visitors stay counted in their old gate.
    fn lead_to(&mut self, to: Registrant<'_>, spec: &ServiceSpec) {
        let aim = aim(spec);
        if **self.entrance.route.aim.load() != aim {
            self.entrance.route.aim.store(Arc::new(aim));
        }
        self.entrance.route.session.store(Arc::clone(to.session));
        if !Arc::ptr_eq(&self.gate, &to.client.gate) {
            self.gate = Arc::clone(&to.client.gate);
            self.entrance.route.gate.store(Gate::within(Arc::clone(&self.gate), None));
        }
    }
}

fn aim(spec: &ServiceSpec) -> Aim {
    let name = spec.name.as_str().to_owned();
    Aim { target: Target::Service(name.clone()), name, priority: spec.priority }
}

/// Parses `http://host` or `tls://host`, optionally with the port of another listener, into scheme
/// and host.
fn host(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    matches!(scheme, "http" | "tls").then(|| (scheme, rest.split(':').next().unwrap_or(rest)))
}

impl Room {
    /// Returns the reason why a host is not published: first missing rights, then missing support.
    fn host(
        &mut self,
        to: Registrant<'_>,
        text: &str,
        (scheme, host): (&str, &str),
    ) -> ServiceError {
        let rights = if scheme == "http" { &to.client.http } else { &to.client.tls };
        let name = &to.session.name;
        if !rights.permits(host) {
            let text = format!(
                "{text} is not allowed to client `{name}`: add the host to `allow.{scheme}` of this \
                 client on the server"
            );
            return error(ServiceErrorCode::NotAllowed, text);
        }
        let Some(left) = self.hosts.checked_sub(1) else {
            let text =
                format!("{text}: client `{name}` has as many hosts as `limits.hosts` allows");
            return error(ServiceErrorCode::Limit, text);
        };
        self.hosts = left;
        let text = format!("{text}: this server publishes ports, and no hosts yet");
        error(ServiceErrorCode::BadAddress, text)
    }
}

/// Parses `tcp://:port` or `tcp://address:port`. A port without an address is at `public_bind`.
fn parse(text: &str, public_bind: IpAddr) -> Outcome<Public> {
    let bad = || {
        let text = format!("`{text}` is no public address: tcp://:10022 or tcp://127.0.0.1:10022");
        error(ServiceErrorCode::BadAddress, text)
    };
    let rest = text.strip_prefix("tcp://").ok_or_else(bad)?;
    if let Some(port) = rest.strip_prefix(':') {
        let port = port.parse().map_err(|_| bad())?;
        return Ok(Public::Tcp(SocketAddr::new(public_bind, port)));
    }
    rest.parse().map(Public::Tcp).map_err(|_| bad())
}

fn refusal(text: &str, service: &str, e: &io::Error) -> ServiceError {
    let code = if e.kind() == io::ErrorKind::AddrInUse {
        ServiceErrorCode::PortTaken
    } else if e.kind() == io::ErrorKind::PermissionDenied {
        ServiceErrorCode::NotAllowed
    } else if e.kind() == io::ErrorKind::AddrNotAvailable {
        ServiceErrorCode::BadAddress
    } else if is_exhaustion(e) {
        ServiceErrorCode::Limit
    } else {
        ServiceErrorCode::Internal
    };
    let advice = bind_advice(e.kind());
    error(code, format!("the server cannot listen on {text} for `{service}`: {e}{advice}"))
}

/// Whether this process or the system ran out of descriptors or memory.
fn is_exhaustion(e: &io::Error) -> bool {
    let errno = Errno::from_io_error(e);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    use config::{ServerFlags, Sources, Text};
    use link::ProcessBudget;
    use proto::Priority;
    use proto::greeting::Name;

    use super::super::super::clients::Clients;
    use super::*;
    use crate::memory;
    use crate::session::{State, Workers};

    fn client(port: u16) -> Arc<Client> {
        let text = format!(
            "listen: tcp://127.0.0.1:0\nclients:\n  - {{ name: home, token: \
             q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ, allow: {{ tcp: [\"127.0.0.1:{port}\"] }} }}\n"
        );
        let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
        let text = Some(Text { name: "server.yaml", text: &text });
        let config = config::load_server(text, &ServerFlags::default(), &sources);
        Clients::new(&config.unwrap().config).unwrap().find("home").unwrap()
    }

    fn register(generation: u64, port: u16) -> Register {
        let service = ServiceSpec {
            name: Name::new("dns").unwrap(),
            public: vec![format!("tcp://127.0.0.1:{port}")],
            priority: Priority::Normal,
            shared: false,
            resume: false,
        };
        Register { generation, services: vec![service] }
    }

    #[tokio::test]
    async fn tcp_and_udp_share_a_port_number_and_tcp_alone_does_not() {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let _udp = UdpSocket::bind(address).unwrap();
        let one = std::num::NonZeroUsize::MIN;
        let budget = ProcessBudget::new(16 << 20);
        let workers =
            Workers::start(one, move |_| State::new(memory::lease(&budget, one))).unwrap();
        let client = client(address.port());
        let [session, other] = ["home", "other"].map(|name| Session::new(name, 1));
        let place = |session| Registrant {
            session,
            client: &client,
            public_bind: Ipv4Addr::LOCALHOST.into(),
            handles: workers.handles(),
        };

        let mut published = Published::default();
        let entrance = Arc::new(Entrance {
            id: entrance::next_id(),
            address: format!("udp://{address}"),
            timeouts: Timeouts::default(),
            route: Route::new(
                aim(&register(1, address.port()).services[0]),
                &other,
                Gate::new(None),
            ),
        });
        let gate = Arc::clone(&client.gate);
        let entry =
            Entry { entrance, owner: "other".to_owned(), gate, chosen: false, wanted: true };
        let (tcp, udp) = (Key::Port(Over::Tcp, address), Key::Port(Over::Udp, address));
        published.entrances.insert(udp, entry);

        let told = published.apply(place(&session), register(1, address.port())).await.unwrap();
        assert_eq!(told.results[0].outcome, Ok(vec![format!("tcp://{address}")]));
        assert!(published.entrances.contains_key(&tcp) && published.entrances.contains_key(&udp));
        let told = published.apply(place(&other), register(1, address.port())).await.unwrap();
        let error = told.results[0].outcome.clone().unwrap_err();
        assert_eq!(error.code, ServiceErrorCode::PortTaken);
        published.withdraw(&session, workers.handles()).await;
        assert!(!published.entrances.contains_key(&tcp));
    }
}
