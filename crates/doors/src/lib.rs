//! Doors: public ports that all clients share. The first bytes of a visitor name the host, and the
//! host leads to an entrance.
//!
//! ```text
//!   http door ── head of a request ──┐
//!   tls door ─── ClientHello ────────┼── Names ──> entrance ──> stream of a client
//!   mux door ─── either of them ─────┘     │
//!       │                                  ├─ https: TLS ends here, then `web`
//!       ├─ carrier of a client             └─ nobody: a page, or an alert
//!       └─ default target
//! ```
//!
//! A door only looks at the first bytes and leaves them in the socket ([`relay::look`]), so an
//! undecided connection costs no buffer, and whoever takes the connection reads it from its begin.
//! Undecided connections are bounded in time (`PATIENCE`), in bytes ([`relay::LOOK_MAX`]) and in
//! number (`UNDECIDED` per door and worker; the oldest of the source with the most leaves).
//!
//! | module | content |
//! |---|---|
//! | `http` | HTTP by name: the byte path, and the connections that come back from it |
//! | `tls` | TLS by name: passed through, or ended here |
//! | `mux` | one port for carriers, TLS, HTTP and a default target |
//! | `secure` | visitors whose TLS ended here, on the byte path |
//! | `site` | services by name as `web` sees them |
//! | `upstream` | streams for the requests that `web` sends to a service |
//! | `hosts` | the names that clients publish |
//! | `remembered` | the names that are known while their clients are away |
//! | `holds` | clients whose names answer with a maintenance page |
//! | `certificates` | the settings of TLS that ends here |
//! | `answer` | the answers of the server itself |
//! | `behind` | what the server takes that is behind the doors: carriers, requests about WebRTC |
//! | `state` | the doors of one worker |

mod answer;
mod behind;
pub mod certificates;
pub mod holds;
pub mod hosts;
mod http;
mod mux;
pub mod remembered;
mod secure;
mod site;
mod state;
mod tls;
mod upstream;

pub use mux::Everything;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use config::{Listen, Net, ServerConfig, Target};
use files::secret::Secret;
use net::forwarded::{self, ForwardedClient};
use proto::{ScopedAddr, VisitorFields};
use relay::shares::Kind;
use relay::{Gate, Handler, Held, Holder, Listening, Socket, TargetAddr};
use termination::{Prepared, Terminator};
use tokio::time::Instant;
use web::{HeaderMap, HeaderValue, Sender, StickyKey};

use crate::hosts::Hosts;
#[cfg(feature = "webrtc")]
pub use behind::AskedOffer;
pub use behind::Behind;
use families::{ServerSide, Unbound, listen_address};
use mux::MuxPort;
use node::entrance::Unannounced;
use node::names::Services;
use node::session::{Handle, Worker};
use node::undecided::UndecidedSet;
use node::{descriptors, entrance, memory, names};
use state::DoorsState;

/// The time until the first bytes of a visitor must say where it goes. nginx allows 60 s, Apache 20
/// s; a browser sends its head at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Undecided connections of one door on one worker.
const UNDECIDED: usize = 4096;

/// What an undecided connection costs this process: its socket, its task and the state of the look.
const UNDECIDED_STATE: u64 = 4 << 10;

/// The kernel keeps at most this number of bytes of an undecided connection for a look.
const UNDECIDED_COST: u64 = 16 << 10;

/// What all doors of a server share.
#[derive(Debug)]
pub struct Doors {
    hosts: Arc<Hosts>,
    terms: ArcSwap<Terms>,
    /// The key of the cookies by which visitors stay.
    sticky: StickyKey,
    /// Known once the doors are open.
    behind: OnceLock<Weak<dyn Behind>>,
}

/// The settings of doors that a reload replaces.
#[derive(Debug)]
struct Terms {
    /// The settings of the HTTP proxy, with the pages and the field that names the host.
    web: Arc<web::Settings>,
    route_header: Option<Arc<str>>,
    /// Reverse proxies, whose connections may carry requests of many visitors.
    trusted: Vec<Net>,
    /// Visitors over HTTP are sent to `https://` names.
    redirects: bool,
    /// The path of offers of WebRTC at hosts that no service has.
    offers: Option<Arc<str>>,
}

impl Doors {
    pub fn new(
        hosts: Arc<Hosts>,
        config: &ServerConfig,
        state: Option<&Path>,
    ) -> anyhow::Result<Arc<Self>> {
        let sticky = sticky_key(state)?;
        let terms = Terms::read(config)?;
        descriptors::trust(&terms.trusted);
        let terms = ArcSwap::from_pointee(terms);
        Ok(Arc::new(Self { hosts, terms, sticky, behind: OnceLock::new() }))
    }

    /// Prepares the settings of a new configuration. Calling the result puts them in force.
    pub fn renewal(
        self: &Arc<Self>,
        config: &ServerConfig,
        state: Option<&Path>,
    ) -> anyhow::Result<impl FnOnce() + use<>> {
        let (doors, terms) = (Arc::clone(self), Terms::read(config)?);
        let (domain, browser) = (config.http.domain.clone(), config.http.browser);
        let redirects = !config.http.no_redirect;
        let settings = certificates::settings(config, state);
        let terminator = self.terminator().map(|terminator| terminator.reload(&settings));
        let prepared = terminator.transpose()?;
        Ok(move || {
            descriptors::trust(&terms.trusted);
            doors.terms.store(Arc::new(terms));
            doors.hosts.set_domain(domain.as_deref());
            doors.hosts.set_browser(browser);
            doors.hosts.set_redirects(redirects);
            doors.names().note_change();
            prepared.into_iter().for_each(Prepared::apply);
        })
    }

    fn names(&self) -> &names::Names {
        &self.hosts.names
    }

    /// Ends TLS for `https://` names; `None` without a door for TLS.
    fn terminator(&self) -> Option<&Arc<Terminator>> {
        self.hosts.terminator()
    }

    /// The visitor that sent a request with these fields over a connection of `peer`: `peer`
    /// itself, or the visitor that it names if it is a reverse proxy of ours. Lists, the bound of
    /// guesses, log, status and the PROXY protocol use this address.
    fn sender(&self, peer: Option<SocketAddr>, fields: &HeaderMap) -> Sender {
        self.terms.load().sender(peer, fields)
    }

    fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        peer.is_some_and(|peer| self.terms.load().trust(peer.ip()))
    }
}

impl Terms {
    fn read(config: &ServerConfig) -> anyhow::Result<Self> {
        let route_header = config.http.route_header.as_deref();
        Ok(Self {
            web: Arc::new(answer::settings(config)?),
            route_header: route_header.map(Arc::from),
            trusted: config.trusted_proxies.clone(),
            redirects: !config.http.no_redirect,
            offers: offers(config),
        })
    }

    fn trust(&self, ip: IpAddr) -> bool {
        // An IPv4 proxy at a dual-stack door is an IPv4 proxy.
        let ip = ip.to_canonical();
        self.trusted.iter().any(|net| net.contains(ip))
    }

    fn sender(&self, peer: Option<SocketAddr>, fields: &HeaderMap) -> Sender {
        let Some(peer) = peer else { return Sender::Nameless };
        if !self.trust(peer.ip()) {
            return Sender::Known(peer);
        }
        let values = |name| fields.get_all(name).iter().map(HeaderValue::as_bytes);
        match forwarded::client(values, |ip| self.trust(ip)) {
            ForwardedClient::Client(client) => Sender::Known(client),
            ForwardedClient::Ours(farthest) => Sender::Proxy(farthest.unwrap_or(peer)),
            ForwardedClient::Hidden => Sender::Hidden,
            ForwardedClient::Disputed => Sender::Disputed,
        }
    }
}

/// The key of the cookies by which visitors stay: the same in the next process.
fn sticky_key(state: Option<&Path>) -> anyhow::Result<StickyKey> {
    const KEPT: Secret = Secret {
        file: "sticky.keys",
        title: "tunnel sticky keys 1",
        meaning: "keys for cookies that this version can read; a newer version may have made them. \
                  Without the file new ones are made, and visitors may get another target",
    };
    let known = state.map(|state| KEPT.of(state)).transpose();
    match known {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Ok(Secret::random()?),
        Err(error) => {
            tracing::warn!("{error}; cookies of `sticky` hold until this process ends");
            Ok(Secret::random()?)
        }
    }
}

/// The path of offers of WebRTC. A server whose clients all have to show a certificate takes none,
/// because a door knows no certificate.
fn offers(config: &ServerConfig) -> Option<Arc<str>> {
    let has_exempt = config.listen.iter().any(|at| config.is_exempt(at));
    let webrtc = config.webrtc.as_ref().filter(|_| cfg!(feature = "webrtc") && has_exempt)?;
    Some(Arc::from(webrtc.path.as_str()))
}

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
    /// The place of a `mux://` door in `listen`.
    pub nth: Option<usize>,
    kind: Opens,
    /// Connections of trusted reverse proxies begin with a header of the PROXY protocol.
    is_announced: bool,
    group: Vec<std::net::TcpListener>,
}

/// The place of a listener in the configuration of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The nth of `listen`.
    Listen(usize),
    /// Of `http.listen`.
    Http(SocketAddr),
    /// Of `tls_routes.listen`.
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
                let group =
                    net::listen_group(asked, workers).map_err(|e| Unbound::new(&asked, &e))?;
                mux.map_or(Ok(()), |(_, listen)| families::mark(&group, listen))?;
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

    /// Whether visitors of HTTP and of TLS come here.
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
            // The socket knows the number of the interface, and people its name.
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
        // The decoder of the configuration takes no other default target.
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
/// future is ready.
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

/// A door on one worker.
struct Port {
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    undecided: UndecidedSet,
    most: usize,
    /// Whose descriptors the undecided connections of the door are, on all workers.
    holder: Arc<Holder>,
    /// The URL of the door, if connections of trusted reverse proxies begin with a header of the
    /// PROXY protocol.
    announced_at: Option<String>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port on worker {}", self.worker.index)
    }
}

impl Port {
    fn new(
        worker: &Rc<Worker>,
        doors: Arc<Doors>,
        (holder, announced_at): (Arc<Holder>, Option<String>),
    ) -> Self {
        let most = memory::strangers(&worker.state.budget, worker.peers.len(), UNDECIDED_COST);
        let (worker, most) = (Rc::clone(worker), most.min(UNDECIDED));
        Self { worker, doors, undecided: UndecidedSet::default(), most, holder, announced_at }
    }

    /// Takes an accepted connection, and runs the decision about it, after the header of a load
    /// balancer where there is one. When too many connections are undecided, one is closed.
    fn take<F: Future<Output = ()>>(
        &self,
        socket: Socket,
        peer: Option<SocketAddr>,
        decide: impl FnOnce(Undecided) -> F + 'static,
    ) {
        let Some(mut visitor) = self.visitor(socket, peer) else { return };
        let is_trusted = self.doors.trusts(peer);
        let source = peer.filter(|_| !is_trusted).map(|peer| peer.ip());
        let door = self.announced_at.clone().filter(|_| is_trusted);
        self.undecided.run(source, async move |mut place| {
            if let Some(door) = door {
                match entrance::announced(&mut visitor.socket, peer).await {
                    Ok((header, known)) => {
                        (visitor.peer, visitor.fields) =
                            (known, VisitorFields::new(&header.fields));
                    }
                    Err(Unannounced::Header(error)) => {
                        error.complain(peer, &door);
                        return relay::drop_socket(visitor.socket);
                    }
                    Err(Unannounced::Full(_)) => return relay::drop_socket(visitor.socket),
                }
                if let Some(known) = visitor.peer.filter(|_| !visitor.doors.trusts(visitor.peer)) {
                    place.belongs_to(known.ip());
                }
            }
            decide(visitor).await;
            drop(place);
        });
        if self.undecided.count() > self.most {
            self.undecided.abort_one();
        }
    }

    /// An accepted connection, which is charged to the budget and has a seat among the undecided
    /// connections of the door. When these have their share of the descriptors, a connection of this
    /// worker leaves for the new connection; a worker with fewer than two takes the new connection
    /// beyond the share. The new connection is refused if its source has its share of the descriptors,
    /// or if the budget has too little left.
    fn visitor(&self, mut socket: Socket, peer: Option<SocketAddr>) -> Option<Undecided> {
        let leaves = !self.holder.has_room() && self.undecided.gives_way();
        let seat = if leaves {
            self.holder.seat(&socket, descriptors::source(peer))
        } else {
            entrance::seat(&self.holder, &socket, peer)
        };
        let Some(seat) = seat else {
            tracing::debug!(visitor = ?peer, "no descriptor is left for a connection at a door");
            relay::drop_socket(socket);
            return None;
        };
        socket.sit(seat);
        let (worker, doors) = (Rc::clone(&self.worker), Arc::clone(&self.doors));
        let Some(_held) = worker.state.accounts.draw(UNDECIDED_STATE, peer) else {
            relay::drop_socket(socket);
            return None;
        };
        Some(Undecided { worker, doors, socket, peer, fields: None, until: None, _held })
    }
}

/// Moves the seat of a visitor to the client of these services, for a visitor whose requests go to
/// them. False: the client has its share of the descriptors; the refusal is counted by nobody,
/// because no service of the client was asked.
fn takes(services: &Services, socket: &mut Socket) -> bool {
    let backend = services.first().map(|first| first.entrance.backends.first());
    backend
        .as_ref()
        .and_then(|backend| backend.gate.holder())
        .is_none_or(|holder| socket.move_to(holder))
}

/// Whose descriptors the connections are that are decided and go to no client, or to several: those
/// to default targets, and HTTP/2 without TLS.
fn settled_holder() -> &'static Arc<Holder> {
    static HOLDER: OnceLock<Arc<Holder>> = OnceLock::new();
    HOLDER.get_or_init(|| Holder::new(descriptors::table(), Kind::Unclaimed))
}

/// A connection that is not decided.
struct Undecided {
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    socket: Socket,
    peer: Option<SocketAddr>,
    /// What a load balancer tells of the visitor.
    fields: Option<VisitorFields>,
    /// The time until which the visitor may be held, if it was held already.
    until: Option<Instant>,
    _held: Held,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(peer: &str, list: &[(&'static str, &str)]) -> Sender {
        let trusted = vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        let (web, route_header, redirects) = (Arc::default(), None, true);
        let terms = Terms { web, route_header, trusted, redirects, offers: None };
        let mut fields = HeaderMap::new();
        for (name, value) in list {
            fields.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        terms.sender(Some(peer.parse().unwrap()), &fields)
    }

    #[test]
    fn only_a_trusted_proxy_names_another_visitor() {
        let known = |address: &str| Sender::Known(address.parse().unwrap());
        let claims = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-real-ip", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
        ];
        assert_eq!(sender("192.0.2.7:1000", &claims), known("192.0.2.7:1000"));
        for proxy in ["10.1.2.3:80", "[::1]:80", "[::ffff:10.1.2.3]:80"] {
            assert_eq!(sender(proxy, &claims), known("203.0.113.9:0"), "{proxy}");
            for claim in claims {
                assert_eq!(sender(proxy, &[claim]), known("203.0.113.9:0"), "{proxy} {claim:?}");
            }
        }
        let list = [("x-forwarded-for", "198.51.100.1, 203.0.113.9, 10.0.0.7")];
        assert_eq!(sender("10.1.2.3:80", &list), known("203.0.113.9:0"));
    }

    #[test]
    fn a_proxy_that_names_nobody_else_is_the_visitor_itself() {
        let proxy = |address: &str| Sender::Proxy(address.parse().unwrap());
        assert_eq!(sender("10.1.2.3:80", &[]), proxy("10.1.2.3:80"));
        let inner = [("x-forwarded-for", "10.0.0.9, 10.0.0.7")];
        assert_eq!(sender("10.1.2.3:80", &inner), proxy("10.0.0.9:0"));
    }

    #[test]
    fn what_is_no_address_and_what_is_contradicted_is_nobodys_address() {
        for value in ["unknown", "203.0.113.9, _x", "203.0.113.9.1", "", "\u{fc}"] {
            let told = sender("10.1.2.3:80", &[("x-forwarded-for", value)]);
            assert_eq!(told, Sender::Hidden, "{value}");
        }
        let two = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.10")];
        assert_eq!(sender("10.1.2.3:80", &two), Sender::Disputed);
        for sender in [Sender::Hidden, Sender::Disputed, Sender::Nameless] {
            assert_eq!(sender.address(), None);
        }
    }
}
