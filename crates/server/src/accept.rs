//! Accepts carriers for the server: each connection is logged in by `link::server`, and its carrier
//! is handed to the worker that the registry chooses. Connections before their log-in are
//! [`Unauthenticated`](node::unauthenticated).

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use link::server::{Greeted, LogInError, OtherEnd, Placement, accept, log_in, log_in_passed};
use link::{GreetError, Link};
use logging::AUDIT;
use net::handover;
use net::source::prefix;
use ops::events::Changed;
use ops::status::LinkState;
use ops::term;
use proto::greeting::{Features, NONCE_LENGTH, Refusal};
use tokio::task::spawn_local;
use tokio::time::sleep;
use tracing::field::display;
use transport::{Carrier, CarrierError, Incoming, Listener, Peer};

use super::auth::Auth;
use super::brake::{Kind, Outcome};
use super::clients::Denied;
use super::owner;
use super::registry::Registry;
#[cfg(feature = "webrtc")]
use doors::AskedOffer;
use doors::Behind;
use node::pending::PendingGuard;
use node::session::{Session, Worker};
use node::unauthenticated::Unauthenticated;

/// How long a UDP listener keeps accepting after a handover. A client that has received the first
/// response continues with this process, and links that begin here are asked to move.
const LATE: Duration = Duration::from_secs(5);

/// Accepts connections from `listener` on this worker while the worker runs.
pub(super) fn start(worker: &Rc<Worker>, registry: Arc<Registry>, listener: Box<dyn Listener>) {
    let here = Rc::clone(worker);
    let strangers = Unauthenticated::new(worker, listener.transport(), move |incoming, place| {
        welcome(Rc::clone(&here), Arc::clone(&registry), incoming, place)
    });
    // After a handover, the packets of a UDP handshake in progress still reach this process.
    let lasts = if listener.transport().stays() { LATE } else { Duration::ZERO };
    spawn_local(async move {
        handover::serving().await;
        let handed_over = async {
            handover::handed_over().await;
            sleep(lasts).await;
        };
        tokio::select! {
            () = accept(listener, &strangers) => {}
            () = handed_over => {}
        }
    });
}

impl Behind for Registry {
    fn accept(self: Arc<Self>, worker: &Rc<Worker>, listener: Box<dyn Listener>) {
        start(worker, self, listener);
    }

    #[cfg(feature = "webrtc")]
    fn offers(self: Arc<Self>, worker: &Rc<Worker>, asked: AskedOffer) -> Rc<dyn web::Own> {
        super::offers::door::takes(worker, self, asked)
    }
}

/// Logs a connection in, or logs why that failed.
async fn welcome(
    worker: Rc<Worker>,
    registry: Arc<Registry>,
    incoming: Box<dyn Incoming>,
    place: PendingGuard,
) {
    let (remote, auth) = (incoming.remote(), Auth::new(&registry, worker.index));
    let is_proxied = incoming.source().is_none();
    let place = Some(RefCell::new(place));
    let arrival =
        Arrival { worker: &worker, registry: &registry, auth: &auth, remote, is_proxied, place };
    match log_in(incoming, &auth, &arrival).await {
        Ok(()) => {}
        // A visitor of the page is not a client.
        Err(LogInError::Handshake(CarrierError::Served)) => {}
        #[cfg(feature = "webrtc")]
        Err(LogInError::Handshake(CarrierError::Offer(request))) => {
            super::offers::serve(&worker, &registry, *request).await;
        }
        Err(error) => fail(&registry, &auth, remote, error),
    }
}

/// Logs a connection in whose greeting another node has begun with this nonce, because the client
/// reached that node.
pub(super) async fn welcome_passed(
    worker: &Rc<Worker>,
    registry: &Arc<Registry>,
    carrier: Carrier,
    nonce: [u8; NONCE_LENGTH],
) {
    let (remote, auth) = (carrier.peer.address, Auth::new(registry, worker.index));
    let (is_proxied, place) = (false, None);
    let arrival = Arrival { worker, registry, auth: &auth, remote, is_proxied, place };
    if let Err(error) = log_in_passed(carrier, nonce, &auth, &arrival).await {
        fail(registry, &auth, remote, error);
    }
}

/// Counts and logs a failed log-in.
fn fail(registry: &Registry, auth: &Auth<'_>, remote: SocketAddr, error: LogInError) {
    let why = match error {
        LogInError::Handshake(error) => error.into(),
        LogInError::Greeting(error) => error.into(),
        LogInError::LinkGone => anyhow::Error::from(error),
    };
    registry.brake().count(Outcome::Failed(&why));
    complain(registry, auth, remote, &why);
}

/// A connection that is not attached to its link yet.
struct Arrival<'a> {
    worker: &'a Rc<Worker>,
    registry: &'a Arc<Registry>,
    auth: &'a Auth<'a>,
    remote: SocketAddr,
    is_proxied: bool,
    /// `None`: another node has counted the connection.
    place: Option<RefCell<PendingGuard>>,
}

impl Placement for Arrival<'_> {
    fn handshake_done(&self, peer: &Peer) {
        if let Some(place) = self.place.as_ref().filter(|_| self.is_proxied)
            && peer.address != self.remote
        {
            place.borrow_mut().belongs_to(peer.address.ip());
        }
        self.auth.note_peer(peer);
    }

    fn enrolled(&self) {
        self.registry.brake().count(Outcome::Enrolled);
    }

    fn place(&self, mut greeted: Greeted) -> bool {
        let Some(placed) = self.registry.place(&greeted, self.worker.index) else { return false };
        if let Err(error) = greeted.detach() {
            lose(self.registry, placed.serial, &greeted, &error);
            return true;
        }
        let (registry, epoch) = (Arc::clone(self.registry), self.auth.epoch());
        let Some(handle) = self.worker.peers.get(placed.worker).cloned() else { return true };
        // In a separate task: the client has logged in, so the limits of waiting connections must
        // not abort it.
        spawn_local(async move {
            // A worker that has stopped has no links.
            let _ = handle
                .run(move |worker| arrive(worker, &registry, placed.serial, epoch, greeted))
                .await;
        });
        true
    }

    fn pass_on(&self, carrier: Carrier, other: OtherEnd) {
        let registry = Arc::clone(self.registry);
        // In a separate task, as above: the client is authenticated, and the other node has its
        // link.
        spawn_local(async move { registry.shared().strays.carry(carrier, other).await });
    }
}

/// Handles a carrier that did not reach its worker. If the carrier was to begin a link, there is no
/// link. The link's entry is removed, so that the client learns of this at its next attempt.
fn lose(registry: &Arc<Registry>, serial: u64, greeted: &Greeted, error: &io::Error) {
    let (name, source) = (greeted.grant.name.as_str(), greeted.carrier.peer.address.ip());
    let why = anyhow::anyhow!("its connection was lost on the way to its worker: {error}");
    registry.brake().count(Outcome::Failed(&why));
    if registry.brake().tell(name, source, Kind::of(&why), Instant::now()).is_some() {
        tracing::warn!(client = name, link = serial, "client {name} is not connected: {why}");
    }
    if greeted.grant.attach.is_none() {
        let registry = Arc::clone(registry);
        spawn_local(async move { registry.link_ended(serial).await });
    }
}

/// Logs a failed log-in once and suppresses its repetitions.
fn complain(registry: &Registry, auth: &Auth<'_>, remote: SocketAddr, why: &anyhow::Error) {
    // The failure counts against the client, and not against the reverse proxy in front of it.
    let announced = match why.downcast_ref() {
        Some(CarrierError::Stranger { client, .. }) => *client,
        _ => auth.address(),
    };
    let remote = announced.unwrap_or(remote);
    let name = auth.claimed().unwrap_or_default();
    let reason = reason(registry, auth, &name, why);
    // A restart of the server has ended the link, and the client logs in again at once.
    let greeting = why.downcast_ref::<GreetError>();
    let is_of_former = greeting.and_then(GreetError::refusal) == Some(Refusal::UnknownLink);
    if !name.is_empty() && !is_of_former {
        let text = reason.map_or_else(|| why.to_string(), str::to_owned);
        registry.note_refusal(&name, remote, &text);
    }
    let kind = Kind::of(why).because(reason);
    let lines = registry.brake().tell(&name, remote.ip(), kind, Instant::now());
    let Some(suppressed) = lines else { return };
    let who = match auth.certificate() {
        _ if !name.is_empty() => format!("client `{name}` "),
        Some(shown) if shown.is_empty() => "a client with a certificate without a name ".to_owned(),
        Some(shown) => format!("a client with the certificate of {shown:?} "),
        None => String::new(),
    };
    let why = reason.map_or_else(|| why.to_string(), str::to_owned);
    // The lines of a source are counted by the log, see `logging::quota`.
    let (source, remote) = (prefix(remote.ip()), term::address(remote));
    let refusal = || Changed::Refusal { source: source.to_string(), reason: format!("{who}{why}") };
    registry.shared().events.tell(refusal);
    if suppressed == 0 {
        tracing::warn!(target: AUDIT, %source, "{who}from {remote} did not log in: {why}");
    } else {
        let more = term::count(suppressed, "time");
        tracing::warn!(target: AUDIT, %source, "{who}from {remote} did not log in ({more} more): {why}");
    }
}

/// The reason of a refused credential or of a full table, for the log. The client gets fewer
/// details: it cannot distinguish an unknown name from a wrong token. `None`: the failure has
/// another cause.
fn reason(
    registry: &Registry,
    auth: &Auth<'_>,
    name: &str,
    why: &anyhow::Error,
) -> Option<&'static str> {
    let greeting = why.downcast_ref::<GreetError>();
    let (clients, is_cut) =
        (&registry.shared().clients, matches!(greeting, Some(GreetError::Io(_))));
    if is_cut && !name.is_empty() && clients.may_be_any() && clients.find(name).is_none() {
        return Some(
            "no entry under `clients` has this name, and it does not introduce itself: `introduce: true`",
        );
    }
    if let Some(reason) = auth.denied().and_then(Denied::reason) {
        return Some(reason);
    }
    let refusal = greeting.and_then(GreetError::refusal);
    if refusal != Some(Refusal::BadCredential) {
        return None;
    }
    if name.is_empty() {
        // A log-in by a certificate is refused before its name is looked up.
        return Some(
            "it has no token, and this listener asked for no certificate: it needs a token here, or \
             a listener of tls://, quic:// or kcp:// that asks for certificates",
        );
    }
    if auth.brought_a_code() {
        return Some("its code is not good (any more): it lasts ten minutes and works once");
    }
    let Some(client) = registry.shared().clients.find(name) else {
        return Some(if registry.shared().hook.is_asked() {
            "no entry under `clients` has this name, and auth.http knows no such client"
        } else if registry.shared().clients.may_be_any() {
            "no entry under `clients` has this name, and allow_any_client is for tokens over tls://, \
             quic:// and kcp:// only"
        } else {
            "no entry under `clients` has this name, and no client of this name is enrolled; to let it \
             in, add an entry, or make a code: tunnel enroll NAME"
        });
    };
    Some(if client.is_stranger {
        "another client has come by this name, and it is its own as long as that is connected"
    } else if client.by_certificate {
        "its entry under `clients` has no token: it comes in by its certificate alone, over tls://, \
         quic:// or kcp:// at a listener that asks for one, without `token` or `token_file` in its own file"
    } else if auth.came_by_certificate() {
        "its entry under `clients` has a token, which the client has to have as well"
    } else {
        "wrong token: `token` or `token_file` of the client must be that of its entry under `clients`"
    })
}

/// Attaches a carrier to its link, on the link's worker.
fn arrive(
    worker: &Rc<Worker>,
    registry: &Arc<Registry>,
    serial: u64,
    epoch: Option<u64>,
    mut greeted: Greeted,
) {
    if let Err(error) = greeted.join() {
        return lose(registry, serial, &greeted, &error);
    }
    let client = registry.shared().clients.find(greeted.grant.name.as_str());
    let source = client.as_ref().and_then(|client| client.source).map(display);
    if client.map(|client| client.epoch) != epoch {
        // A reload ends the links that it finds. The reload could not find this link.
        return lose(registry, serial, &greeted, &io::Error::other("its entry was changed"));
    }
    let Some(session) = registry.session_of(serial) else { return };
    let address = term::address(greeted.carrier.peer.address);
    let transport = greeted.carrier.peer.transport;
    let known = worker.state.link(&session, serial);
    let link = match known {
        Some(link) => link,
        None if greeted.grant.attach.is_none() => {
            begin(worker, registry, serial, &session, greeted.accepted.features)
        }
        None => return,
    };
    registry.note_login(&session.name, greeted.carrier.peer.address);
    let resumed = greeted.grant.attach.is_some();
    registry.brake().count(if resumed { Outcome::Resumed } else { Outcome::Accepted });
    let name = session.name.as_str();
    if greeted.attach_to(&link) {
        let what = if resumed { "has resumed" } else { "has connected with" };
        tracing::info!(
            target: AUDIT, client = name, link = serial, %transport, source,
            "client {name} {what} link {serial} over {transport}"
        );
        tracing::debug!(target: AUDIT, client = name, link = serial, %address, "carrier");
        registry.shared().events.tell(|| Changed::Link {
            peer: name.to_owned(),
            link: serial,
            state: LinkState::Up,
            reason: None,
        });
    }
}

fn begin(
    worker: &Rc<Worker>,
    registry: &Arc<Registry>,
    serial: u64,
    session: &Arc<Session>,
    features: Features,
) -> Link {
    let settings = link::Settings {
        side: proto::Side::Server,
        config: registry.shared().link.get(),
        budget: Rc::new(worker.state.portion.of_client(session.name.as_str())),
        serial,
        features,
    };
    let (worker_of, registry_of) = (Rc::clone(worker), Arc::clone(registry));
    let owner = owner::ServerOwner::new(worker_of, registry_of, serial, &session.name);
    let link = Link::new(settings, owner);
    worker.state.add_link(worker.index, session, &link);
    link
}
