//! The entrances of one client.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::Over;
use logging::AUDIT;
use ops::events::Changed;
use proto::Target;
use proto::control::{Register, ServiceError, ServiceErrorCode, ServiceSpec};
use relay::Gate;
use rustix::io::Errno;
use termination::Wanted;
use tokio::time::{Instant, sleep};
use tracing::field::display;

use node::aim::Aim;
use node::backends::Backends;
use node::entrance::{Announcers, Entrance};
use node::listeners::Listeners;
use node::names::{Host, Kind, Space};
use node::session::Handle;
use node::{descriptors, entrance};

use super::abouts::Abouts;
use super::address::{
    Outcome, Place, Public, Settled, error, no_room, not_given, parse, refusal, settle, url, waits,
};
use super::budget::{Budget, Reserved};
use super::registrant::Registrant;
use super::shares::Shares;
use crate::directory::{Chosen, ChosenPorts, Claim, Class, Directory, Key, NotGiven, Port};
use doors::hosts::Hosts;
use doors::remembered::Registered;

/// The time within which a port that this node has opened for a client of another node is closed.
const YIELDS: Duration = Duration::from_secs(2);

/// The entrances of one client.
#[derive(Debug)]
pub(super) struct OfClient {
    pub(super) name: Arc<str>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) chosen: Arc<ChosenPorts>,
    pub(super) budget: Arc<Budget>,
    pub(super) shares: Arc<Shares>,
    /// The shared entrances that its sessions serve, by session: whether the latest registration of
    /// the session includes each.
    pub(super) joined: HashMap<(u64, Place), bool>,
    pub(super) entrances: HashMap<Place, Entry>,
    /// The claims of names, with the kind and the public address of the first service. Services
    /// that share a name share its claim.
    pub(super) names: HashMap<Key, (Option<Kind>, Weak<Claim>, String)>,
    /// As [`Client::source`](crate::clients::Client) at the last registration.
    source: Option<IpAddr>,
    /// The directory did not answer when claims were passed on or described anew.
    pub(super) is_behind: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) entrance: Arc<Entrance>,
    /// Holds the resource for the client, and the descriptors of listeners. Services that share a
    /// name share the claim.
    pub(super) held: (Arc<Claim>, Option<Reserved>),
    /// The gate of the client. The gate of the entrance is within it.
    pub(super) gate: Arc<Gate>,
    /// The name that leads to the entrance, and its need of a certificate; `None` for a port.
    pub(super) host: Option<(Host, Option<Wanted>)>,
    /// The server chose the port, because the client requested port 0.
    pub(super) chosen: bool,
    /// The latest registration includes this entrance.
    pub(super) wanted: bool,
}

/// The claims of a registration that were made before anything was opened.
pub(super) type Ahead = HashMap<Key, Result<Claim, NotGiven>>;

/// The state of one registration.
pub(super) struct Registration {
    /// The numbers of additional ports and hosts that the client may have.
    ports: u32,
    pub(super) hosts: u32,
    /// The entrances on ports that the server chose before, by service.
    chosen: HashMap<String, Vec<Place>>,
    /// The ports from which the server may still choose, by class. Ports that turned out to be in
    /// use are not tried again.
    free: HashMap<(Over, Class), Box<dyn Iterator<Item = u16> + Send>>,
    /// The claims that were made before anything was opened.
    pub(super) ahead: Ahead,
    /// What other servers need to know of the services at each resource.
    pub(super) abouts: Abouts,
    /// The ports that services had before this registration, once they were needed.
    pub(super) before: Option<Arc<Chosen>>,
    /// The ports that the server chose for services in this registration.
    noted: Vec<(String, Port)>,
}

impl OfClient {
    pub(super) fn new(
        (directory, chosen): (&Arc<dyn Directory>, &Arc<ChosenPorts>),
        budget: &Arc<Budget>,
        shares: &Arc<Shares>,
        name: &str,
    ) -> Self {
        let (directory, budget) = (Arc::clone(directory), Arc::clone(budget));
        let (chosen, shares) = (Arc::clone(chosen), Arc::clone(shares));
        let (entrances, joined, names) = Default::default();
        Self {
            name: name.into(),
            directory,
            chosen,
            budget,
            shares,
            joined,
            entrances,
            names,
            source: None,
            is_behind: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entrances.is_empty() && self.joined.is_empty()
    }

    /// Applies a registration. Returns the outcome of each service.
    pub(super) async fn set(&mut self, to: Registrant<'_>, register: &Register) -> Vec<Settled> {
        self.source = to.client.source;
        // Ports that are no longer wanted close first, because another address may need the same
        // port.
        let publics = self.asked(to, register);
        let places = |shared: bool| {
            let specs = register.services.iter().zip(&publics);
            let specs = specs.filter(move |(spec, _)| spec.terms.shared.is_some() == shared);
            let places = specs.flat_map(|(spec, publics)| {
                let path = spec.terms.http.path.as_deref();
                publics.iter().flatten().map(move |public| public.place(path))
            });
            places.collect::<HashSet<_>>()
        };
        let (asked, shared) = (places(false), places(true));
        let mut chosen: HashMap<String, Vec<Place>> = HashMap::new();
        for (place, entry) in &mut self.entrances {
            entry.wanted = entry.chosen || asked.contains(place) || entry.is_of_other(to);
            if entry.chosen {
                chosen.entry(entry.entrance.name()).or_default().push(place.clone());
            }
        }
        for ((session, place), wanted) in &mut self.joined {
            *wanted = *session != to.session.id || shared.contains(place);
        }
        self.close_unwanted(to, register).await;
        let abouts = self.abouts(to, register, &publics);
        self.pass_claims(to, (&asked, &abouts), (to.handles, to.hosts)).await;
        let ahead = self.claim_ahead(to, register, (&publics, &abouts)).await;
        for (place, entry) in &mut self.entrances {
            entry.wanted = entry.is_of_other(to) && !asked.contains(place);
        }
        for ((session, _), wanted) in &mut self.joined {
            *wanted = *session != to.session.id;
        }
        let mut state = Registration {
            ports: to.client.ports,
            hosts: to.client.hosts.map_or(u32::MAX, NonZeroU32::get),
            chosen,
            free: HashMap::new(),
            ahead,
            abouts,
            before: None,
            noted: Vec::new(),
        };
        let mut outcomes = Vec::with_capacity(register.services.len());
        let mut names = Registered::default();
        for (spec, publics) in register.services.iter().zip(publics) {
            outcomes.push(self.publish(to, (spec, publics), (&mut state, &mut names)).await);
        }
        self.record_chosen(&state.noted).await;
        // Claims of addresses that were not published are released.
        drop(state);
        self.close_unwanted(to, register).await;
        if register.leaving {
            // The other processes of the client keep publishing the names of a process that leaves.
            if to.is_alone {
                to.hosts.note_away(&self.name);
            }
        } else {
            to.hosts.remember(&self.name, &names);
        }
        outcomes
    }

    /// The addresses that a registration requests, service by service.
    ///
    /// An own name of the client over `http://` is the name over `https://` where the server ends
    /// TLS for it, unless the registration has the host over TLS as well, or the service redirects,
    /// is reached over HTTP on purpose (`redirect: false`), or is not parsed (`pass_through`).
    fn asked(&self, to: Registrant<'_>, register: &Register) -> Vec<Vec<Outcome<Public>>> {
        let domain = to.hosts.domain();
        let domain = domain.as_ref().map(|domain| domain.as_str());
        let read = |text: &String| parse(text, to.public_bind, domain);
        let each = register.services.iter();
        let mut all: Vec<Vec<_>> =
            each.map(|spec| spec.public.iter().map(read).collect()).collect();
        let Some(domain) = domain else { return all };
        let of_tls = |public: &Outcome<Public>| match public {
            Ok(Public::Name(host)) if host.kind.space() == Space::Tls => {
                Some(Arc::clone(&host.name))
            }
            Ok(Public::Name(_) | Public::Port(_)) | Err(_) => None,
        };
        let over_tls: HashSet<_> = all.iter().flatten().filter_map(of_tls).collect();
        let account = to.account();
        for (spec, publics) in register.services.iter().zip(&mut all) {
            let http = &spec.terms.http;
            if http.no_https_redirect || http.redirect.is_some() || http.pass_through {
                continue;
            }
            for public in publics {
                if let Ok(Public::Name(host)) = public
                    && host.kind == Kind::Http
                    && !over_tls.contains(&host.name)
                    && config::is_own_name(&host.name, domain, &self.name)
                    && to.hosts.secures(&host.name, &account)
                {
                    host.kind = Kind::Https;
                }
            }
        }
        all
    }

    /// Publishes one service, address by address. `publics` are its addresses.
    async fn publish(
        &mut self,
        to: Registrant<'_>,
        (spec, publics): (&ServiceSpec, Vec<Outcome<Public>>),
        (state, names): (&mut Registration, &mut Registered),
    ) -> Settled {
        if spec.terms.private.is_some() && !spec.public.is_empty() {
            let text = "a private service has no public address".to_owned();
            return (Err(error(ServiceErrorCode::BadAddress, text)), Vec::new());
        }
        let mut all = Vec::with_capacity(spec.public.len());
        // A client that introduced itself is forgotten with its last link.
        let is_known = !spec.terms.ephemeral && !to.client.is_stranger;
        let path = spec.terms.http.path.as_deref();
        for (text, public) in spec.public.iter().zip(publics) {
            let name = match &public {
                Ok(Public::Name(host)) if is_known => Some(host.clone()),
                Ok(_) | Err(_) => None,
            };
            let outcome = match public {
                Ok(public) => self.open(to, spec, (text, public), state).await,
                Err(error) => Err(error),
            };
            match (name, &outcome) {
                (Some(host), Ok(_)) => names.publish(host, path),
                (Some(host), Err(error)) if error.code.may_pass() => names.wait(&host, path),
                (Some(_) | None, _) => {}
            }
            all.push((text.as_str(), outcome));
        }
        settle(all)
    }

    /// Opens one address of a service. Returns the address at which visitors reach it.
    async fn open(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        (text, public): (&str, Public),
        state: &mut Registration,
    ) -> Outcome<String> {
        if !spec.terms.dscp.is_default() && !to.client.dscp {
            let name = &self.name;
            let text = format!(
                "{text}: dscp is not allowed to client `{name}`: add `dscp: true` to `allow` of this \
                 client on the server, or remove the key from the service"
            );
            return Err(error(ServiceErrorCode::NotAllowed, text));
        }
        let place = public.place(spec.terms.http.path.as_deref());
        match public {
            Public::Port(port) => {
                let (over, ..) = port;
                Ok(url(over, self.open_port(to, spec, (text, port, place), state).await?))
            }
            Public::Name(host) => self.open_name(to, spec, (text, host, place), state).await,
        }
    }

    fn not_allowed(
        &self,
        to: Registrant<'_>,
        text: &str,
        (over, address): (Over, SocketAddr),
    ) -> ServiceError {
        // A right without an address applies to `public_bind` only.
        let right = if address.ip() == to.public_bind {
            address.port().to_string()
        } else {
            address.to_string()
        };
        let name = &self.name;
        let mut text = format!(
            "{text} is not allowed to client `{name}`: add `{right}` to `allow.{over}` of this client \
             on the server"
        );
        if to.is_known {
            // A shell would expand the brackets of an IPv6 address.
            let quote = if right.contains('[') { "'" } else { "" };
            text.push_str(&format!(
                ", or run there: tunnel allow {name} --{over} {quote}{right}{quote}"
            ));
        }
        error(ServiceErrorCode::NotAllowed, text)
    }

    fn too_many(&self, to: Registrant<'_>, text: &str) -> ServiceError {
        let (name, ports) = (&self.name, to.client.ports);
        let text = format!(
            "{text}: client `{name}` has as many ports as `limits.ports` of this client on the \
             server allows ({ports})"
        );
        error(ServiceErrorCode::Limit, text)
    }

    async fn open_port(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        (text, (over, class, port), place): (&str, Port, Place),
        state: &mut Registration,
    ) -> Outcome<SocketAddr> {
        let address = class.at(to.public_bind, port);
        let bind = address.ip();
        let rights = to.client.ports_of(over);
        if port != 0 && !rights.permits(bind, port) {
            return Err(self.not_allowed(to, text, (over, address)));
        }
        let left = state.ports.checked_sub(1);
        // A client without any right gets that error instead of the limit.
        let Some(left) = left.or_else(|| rights.rights.is_empty().then_some(0)) else {
            return Err(self.too_many(to, text));
        };
        let address = if port == 0 {
            self.open_any(to, spec, (over, class), state).await?
        } else {
            self.open_at(to, spec, (text, (over, address), place), state).await?
        };
        state.ports = left;
        Ok(address)
    }

    async fn open_at(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        (text, (over, address), place): (&str, (Over, SocketAddr), Place),
        state: &mut Registration,
    ) -> Outcome<SocketAddr> {
        if spec.terms.shared.is_some() {
            return self.share_port(to, spec, (text, (over, address), place)).await;
        }
        if let Some(entry) = self.entrances.get_mut(&place) {
            if entry.wanted {
                return Err(error(
                    ServiceErrorCode::NameTaken,
                    format!("{text} is published by another service of this client"),
                ));
            }
            entry.wanted = true;
            entry.offer_to(to, spec, None);
            return Ok(address);
        }
        let claim = self.claim(to, &place.key, state).await.map_err(|why| {
            not_given(why, text, || {
                let other = "another client publishes there; choose another port";
                error(ServiceErrorCode::PortTaken, format!("{text} is taken: {other}"))
            })
        })?;
        let reserved = self.budget.reserve(to.handles.len());
        let reserved = reserved.ok_or_else(|| no_room(text, spec.name.as_str()))?;
        let entry = listen(to, spec, (over, address), (claim, reserved), false).await;
        let entry = entry.map_err(|e| refusal(text, spec.name.as_str(), &e))?;
        self.entrances.insert(place, entry);
        Ok(address)
    }

    /// Opens an entrance on a port that the server chooses: the port that this service had before,
    /// or else the first free port that the client may have and no other service had before.
    async fn open_any(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        (over, class): (Over, Class),
        state: &mut Registration,
    ) -> Outcome<SocketAddr> {
        let (service, bind) = (spec.name.as_str(), class.address(to.public_bind));
        let rights = to.client.ports_of(over);
        for place in state.chosen.get(service).into_iter().flatten() {
            let Some((of, at, port)) = place.key.port() else { continue };
            let may = of == over && at == class && rights.permits(bind, port);
            let Some(entry) = self.entrances.get_mut(place).filter(|entry| may && !entry.wanted)
            else {
                continue;
            };
            entry.wanted = true;
            entry.offer_to(to, spec, None);
            return Ok(class.at(to.public_bind, port));
        }
        let any = format!("{over}://:0");
        if spec.terms.shared.is_some() {
            let text = format!("{any}: clients cannot share a port that the server chooses");
            return Err(error(ServiceErrorCode::BadAddress, text));
        }
        let before = self.chosen_before(state).await.ok_or_else(|| waits(&any))?;
        let own = before.of(&self.name, service).into_iter();
        let own = own.filter(|(of, at, _)| *of == over && *at == class);
        let choice = rights.to_choose_from(bind);
        let may = |port: u16| choice.iter().any(|(first, last)| (*first..=*last).contains(&port));
        let own = own.map(|(.., port)| port).filter(|&port| may(port));
        let own: Vec<_> = own.collect();
        let ports = state.free.entry((over, class)).or_insert_with(|| {
            // Ports that other services had are the last choice: the services may come back.
            let others = before.of_others(&self.name, service);
            free_ports(choice.clone(), (over, class), others)
        });
        let (owner, about) = (self.owner(to), state.abouts.of_chosen(service, over, class));
        for port in own.into_iter().chain(ports.by_ref()) {
            let address = class.at(to.public_bind, port);
            let key = Key::Port(over, class, port);
            let wanted = (key, Arc::clone(&about));
            let claim = match Claim::new(&self.directory, wanted, &owner).await {
                Ok(claim) => claim,
                Err(NotGiven::Taken) => continue,
                Err(NotGiven::Away) => return Err(waits(&any)),
            };
            let Some(reserved) = self.budget.reserve(to.handles.len()) else {
                return Err(no_room(&any, service));
            };
            let place = claim.key().clone().into();
            match listen(to, spec, (over, address), (claim, reserved), true).await {
                Ok(entry) => {
                    self.entrances.insert(place, entry);
                    if to.is_known {
                        state.noted.push((service.to_owned(), (over, class, port)));
                    }
                    return Ok(address);
                }
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                Err(e) => return Err(refusal(&any, service, &e)),
            }
        }
        let name = &self.name;
        Err(error(
            ServiceErrorCode::NotAllowed,
            format!(
                "client `{name}` has no free port in `allow.{over}` of the server to choose from \
                 (ports below 1024 are chosen only where the client may have no others)"
            ),
        ))
    }

    async fn close_unwanted(&mut self, to: Registrant<'_>, register: &Register) {
        // A client that stops requests no services, and may be restarted soon.
        let is_final = !register.services.is_empty();
        let why = Closed { is_news: true, is_final };
        self.close(|entry| !entry.wanted, (to.handles, to.hosts), why).await;
        self.leave(
            |(session, _), wanted| *session == to.session.id && !wanted,
            (to.handles, to.hosts),
            why,
        )
        .await;
    }

    /// Closes the entrances that lead to this session.
    pub(super) async fn close_of(&mut self, session: u64, at: (&[Handle], &Hosts)) {
        let leads = |entry: &Entry| entry.entrance.backends.lead_to_session(session);
        let why = Closed { is_news: true, is_final: false };
        self.close(leads, at, why).await;
        self.leave(|(of, _), _| *of == session, at, why).await;
        self.note_away(at.1);
    }

    /// Records that the names of the client are no longer published, if it has no entrance at a
    /// name.
    fn note_away(&self, hosts: &Hosts) {
        let joins_names = self.joined.keys().any(|(_, place)| place.kind.is_some());
        if !joins_names && self.entrances.values().all(|entry| entry.host.is_none()) {
            hosts.note_away(&self.name);
        }
    }

    /// Closes all entrances, at the end of the server.
    pub(super) async fn close_all(&mut self, at: (&[Handle], &Hosts)) {
        let why = Closed { is_news: false, is_final: true };
        self.close(|_| true, at, why).await;
        self.leave(|_, _| true, at, why).await;
        self.note_away(at.1);
    }

    /// Reports that a service is no longer published.
    pub(super) fn tell_end(&self, hosts: &Hosts, service: &str) {
        let (client, source) = (&*self.name, self.source.map(display));
        tracing::info!(
            target: AUDIT, client, service, source,
            "service {service} of client {client} is published no more"
        );
        hosts.events.tell(|| Changed::withdrawn(client, service));
    }

    pub(super) async fn close(
        &mut self,
        gone: impl Fn(&Entry) -> bool,
        (handles, hosts): (&[Handle], &Hosts),
        why: Closed,
    ) {
        let gone: Vec<_> = self.entrances.extract_if(|_, entry| gone(entry)).collect();
        for (_, entry) in gone {
            if why.is_news {
                self.tell_end(hosts, &entry.entrance.name());
            }
            entry.shut((handles, hosts), why).await;
        }
        self.names.retain(|_, (_, claim, _)| claim.strong_count() > 0);
    }

    /// The session that serves the visitors of an unshared address of this client.
    #[cfg(test)]
    pub(super) fn leads_to(&self, key: Key) -> Option<u64> {
        let entry = self.entrances.get(&key.into())?;
        entry.entrance.backends.all().first().map(|backend| backend.session.id)
    }

    #[cfg(test)]
    pub(super) fn has(&self, key: Key) -> bool {
        self.entrances.contains_key(&key.into())
    }
}

impl Entry {
    /// Whether the entrance leads to another process of the client, which runs alongside the
    /// process of this registration.
    pub(super) fn is_of_other(&self, to: Registrant<'_>) -> bool {
        !to.is_alone && !self.entrance.backends.lead_to_session(to.session.id)
    }

    /// Closes the entrance.
    pub(super) async fn shut(self, (handles, hosts): (&[Handle], &Hosts), why: Closed) {
        let Self { entrance, held, host, .. } = self;
        if let Some((host, _)) = host {
            hosts.names.remove(&host, entrance.id, why.is_final);
        }
        if held.0.is_elsewhere() {
            // This node opens the port again, and leads its visitors to the other node.
            entrance::pass_on_everywhere(handles, entrance.id).await;
        } else {
            entrance::close_everywhere(handles, entrance.id).await;
        }
        // The port becomes free only now.
        drop(held);
    }

    /// Leads new visitors to this session, unless another process of the client outranks it for the
    /// address.
    pub(super) fn offer_to(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        rules: Option<Arc<web::Rules>>,
    ) {
        if !self.is_outranked(to) {
            self.lead_to(to, spec, rules);
        }
    }

    /// Whether the entrance leads to a process of the client that outranks the process of this
    /// registration.
    pub(super) fn is_outranked(&self, to: Registrant<'_>) -> bool {
        let leads = |other: &u64| self.entrance.backends.lead_to_session(*other);
        to.outranked_by.iter().any(leads)
    }

    /// Leads new visitors to this session and counts them in the client's current gate. Present
    /// visitors stay counted in their old gate.
    fn lead_to(&mut self, to: Registrant<'_>, spec: &ServiceSpec, rules: Option<Arc<web::Rules>>) {
        let aim = aim(spec, rules);
        self.entrance.backends.forget_health();
        to.client.bound_flows(&self.entrance.bounds);
        let is_other = !Arc::ptr_eq(&self.gate, &to.client.gate);
        let gate = is_other.then(|| {
            self.gate = Arc::clone(&to.client.gate);
            Gate::within(Arc::clone(&self.gate), None)
        });
        self.entrance.backends.replace(to.session, aim, gate.as_ref());
        if self.host.is_some() {
            to.hosts.names.note_change();
        }
        self.entrance.steer(to.session);
    }
}

pub(super) fn aim(spec: &ServiceSpec, rules: Option<Arc<web::Rules>>) -> Aim {
    let (name, terms) = (spec.name.as_str().to_owned(), spec.terms.clone());
    Aim { target: Target::Service(name.clone()), name, terms, rules, proxy: None }
}

/// Listens at the claimed address on all workers.
pub(super) async fn listen(
    to: Registrant<'_>,
    spec: &ServiceSpec,
    (over, address): (Over, SocketAddr),
    (claim, mut reserved): (Claim, Reserved),
    chosen: bool,
) -> io::Result<Entry> {
    let listeners = listeners((over, address), to.handles.len(), claim.is_of_cluster()).await?;
    let room = descriptors::room();
    if !reserved.keep(listeners.sockets().filter(|socket| !room.holds(socket)).count()) {
        return Err(Errno::MFILE.into());
    }
    let entrance = Arc::new(Entrance {
        id: entrance::next_id(),
        address: format!("{over}://{address}"),
        steering: listeners.steering(),
        bounds: to.client.flow_bounds(to.clients.trusted()),
        announcers: Announcers::Port(over, address, Arc::clone(to.clients.balancers())),
        backends: backends(to, spec, None),
    });
    entrance.steer(to.session);
    if let Err(e) = entrance::open_everywhere(to.handles, &entrance, listeners).await {
        entrance::close_everywhere(to.handles, entrance.id).await;
        return Err(e);
    }
    let gate = Arc::clone(&to.client.gate);
    let held = (Arc::new(claim), Some(reserved));
    Ok(Entry { entrance, held, gate, host: None, chosen, wanted: true })
}

/// The listeners of a claimed port. A node of a cluster listens at the ports of other nodes as
/// well, and leaves the sockets of such a port to its own client when it hears that the client has
/// the port: that takes about 100 ms.
async fn listeners(
    (over, address): (Over, SocketAddr),
    workers: usize,
    is_of_cluster: bool,
) -> io::Result<Listeners> {
    let until = Instant::now() + YIELDS;
    loop {
        match Listeners::ports(over, address, workers) {
            Err(error) if is_of_cluster && error.kind() == io::ErrorKind::AddrInUse => {
                if Instant::now() >= until {
                    return Err(error);
                }
                sleep(YIELDS / 40).await;
            }
            outcome => return outcome,
        }
    }
}

/// The backends of a new entrance.
pub(super) fn backends(
    to: Registrant<'_>,
    spec: &ServiceSpec,
    rules: Option<Arc<web::Rules>>,
) -> Backends {
    let gate = gate(to);
    let backends = Backends::new(aim(spec, rules.clone()), to.session, Arc::clone(&gate));
    if spec.terms.shared.is_some() {
        backends.join(to.session, aim(spec, rules), &gate);
    }
    backends
}

/// The gate of a backend within that of its client.
pub(super) fn gate(to: Registrant<'_>) -> Arc<Gate> {
    Gate::within(Arc::clone(&to.client.gate), None)
}

/// The ports of `ranges`, with the ports of `others` last.
fn free_ports(
    ranges: Vec<(u16, u16)>,
    (over, class): (Over, Class),
    others: HashSet<Port>,
) -> Box<dyn Iterator<Item = u16> + Send> {
    let others = Arc::new(others);
    let is_kept = move |port: u16| others.contains(&(over, class, port));
    let is_free = {
        let is_kept = is_kept.clone();
        move |port: &u16| !is_kept(*port)
    };
    let all = || ranges.clone().into_iter().flat_map(|(first, last)| first..=last);
    let free = all().filter(is_free);
    Box::new(free.chain(all().filter(move |port| is_kept(*port))))
}

/// How entrances are closed.
#[derive(Clone, Copy)]
pub(super) struct Closed {
    /// The closing is logged.
    pub(super) is_news: bool,
    /// The client no longer requests the entrances. Otherwise the client is away and may come back.
    pub(super) is_final: bool,
}
