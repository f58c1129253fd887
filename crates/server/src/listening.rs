//! The ports of a server's configuration: ports for carriers and ports for visitors of names. A
//! port whose address this machine does not have waits for the address and is retried.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::{Endpoint, Host, ServerConfig};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::accept;
use super::registry::Registry;
use doors::{Behind, BoundDoor, Doors, Place};
use families::{AGAIN, Bound, ServerSide, listen_address};
use node::session::Handle;

/// A port that is bound.
pub(super) enum Port {
    /// A port for carriers.
    Carriers(usize, Endpoint, Bound),
    /// A port for visitors of names.
    Door(BoundDoor),
}

impl Port {
    /// The URL in status and log.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Carriers(_, endpoint, bound) => url(endpoint, bound.address),
            Self::Door(door) => door.url(),
        }
    }

    /// The index in `listen`; `None` for a port that is not in `listen`.
    pub(super) const fn nth(&self) -> Option<usize> {
        match self {
            Self::Carriers(nth, ..) => Some(*nth),
            Self::Door(door) => door.nth,
        }
    }

    /// Opens the port on all workers.
    pub(super) async fn open(
        self,
        handles: &[Handle],
        doors: &Arc<Doors>,
        registry: &Arc<Registry>,
    ) -> anyhow::Result<()> {
        let url = self.url();
        match self {
            Self::Door(door) => {
                tracing::info!("listening for visitors on {url}");
                let behind: Arc<dyn Behind> = registry.clone();
                door.open(handles, doors, &behind).await
            }
            Self::Carriers(_, _, bound) => {
                tracing::info!("listening for clients on {url}");
                for (handle, open) in handles.iter().zip(bound.by_worker) {
                    let registry = Arc::clone(registry);
                    handle
                        .call(move |worker| {
                            accept::start(worker, registry, open()?);
                            std::io::Result::Ok(())
                        })
                        .await??;
                }
                Ok(())
            }
        }
    }
}

fn url(endpoint: &Endpoint, address: SocketAddr) -> String {
    let (scheme, path) = (endpoint.scheme.name, endpoint.path.as_deref().unwrap_or_default());
    match &endpoint.host {
        // The socket has the index of the interface, and users know its name.
        host @ Host::Scoped(_) => format!("{scheme}://{host}:{}{path}", address.port()),
        Host::Name(_) | Host::Ip(_) => format!("{scheme}://{address}{path}"),
    }
}

/// A port that waits for its address.
#[derive(Clone, Debug)]
pub(super) struct AbsentPort {
    place: Place,
    /// The URL, once the port is open.
    pub(super) url: String,
    pub(super) address: Option<SocketAddr>,
    /// Why the port waits.
    why: String,
}

impl AbsentPort {
    /// The index in `listen`; `None` for a port that is not in `listen`.
    pub(super) const fn nth(&self) -> Option<usize> {
        match self.place {
            Place::Listen(nth) => Some(nth),
            Place::Http(_) | Place::Tls(_) => None,
        }
    }

    /// Whether the port accepts visitors of HTTP and of TLS.
    pub(super) fn admits(&self, config: &ServerConfig) -> (bool, bool) {
        match self.place {
            Place::Http(_) => (true, false),
            Place::Tls(_) => (false, true),
            Place::Listen(nth) => {
                let is_mux = config.listen.get(nth).is_some_and(|at| at.mux.is_some());
                (is_mux, is_mux)
            }
        }
    }
}

/// Binds those ports of a configuration that are `wanted`.
fn bind(
    config: &ServerConfig,
    side: &ServerSide,
    workers: usize,
    wanted: impl Fn(Place) -> bool + Copy,
) -> Vec<(Place, anyhow::Result<Port>)> {
    let carriers = config.listen.iter().enumerate().filter(|(_, listen)| listen.mux.is_none());
    let carriers = carriers.filter(|(nth, _)| wanted(Place::Listen(*nth)));
    let carriers = carriers.map(|(nth, listen)| {
        let bound = side.bind(listen, &config.common, workers);
        (Place::Listen(nth), bound.map(|it| Port::Carriers(nth, listen.endpoint.clone(), it)))
    });
    let doors = BoundDoor::all(config, side, workers, wanted);
    carriers.chain(doors.map(|(place, door)| (place, door.map(Port::Door)))).collect()
}

/// Binds all ports of a configuration.
///
/// # Errors
/// Ports are in use or not permitted; the error has a line for each.
pub(super) fn bind_all(
    config: &ServerConfig,
    side: &ServerSide,
    workers: usize,
) -> anyhow::Result<(Vec<Port>, Vec<AbsentPort>)> {
    let mut absent = Vec::new();
    let bound = bind(config, side, workers, |_| true).into_iter();
    let bound = bound.filter_map(|(place, outcome)| match outcome {
        Err(why) if families::is_absent(&why) => {
            let (address, url) = match place {
                Place::Http(at) => (Some(at), format!("http://{at}")),
                Place::Tls(at) => (Some(at), format!("tls://{at}")),
                Place::Listen(nth) => {
                    let endpoint = config.listen.get(nth).map(|listen| &listen.endpoint);
                    let address = endpoint.and_then(|endpoint| listen_address(endpoint).ok());
                    let url = endpoint.zip(address).map(|(endpoint, at)| url(endpoint, at));
                    // The interface of a link-local address does not exist yet.
                    let written = || endpoint.map(ToString::to_string).unwrap_or_default();
                    (address, url.unwrap_or_else(written))
                }
            };
            absent.push(AbsentPort { place, url, address, why: why.to_string() });
            None
        }
        outcome => Some(outcome),
    });
    let bound = families::all_bound(bound)?;
    Ok((bound, absent))
}

/// The ports that wait for their addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Arc<Mutex<Vec<AbsentPort>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Vec<AbsentPort>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A URL for the status, with a note if the port waits for its address.
    pub(super) fn shown(&self, url: &str) -> String {
        let waits = self.lock().iter().any(|port| port.url == url);
        if waits { format!("{url} (waits for its address)") } else { url.to_owned() }
    }

    /// Tries the ports again on the worker of `handle`, until all are open or the server stops.
    pub(super) async fn insist(
        &self,
        absent: Vec<AbsentPort>,
        (config, side): (ServerConfig, ServerSide),
        (doors, registry): (Arc<Doors>, Arc<Registry>),
        handles: &Arc<[Handle]>,
    ) -> anyhow::Result<()> {
        let Some(first) = handles.first().filter(|_| !absent.is_empty()) else { return Ok(()) };
        for port in &absent {
            tracing::warn!("a listener waits for its address: {}", port.why);
        }
        *self.lock() = absent;
        let (waiting, handles) = (self.clone(), Arc::clone(handles));
        first
            .call(move |_| {
                spawn_local(async move {
                    while !registry.is_leaving() && !waiting.lock().is_empty() {
                        sleep(AGAIN).await;
                        waiting.try_again((&config, &side), (&doors, &registry), &handles).await;
                    }
                });
            })
            .await?;
        Ok(())
    }

    async fn try_again(
        &self,
        (config, side): (&ServerConfig, &ServerSide),
        (doors, registry): (&Arc<Doors>, &Arc<Registry>),
        handles: &[Handle],
    ) {
        let places: Vec<_> = self.lock().iter().map(|port| port.place).collect();
        for (place, outcome) in bind(config, side, handles.len(), |place| places.contains(&place)) {
            // The server may have begun to stop.
            if registry.is_leaving() {
                return;
            }
            let why = match outcome {
                Ok(port) => match port.open(handles, doors, registry).await {
                    Ok(()) => {
                        self.lock().retain(|port| port.place != place);
                        continue;
                    }
                    Err(why) => why,
                },
                Err(why) => why,
            };
            let why = format!("{why:#}");
            let mut waiting = self.lock();
            let known = waiting.iter_mut().find(|port| port.place == place);
            if let Some(known) = known.filter(|known| known.why != why) {
                tracing::warn!("a listener is tried again: {why}");
                known.why = why;
            }
        }
    }
}
