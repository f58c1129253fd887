//! Bound doors: from the addresses of a configuration to doors that are open on all workers.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use config::{Listen, ServerConfig, Target};
use families::{ServerSide, Unbound, listen_address};
use node::session::Handle;
use node::{descriptors, memory};
use proto::ScopedAddr;
use relay::shares::Kind;
use relay::{Gate, Handler, Holder, Listening, TargetAddr};

use super::behind::Behind;
use super::doors::Doors;
use super::mux::{Everything, MuxPort};
use super::port::Port;
use super::state::DoorsState;
use super::{http, tls};

/// A kind of door.
#[derive(Clone, Debug)]
pub enum Opens {
    Http,
    Tls,
    Everything(Box<Everything>),
}

/// A bound door, with a socket for each worker.
#[derive(Debug)]
pub struct BoundDoor {
    /// The address, with the port that the system chose.
    pub address: SocketAddr,
    /// The address with the name of its interface.
    link: Option<ScopedAddr>,
    /// The index of a `mux://` door in `listen`.
    pub nth: Option<usize>,
    kind: Opens,
    /// Connections of trusted reverse proxies begin with a PROXY protocol header.
    is_announced: bool,
    group: Vec<std::net::TcpListener>,
}

/// The place of a listener in the configuration of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An index in `listen`.
    Listen(usize),
    /// An address of `http.listen`.
    Http(SocketAddr),
    /// An address of `tls_routes.listen`.
    Tls(SocketAddr),
}

impl BoundDoor {
    /// Binds those doors of a configuration that are `wanted`.
    pub fn all(
        config: &ServerConfig,
        side: &ServerSide,
        workers: usize,
        wanted: impl Fn(Place) -> bool,
    ) -> impl Iterator<Item = (Place, anyhow::Result<Self>)> {
        let (of_http, of_tls) = (config.http.accept_proxy, config.tls_routes.accept_proxy);
        let http = config.http.listen.iter().map(move |at| (None, Ok(*at), (Opens::Http, of_http)));
        let tls =
            config.tls_routes.listen.iter().map(move |at| (None, Ok(*at), (Opens::Tls, of_tls)));
        let place = |nth: Option<usize>, address: &anyhow::Result<SocketAddr>, kind: &Opens| {
            match (nth, address, kind) {
                (Some(nth), ..) => Place::Listen(nth),
                (None, Ok(at), Opens::Tls) => Place::Tls(*at),
                (None, Ok(at), _) => Place::Http(*at),
                // The addresses of these doors need no look-up.
                (None, Err(_), _) => Place::Listen(usize::MAX),
            }
        };
        let muxes = config.listen.iter().enumerate().filter_map(move |(nth, listen)| {
            let mux = listen.mux.as_ref()?;
            let everything = Everything {
                carriers: side.carriers(listen)?,
                plain: config.is_exempt(listen),
                default: mux.default.as_ref().map(target),
                silence: mux.silence.duration(),
                timeouts: mux.timeouts,
                gate: Gate::new(Some(memory::streams_of_default(&config.common))),
            };
            let kind = (Opens::Everything(Box::new(everything)), mux.accept_proxy);
            Some((Some((nth, listen)), listen_address(&listen.endpoint), kind))
        });
        let all = http.chain(tls).chain(muxes).map(move |(mux, address, how)| {
            (place(mux.map(|(nth, _)| nth), &address, &how.0), mux, address, how)
        });
        let all = all.filter(move |(place, ..)| wanted(*place));
        let bind =
            move |mux: Option<(usize, &Listen)>, address: anyhow::Result<_>, kind, is_announced| {
                let asked = address?;
                let options = mux.map(|(_, listen)| families::listener_options(listen));
                let group = net::listen_group_with(asked, workers, &options.unwrap_or_default())
                    .map_err(|e| Unbound::new(&asked, &e))?;
                let nth = mux.map(|(nth, _)| nth);
                net::inherited::store(&group);
                let address = group.first().map_or(Ok(asked), std::net::TcpListener::local_addr)?;
                let link = mux.and_then(|(_, listen)| match &listen.endpoint.host {
                    config::Host::Scoped(link) => Some(link.clone()),
                    config::Host::Name(_) | config::Host::Ip(_) => None,
                });
                Ok(Self { address, link, nth, kind, is_announced, group })
            };
        all.map(move |(place, mux, address, (kind, is_announced))| {
            (place, bind(mux, address, kind, is_announced))
        })
    }

    /// Whether the door accepts visitors of HTTP and of TLS.
    pub const fn admits(&self) -> (bool, bool) {
        match self.kind {
            Opens::Http => (true, false),
            Opens::Tls => (false, true),
            Opens::Everything(_) => (true, true),
        }
    }

    /// The URL in status and log.
    pub fn url(&self) -> String {
        let (scheme, path) = match &self.kind {
            Opens::Http => ("http", None),
            Opens::Tls => ("tls", None),
            Opens::Everything(everything) => ("mux", everything.carriers.path()),
        };
        let path = path.unwrap_or_default();
        match &self.link {
            // The socket has the index of the interface, and users know its name.
            Some(link) => format!("{scheme}://[{link}]:{}{path}", self.address.port()),
            None => format!("{scheme}://{}{path}", self.address),
        }
    }

    /// Opens the door on all workers.
    pub async fn open(
        self,
        handles: &[Handle],
        doors: &Arc<Doors>,
        behind: &Arc<dyn Behind>,
    ) -> anyhow::Result<()> {
        let (address, url) = (self.address, self.url());
        // The same for all doors.
        let _ = doors.behind.set(Arc::downgrade(behind));
        let holder = Holder::new(descriptors::table(), Kind::Unclaimed);
        let is_announced = self.is_announced;
        for (handle, socket) in handles.iter().zip(self.group) {
            let (doors, behind) = (Arc::clone(doors), Arc::clone(behind));
            let (kind, url, holder) = (self.kind.clone(), url.clone(), Arc::clone(&holder));
            let opened = handle.call(move |worker| {
                let port = Port::new(worker, doors, (holder, is_announced.then(|| url.clone())));
                let room = descriptors::room();
                let handler: Rc<dyn Handler> = match kind {
                    Opens::Http => Rc::new(http::HttpPort(port)),
                    Opens::Tls => Rc::new(tls::TlsPort(port)),
                    Opens::Everything(everything) => {
                        let (port, carriers) = MuxPort::new(port, *everything, address, &url, room);
                        behind.accept(worker, carriers);
                        Rc::new(port)
                    }
                };
                let listening = relay::listen(socket, handler, room)?;
                worker.state.of::<DoorsState>().doors.borrow_mut().push(listening);
                io::Result::Ok(())
            });
            opened.await??;
        }
        Ok(())
    }
}

fn target(target: &Target) -> TargetAddr {
    match target {
        Target::Tcp { host, port } => TargetAddr::Tcp { host: host.bare(), port: *port },
        Target::Unix(address) => TargetAddr::Unix(address.clone()),
        // The decoder of the configuration accepts no other default target.
        Target::Udp { .. }
        | Target::Https { .. }
        | Target::H2c { .. }
        | Target::Tls { .. }
        | Target::Socks5
        | Target::HttpProxy
        | Target::Files(_)
        | Target::Redirect(_)
        | Target::Private(_) => TargetAddr::Tcp { host: String::new(), port: 0 },
    }
}

/// Closes all doors, and asks the connections of the HTTP proxy to end. The ports are free when the
/// future completes.
pub async fn close(handles: &[Handle]) {
    for handle in handles {
        // A worker that has stopped has closed its doors.
        let closed = handle.call(|worker| {
            drop::<Vec<Listening>>(worker.state.of::<DoorsState>().doors.take());
            worker.state.of::<DoorsState>().leave();
        });
        let _ = closed.await;
    }
}
