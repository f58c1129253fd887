//! The entrances of services of clients of other nodes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use cluster::names::{Class, Key, PortProtocol};
use config::Over;
use node::aim::Aim;
use node::backends::{Backends, Locator};
use node::descriptors;
use node::entrance::{self, Announcers, Entrance};
use node::listeners::Listeners;
use node::names::{Host, Published};
use node::session::Session;
use proto::control::ServiceSpec;
use relay::Gate;
use rustix::io::Errno;
use termination::Wanted;

use super::ground::FarGround;
use super::place::FarPlace;
use crate::registry::Registry;

/// Why an entrance is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FarEnd {
    /// The client has withdrawn the service.
    Withdrawn,
    /// Nobody has the service. Visitors of its name wait a while for the service to return.
    Gone,
    /// The client has come to this node, and has the service here: its port stays open.
    Passed,
}

/// The entrance of one service at a resource.
#[derive(Debug)]
pub(super) struct FarEntrance {
    entrance: Arc<Entrance>,
    spec: ServiceSpec,
    /// The name that leads to the entrance, and its need of a certificate; `None` for a port.
    host: Option<(Host, Option<Wanted>)>,
}

impl FarEntrance {
    pub(super) fn entrance(&self) -> Arc<Entrance> {
        Arc::clone(&self.entrance)
    }

    /// Whether this is the entrance of a service: a service with other terms of HTTP has another
    /// path, or other rules.
    pub(super) fn is_of(&self, spec: &ServiceSpec) -> bool {
        (&self.spec.name, &self.spec.public) == (&spec.name, &spec.public)
            && self.spec.terms.http == spec.terms.http
    }

    /// Leads new visitors to these sessions.
    pub(super) fn lead_to(
        self,
        ground: &FarGround,
        (spec, place): (&ServiceSpec, &FarPlace),
        sessions: &[Arc<Session>],
    ) -> Self {
        let rules = self.entrance.in_force().aim().rules.clone();
        let aim = aim(spec, place, rules);
        if let [first, ..] = sessions {
            self.entrance.backends.replace(first, aim, None);
            self.entrance.lead_to(sessions);
        }
        if let Some((host, _)) = &self.host {
            // A service of this node may have had the name meanwhile, which left the entrance out.
            ground.registry.shared().hosts.names.add(host, published(host, spec, &self.entrance));
        }
        Self { spec: spec.clone(), ..self }
    }

    /// Opens the entrance of a service, which leads to these sessions.
    ///
    /// # Errors
    /// A text for the log.
    pub(super) async fn open(
        ground: &FarGround,
        (key, locator): (&Key, &Arc<dyn Locator>),
        (spec, place): (&ServiceSpec, &FarPlace),
        sessions: &[Arc<Session>],
    ) -> Result<Self, String> {
        let first = sessions.first().ok_or("it leads nowhere")?;
        let registry = &ground.registry;
        let backends = |rules| {
            let (aim, gate) = (aim(spec, place, rules), Gate::new(None));
            Backends::at_other_nodes(aim, first, gate, Arc::clone(locator))
        };
        let (entrance, listeners, host) = match key {
            Key::Port(protocol, class, port) => {
                let over = match protocol {
                    PortProtocol::Tcp => Over::Tcp,
                    PortProtocol::Udp => Over::Udp,
                };
                let address = address(registry, *class, *port);
                let (listeners, entrance) =
                    at_port(registry, (over, address), place, backends(None))
                        .map_err(|error| format!("{over}://{address}: {error}"))?;
                (entrance, listeners, None)
            }
            Key::Duty(_) => return Err("a duty of a node has no visitors".to_owned()),
            Key::Host(..) => {
                let (entrance, host, wanted) = named(registry, spec, place, &backends)?;
                (entrance, Listeners::Tcp(Vec::new()), Some((host, wanted)))
            }
        };
        let entrance = Arc::new(entrance);
        entrance.lead_to(sessions);
        let handles = registry.handles();
        if let Err(error) = entrance::open_everywhere(handles, &entrance, listeners).await {
            entrance::close_everywhere(handles, entrance.id).await;
            return Err(format!("{}: {error}", entrance.address));
        }
        if let Some((host, _)) = &host {
            registry.shared().hosts.names.add(host, published(host, spec, &entrance));
        }
        Ok(Self { entrance, spec: spec.clone(), host })
    }

    /// Closes the entrance.
    pub(super) async fn close(self, registry: &Arc<Registry>, why: FarEnd) {
        let Self { entrance, host, .. } = self;
        if let Some((host, _)) = host {
            let is_final = why == FarEnd::Withdrawn;
            registry.shared().hosts.names.remove(&host, entrance.id, is_final);
        }
        match why {
            FarEnd::Passed => {
                entrance::pass_on_everywhere(registry.handles(), entrance.id).await;
            }
            FarEnd::Withdrawn | FarEnd::Gone => {
                entrance::close_everywhere(registry.handles(), entrance.id).await;
            }
        }
    }
}

/// The entrance as the names have it.
fn published(host: &Host, spec: &ServiceSpec, entrance: &Arc<Entrance>) -> Published {
    let path = spec.terms.http.path.as_deref().map(Arc::from);
    Published { kind: host.kind, path, entrance: Arc::clone(entrance) }
}

fn aim(spec: &ServiceSpec, place: &FarPlace, rules: Option<Arc<web::Rules>>) -> Aim {
    let (name, terms) = (spec.name.as_str().to_owned(), spec.terms.clone());
    Aim { target: place.target(&spec.name), name, terms, rules, proxy: None }
}

/// The address of this node at which a port of the class listens.
fn address(registry: &Registry, class: Class, port: u16) -> SocketAddr {
    let ip = match class {
        Class::Public => registry.shared().public_bind,
        Class::Named(address) => address,
    };
    SocketAddr::new(ip, port)
}

/// The entrance at a port, and its listeners.
fn at_port(
    registry: &Registry,
    (over, address): (Over, SocketAddr),
    place: &FarPlace,
    backends: Backends,
) -> io::Result<(Listeners, Entrance)> {
    let clients = &registry.shared().clients;
    let listeners = Listeners::ports(over, address, registry.handles().len())?;
    let room = descriptors::room();
    // The part of the descriptor table for others is kept for the clients of this node.
    if !listeners.sockets().all(|socket| room.holds(&socket)) {
        return Err(Errno::MFILE.into());
    }
    let client = clients.find(place.client.as_str());
    let bounds = client.map(|client| client.flow_bounds(clients.trusted())).unwrap_or_default();
    let entrance = Entrance {
        id: entrance::next_id(),
        address: format!("{over}://{address}"),
        steering: listeners.steering(),
        bounds,
        announcers: Announcers::Port(over, address, Arc::clone(clients.balancers())),
        backends,
    };
    Ok((listeners, entrance))
}

/// The entrance at a name, the name, and its need of a certificate.
fn named(
    registry: &Registry,
    spec: &ServiceSpec,
    place: &FarPlace,
    backends: &dyn Fn(Option<Arc<web::Rules>>) -> Backends,
) -> Result<(Entrance, Host, Option<Wanted>), String> {
    let hosts = &registry.shared().hosts;
    let text = spec.public.first().ok_or("its record has no name")?;
    let host = text.parse::<Host>().map_err(|()| format!("{text} is no name"))?;
    let url = hosts.url(&host).map_err(|error| error.text)?;
    let wanted =
        hosts.certify_elsewhere(&host, place.client.as_str()).map_err(|error| error.text)?;
    let rules = web::Rules::new(&spec.terms.http).map_err(|error| format!("{text}: {error}"))?;
    let address = match &spec.terms.http.path {
        Some(path) => format!("{url}{path}"),
        None => url,
    };
    let entrance = Entrance {
        id: entrance::next_id(),
        address,
        steering: None,
        bounds: Arc::default(),
        announcers: Announcers::Nobody,
        backends: backends(Some(Arc::new(rules))),
    };
    Ok((entrance, host, wanted))
}
