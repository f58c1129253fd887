//! Services by name for the HTTP proxy (`web`): visitors of HTTP/2, visitors whose TLS is
//! terminated here, and services with options.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
#[cfg(feature = "webrtc")]
use std::sync::Weak;
use std::time::Duration;

use bytes::BytesMut;
use net::brake::{Attempt, Judgement};
use net::source::prefix;
use proto::{Budget, Redirect, ResetCode, Sticky};
use relay::{Attended, Seated, Socket};
use termination::{Alpn, TlsIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::Instant;
use web::{
    Account, Asked, Candidate, Checked, Cookies, Found, HeaderMap, Identity, LocalFuture,
    OpenFailed, Place, Protocol, Record, Refusal, Replayed, Rules, Sender, Unavailable, Verdict,
    Visitor, Wants,
};

use super::answer::CHALLENGES;
#[cfg(feature = "webrtc")]
use super::behind::{self, AskedOffer};
use super::doors::Doors;
use super::secure;
use super::state::DoorsState;
use super::upstream::Upstream;
use capture::log::{self, Serving as _};
use node::aim::Aim;
use node::answer::Answer;
use node::backends::Picked;
use node::entrance::Entrance;
use node::names::{Kind, Known as KnownName, Published, Services, Space};
use node::passwords::{Ticket, Turn, passwords};
use node::session::{HOLD, Worker};
use node::{auth_failures, entrance};

/// The name under which a visitor without a server name is looked up. No host has this name, so
/// only a service for all hosts is found.
pub(super) const NAMELESS: &str = "-";

/// The delay of the answer to a wrong password of a visitor without a source.
const WRONG_PASSWORD: Duration = Duration::from_millis(500);

/// The timeout for the check of a password: less than the 60 s after which common reverse proxies
/// abandon a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// The delay after which a source that sends too many requests may send the next one, in seconds:
/// limits are whole requests per second.
const NEXT_REQUEST: u32 = 1;

/// The socket of a visitor.
pub(super) type VisitorSocket = Attended<Seated<TcpStream>>;

/// The byte stream of a visitor. With a single type there is only one instance of the HTTP server
/// in the binary.
pub(super) trait Io: AsyncRead + AsyncWrite {
    /// Makes the close a reset.
    fn reset_on_close(&self);
}

impl Io for VisitorSocket {
    fn reset_on_close(&self) {
        // A socket that rejects the option is broken.
        let _ = net::socket::reset_on_close(self.get_ref());
    }
}

impl<T: Io + Unpin> Io for Replayed<T> {
    fn reset_on_close(&self) {
        self.io().reset_on_close();
    }
}

impl Io for TlsIo<VisitorSocket> {
    fn reset_on_close(&self) {
        self.io().reset_on_close();
    }
}

/// Serves a visitor without TLS, whose bytes `first` were read already.
pub(super) fn serve_plain(
    worker: &Rc<Worker>,
    doors: Arc<Doors>,
    socket: Socket,
    peer: Option<SocketAddr>,
    first: BytesMut,
) {
    let Some(account) = worker.state.accounts.open(first.len() as u64, peer) else {
        return socket.reset_on_close();
    };
    socket.begin_below_layer();
    let Socket::Tcp(socket) = socket else { return };
    let socket = Attended::new(socket, |socket| Some(socket));
    let io: Pin<Box<dyn Io>> = if first.is_empty() {
        Box::pin(socket)
    } else {
        Box::pin(Replayed::new(first.freeze(), socket))
    };
    let (protocol, most_unsent) = (Protocol::Either, 0);
    let way = Way { space: Space::Http, name: None, protocol, most_unsent };
    spawn_local(serve(Rc::clone(worker), doors, io, peer, way, account));
}

/// Serves a visitor whose TLS for `name` is terminated here.
pub(super) fn serve_secure(
    worker: &Rc<Worker>,
    doors: Arc<Doors>,
    io: TlsIo<VisitorSocket>,
    peer: Option<SocketAddr>,
    name: &str,
    account: Rc<Account>,
) {
    let (worker, way) = (Rc::clone(worker), Way::secure(name, io.alpn()));
    // A separate task: a decided connection no longer counts as undecided.
    if way.protocol == Protocol::H1 && name != NAMELESS && doors.carries(name, peer) {
        spawn_local(secure::serve(worker, doors, io, peer, way, account));
    } else {
        spawn_local(serve(worker, doors, Box::pin(io), peer, way, account));
    }
}

/// How a visitor connected.
#[derive(Clone)]
pub(super) struct Way {
    space: Space,
    /// The name in the TLS handshake.
    pub(super) name: Option<String>,
    protocol: Protocol,
    /// The maximum number of bytes that TLS buffers while the visitor does not read.
    most_unsent: u64,
}

impl Way {
    fn secure(name: &str, alpn: Alpn) -> Self {
        let protocol = match alpn {
            Alpn::H2 => Protocol::H2,
            Alpn::Http1 => Protocol::H1,
        };
        let (name, most_unsent) = (Some(name.to_owned()), termination::UNSENT_MOST);
        Self { space: Space::Tls, name, protocol, most_unsent }
    }
}

pub(super) async fn serve(
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    io: Pin<Box<dyn Io>>,
    peer: Option<SocketAddr>,
    Way { space, name, protocol, most_unsent }: Way,
    account: Rc<Account>,
) {
    let visitor = Visitor { address: peer, secure: space == Space::Tls, protocol, most_unsent };
    let stop = {
        let worker = Rc::clone(&worker);
        async move { worker.state.of::<DoorsState>().left().await }
    };
    let site = Site { worker, doors, space, name, peer, known: Rc::default() };
    if let Some(broken) = web::serve(io, visitor, Rc::new(site), account, stop).await {
        broken.reset_on_close();
    }
}

/// The services that one visitor may reach.
#[derive(Clone, Debug)]
struct Site {
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    space: Space,
    name: Option<String>,
    peer: Option<SocketAddr>,
    known: Known,
}

/// The entrance and the source of the last password of a connection, if the password was correct.
type Known = Rc<Cell<Option<(u64, Option<IpAddr>)>>>;

impl web::Services for Site {
    fn settings(&self) -> Arc<web::Settings> {
        Arc::clone(&self.doors.terms.load().web)
    }

    fn trusts(&self) -> bool {
        self.doors.trusts(self.peer)
    }

    fn sender(&self, _: &Visitor, fields: &HeaderMap) -> Sender {
        self.doors.sender(self.peer, fields)
    }

    fn budget_of(&self, sender: Sender) -> Option<Rc<dyn Budget>> {
        Some(Rc::new(self.worker.state.portion.of(sender.address())))
    }

    fn find(&self, asked: &Asked<'_>) -> Found {
        if let Some(proof) = self.proof(asked) {
            return Found::Answer(proof.into());
        }
        let until = Instant::now() + HOLD;
        let elsewhere = self.token_elsewhere(asked);
        if elsewhere.is_none() && !self.doors.names().is_awaited(self.space, asked.host) {
            return self.found(asked, until);
        }
        let (site, host, path) = (self.clone(), asked.host.to_owned(), asked.path.to_owned());
        let Asked { port, sender, is_secure, .. } = *asked;
        Found::Later(Box::pin(async move {
            if let (Some(token), Some(terminator)) = (elsewhere, site.doors.terminator())
                && let Some(proof) = terminator.challenge_token_elsewhere(&host, &token).await
            {
                return Found::Answer(proof.into());
            }
            site.doors.names().wait(site.space, &host).await;
            site.found(&Asked { host: &host, port, path: &path, sender, is_secure }, until)
        }))
    }

    #[cfg(feature = "webrtc")]
    fn own(&self, asked: &Asked<'_>) -> Option<Rc<dyn web::Own>> {
        let path = self.doors.terms.load().offers.clone().filter(|_| self.space == Space::Http)?;
        let place = behind::place(asked.path, &path)?.to_owned();
        // A service owns all paths of its host, even while it is away.
        let (names, host) = (self.doors.names(), asked.host);
        let is_of_service = names.without_tls(host).next().is_some()
            || names.is_awaited(Space::Http, host)
            || names.away_without_tls(host).is_some()
            || names.find(Space::Tls, host).is_some();
        let behind = self.doors.behind.get().and_then(Weak::upgrade)?;
        (!is_of_service).then(|| {
            let Asked { sender, is_secure, .. } = *asked;
            behind.offers(&self.worker, AskedOffer { path, place, sender, is_secure })
        })
    }

    fn wants(&self) -> Option<Wants> {
        log::wants()
    }

    fn answered(&self, record: &Record) {
        log::write(record, None);
    }

    fn covers(&self, host: &str) -> bool {
        self.name.as_deref().is_none_or(|name| name == host || name == NAMELESS)
    }
}

impl Site {
    /// The proof for an authority that checks the host by http-01 (RFC 8555 section 8.3), which
    /// takes precedence.
    fn proof(&self, asked: &Asked<'_>) -> Option<String> {
        let token = asked.path.strip_prefix(CHALLENGES).filter(|_| self.space == Space::Http)?;
        self.doors.terminator()?.challenge_token(asked.host, token)
    }

    /// The token of a check of a name that another node of the cluster may order.
    fn token_elsewhere(&self, asked: &Asked<'_>) -> Option<String> {
        let token = asked.path.strip_prefix(CHALLENGES).filter(|_| self.space == Space::Http)?;
        let may_be = self.doors.terminator()?.may_answer_elsewhere(asked.host, token);
        may_be.then(|| token.to_owned())
    }

    fn found(&self, asked: &Asked<'_>, until: Instant) -> Found {
        let names = self.doors.names();
        let takes = |one: &&Published| {
            one.path.as_ref().is_none_or(|prefix| web::is_below(prefix, asked.path))
        };
        // The longest path comes first.
        let of_path = |all: Option<&Services>| all?.iter().find(takes).cloned();
        if self.space == Space::Tls {
            let services = names.find(Space::Tls, asked.host);
            return match of_path(services.as_ref()) {
                Some(found) => self.service(&found, asked.sender, until),
                None if services.is_some() => Found::Unknown,
                None => self.away(names.away(Space::Tls, asked.host), asked.path),
            };
        }
        for (http, https) in names.without_tls(asked.host) {
            if let Some(found) = of_path(http.as_ref()) {
                return self.service(&found, asked.sender, until);
            }
            match of_path(https.as_ref()) {
                // A trusted reverse proxy has terminated the TLS: a redirect would loop.
                Some(found) if asked.is_secure => {
                    return self.service(&found, asked.sender, until);
                }
                Some(found) if self.doors.redirects(&found) => {
                    return self.to_https(&found, asked, until);
                }
                Some(_) | None if http.is_some() => return Found::Unknown,
                Some(_) | None => {}
            }
        }
        self.away(names.away_without_tls(asked.host), asked.path)
    }

    /// Redirects a visitor over HTTP to the `https://` name of a service that the visitor may
    /// visit.
    fn to_https(&self, found: &Published, asked: &Asked<'_>, until: Instant) -> Found {
        let visited = self.service(found, asked.sender, until);
        if !matches!(visited, Found::Service(_)) {
            return visited;
        }
        let port = self.doors.hosts.https_port(asked.port);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let address = Redirect::new(&format!("https://{{host}}{port}{{uri}}"));
        address.map_or(Found::Unknown, Found::Redirect)
    }

    /// The service for a visitor that may visit it.
    fn service(&self, found: &Published, sender: Sender, until: Instant) -> Found {
        if found.kind == Kind::Tls {
            return misdirected();
        }
        if let Some(why) = unavailable(&self.doors, &found.entrance) {
            return Found::Unavailable(why);
        }
        let edition = found.entrance.backends.edition();
        let aim = Arc::clone(found.entrance.in_force().aim());
        if !aim.permits_sender(sender) {
            tracing::debug!(service = aim.name, visitor = ?sender, "the visitor is turned away");
            if let Some(settings) = entrance::settings_of(&self.worker, &found.entrance) {
                settings.stats.count_barred();
            }
            let (status, reason) = Answer::Forbidden.status();
            return Found::Refused(Refusal { status, reason: reason.into() });
        }
        let Some(rules) = aim.rules.clone() else {
            return Found::Unknown;
        };
        let is_sticky = aim.terms.http.sticky != Sticky::Off;
        let path = found.path.as_deref().unwrap_or("/");
        let cookies = is_sticky.then(|| Cookies::new(&self.doors.sticky, path));
        let (site, entrance) = (self.clone(), Arc::clone(&found.entrance));
        Found::Service(Rc::new(Service {
            site,
            sender,
            entrance,
            edition,
            aim,
            rules,
            until,
            picked: Rc::default(),
            ticket: Cell::default(),
            cookies,
        }))
    }
}

impl Site {
    /// The answer for a host that no service has: the host may be known while its client is away.
    fn away(&self, known: Option<Arc<KnownName>>, path: &str) -> Found {
        let Some(known) = known.filter(|known| known.takes(path)) else { return Found::Unknown };
        if known.kind == Kind::Tls {
            return misdirected();
        }
        self.doors.unavailable(&known.client, true).map_or(Found::Unknown, Found::Unavailable)
    }
}

/// The answer instead of a service whose client is on hold or away.
fn unavailable(doors: &Doors, entrance: &Entrance) -> Option<Unavailable> {
    doors.all_unavailable(&entrance.backends)
}

/// The TLS of the visitor is terminated here, or there is none. A service whose TLS ends at the
/// target cannot serve the request; a new connection reaches the service (RFC 9110 section
/// 15.5.20).
fn misdirected() -> Found {
    let reason = "The service of this host is reached over a new connection only.";
    Found::Refused(Refusal { status: 421, reason: reason.into() })
}

/// A service of one visitor.
struct Service {
    site: Site,
    sender: Sender,
    entrance: Arc<Entrance>,
    /// The edition of the backends against which the request was checked.
    edition: u64,
    aim: Arc<Aim>,
    rules: Arc<Rules>,
    /// The time until which a request may be held.
    until: Instant,
    /// The backend that serves the request, if it is known on this worker.
    picked: Rc<RefCell<Option<Arc<Picked>>>>,
    /// The slot of a password check, until the visitor may learn the outcome.
    ticket: Cell<Option<Ticket>>,
    /// The session affinity cookies.
    cookies: Option<Cookies>,
}

impl web::Service for Service {
    fn identity(&self) -> Identity {
        Identity { edition: self.edition, visitor: self.sender.address(), place: None }
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn excess(&self) -> Option<u32> {
        let most = self.aim.terms.http.requests_per_second?;
        if self.entrance.in_force().gate().admit_request(self.source()?, most) {
            return None;
        }
        tracing::debug!(service = self.aim.name, visitor = ?self.sender, "too many requests");
        if let Some(settings) = entrance::settings_of(&self.site.worker, &self.entrance) {
            settings.stats.count_refused(ResetCode::Limit);
        }
        Some(NEXT_REQUEST)
    }

    fn check(&self, candidate: Candidate) -> Checked {
        let source = self.source().map(prefix);
        let (service, edition) = (self.entrance.id, self.edition);
        let budget = self.site.worker.state.budget.shared();
        let refused = |status, reason: &'static str| {
            let refusal = Refusal { status, reason: reason.into() };
            Checked::Later(Box::pin(std::future::ready(Err(refusal))))
        };
        match passwords().ask(service, edition, source, candidate, budget) {
            Turn::Right => Checked::Now(true),
            Turn::Later(outcome, ticket) => {
                self.ticket.set(Some(ticket));
                Checked::Later(Box::pin(async {
                    let reason = "The server has no memory left to check a password.";
                    outcome.await.map_err(|_| Refusal { status: 503, reason: reason.into() })
                }))
            }
            Turn::SourceBusy => refused(
                429,
                "Too many passwords from your address wait for their check: try again in a moment.",
            ),
            Turn::Busy => {
                refused(503, "Too many passwords wait for their check: try again in a moment.")
            }
        }
    }

    fn judge(&self, is_right: bool) -> Option<LocalFuture<Verdict>> {
        // The next check of the source may begin once the outcome of this one is reported.
        let ticket = self.ticket.take();
        let (source, brake, known) = (self.source(), auth_failures::brake(), &self.site.known);
        let me = Some((self.entrance.id, source.map(prefix)));
        if is_right && (source.is_none() || brake.is_idle()) {
            known.set(me);
            return None;
        }
        let is_known = known.get() == me;
        if is_known && !is_right {
            // Before the answer, because many requests may wait for their answers at the same time.
            known.set(None);
        }
        let (known, visitor) = (Rc::clone(known), self.sender);
        let picked = self.entrance.backends.accountable();
        let service = format!("service {} of client {}", picked.aim.name, picked.client);
        let stats = entrance::stats_of(&self.site.worker, &self.entrance, &picked);
        Some(Box::pin(async move {
            let _ticket = ticket;
            let outcome = match source {
                Some(source) => {
                    let (service, source) = (service.as_str(), &source.into());
                    let attempt = Attempt { service, source, is_right, is_known };
                    brake.judge(attempt, PATIENCE).await
                }
                None => {
                    tokio::time::sleep(WRONG_PASSWORD).await;
                    Judgement::Wrong
                }
            };
            match outcome {
                Judgement::Right => known.set(me),
                Judgement::Wrong => {
                    stats.iter().for_each(|stats| stats.count_wrong_password());
                    tracing::debug!(service, ?visitor, "a visitor gave a wrong user or password");
                }
                Judgement::Busy => return Verdict::Busy,
            }
            Verdict::Judged
        }))
    }

    fn away(&self) -> Option<Unavailable> {
        unavailable(&self.site.doors, &self.entrance)
    }

    fn answered(&self, record: &Record) {
        let picked = self.picked.borrow().clone();
        let picked = picked.unwrap_or_else(|| self.entrance.backends.accountable());
        let stats = entrance::stats_of(&self.site.worker, &self.entrance, &picked);
        log::note(record, stats.as_deref(), picked.names());
    }

    fn cookies(&self) -> Option<&Cookies> {
        self.cookies.as_ref()
    }

    fn open(&self, place: Option<Place>) -> LocalFuture<Result<Box<dyn web::Stream>, OpenFailed>> {
        let Self { site, sender, entrance, aim, until, picked, cookies, .. } = self;
        let upstream = Upstream {
            worker: Rc::clone(&site.worker),
            entrance: Arc::clone(entrance),
            aim: Arc::clone(aim),
            peer: sender.address(),
            until: *until,
            picked: Rc::clone(picked),
            stays: cookies.is_some().then_some(place),
        };
        Box::pin(std::future::ready(upstream.open_first()))
    }
}

impl Service {
    /// The source whose requests and guesses are limited. `None`: a proxy reports no visitor, and
    /// there is no limit.
    fn source(&self) -> Option<IpAddr> {
        match self.sender {
            Sender::Known(address) => Some(address.ip()),
            Sender::Proxy(_) | Sender::Nameless | Sender::Hidden => None,
            // The visitor has added a field to those of the proxy. All such requests share a
            // source, because a forged field would evade every limit, or apply it to another
            // visitor.
            Sender::Disputed => self.site.peer.map(|peer| peer.ip()),
        }
    }
}
