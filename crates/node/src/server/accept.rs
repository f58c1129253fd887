//! Accepts carriers. A separate task per carrier does the handshake and the greeting, each with a
//! deadline, and then sends the carrier to the worker of its link. When descriptors run short, or too
//! many connections wait for their log-in, the server closes the oldest connection of the source that
//! has most of them. A client with a token logs in within a moment, and clients without a token could
//! otherwise hold all descriptors.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use link::server::{Greeted, greet_early};
use link::{GreetError, Lease, Link};
use logging::{AUDIT, RepeatLimit};
use net::source::prefix;
use ops::term;
use proto::Budget as _;
use proto::greeting::{Features, Refusal};
use tokio::task::{spawn_local, yield_now};
use tracing::field::display;
use transport::{CarrierError, Incoming, Listener};

use super::auth::Auth;
use super::brake::{Kind, Outcome};
use super::clients::Denied;
use super::owner;
use super::registry::Registry;
use super::waiting::{Place, Waiting};
use crate::session::{Session, Worker};
use crate::{descriptors, memory};

/// The deadline of a handshake, without the greeting.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The wait after an error of the listener. The usual cause is a lack of descriptors.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// The connections of one listener on one worker that may be waiting for their log-in, within
/// [`memory::strangers`]. Accepted connections proceed before new connections are accepted. So a
/// connection of a real client is here for its own round trips only.
const STRANGERS: usize = 4096;

/// The memory in bytes that is charged for a connection until its log-in, the most that a stranger can
/// make this end hold: over TCP a handshake of at most 32 KiB, its TLS session, the head of a
/// WebSocket's request and the task; over QUIC and KCP the connection (about 60 KiB) and 64 KiB that
/// nobody has read.
const COST: u64 = 48 << 10;
const UDP_COST: u64 = 128 << 10;

/// Held from the check for a free descriptor to the accept that takes it. Two accept loops that see
/// the same free descriptor would exceed the room, one connection at a time.
static TABLE: Mutex<()> = Mutex::new(());

/// Accepts connections from `listener` on this worker as long as the worker lives.
pub(super) fn start(worker: &Rc<Worker>, registry: Arc<Registry>, mut listener: Box<dyn Listener>) {
    let worker = Rc::clone(worker);
    spawn_local(async move {
        let strangers = Waiting::default();
        let cost = if listener.transport().stays() { UDP_COST } else { COST };
        let most = memory::strangers(&worker.state.budget, worker.peers.len(), cost).min(STRANGERS);
        let room = descriptors::room_of_strangers();
        let complaints = RepeatLimit::new();
        loop {
            let accepted = poll_fn(|cx| {
                // The mutex guards no data that a panic could have left inconsistent.
                let _held = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
                if strangers.len() > 1 && !room.is_there() {
                    return Poll::Ready(None);
                }
                listener.poll_accept(cx).map(Some)
            });
            let Some(accepted) = accepted.await else {
                strangers.one_leaves().await;
                continue;
            };
            match accepted {
                Ok(incoming) => {
                    let (worker, registry) = (Rc::clone(&worker), Arc::clone(&registry));
                    let charge = Charge::new(&worker.state.budget, cost);
                    strangers.run(incoming.source(), async move |mut place| {
                        let _charge = charge;
                        let (remote, auth) = (incoming.remote(), Auth::new(&registry));
                        if let Err(why) =
                            welcome(&worker, &registry, &auth, (incoming, &mut place)).await
                        {
                            registry.brake().count(Outcome::Failed(&why));
                            complain(&registry, &auth, remote, &why);
                        }
                    });
                    if strangers.len() > most {
                        strangers.one_leaves().await;
                    }
                    // Accepted connections proceed before new connections are accepted. A handshake
                    // that has begun is lost when its client's patience ends before its turn comes
                    // again; a connection that waits in the listener is not lost. (5,000 QUIC
                    // clients at once, the server on one core: 9-12 s and 0-580 attempts in vain;
                    // without this yield 13-24 s and 900-10,500.)
                    yield_now().await;
                }
                Err(error) => {
                    if let Some(more) = complaints.pass((), Instant::now()) {
                        let at = listener.local_addr();
                        tracing::warn!(%at, %error, more, "the listener at {at} cannot accept clients: {error}");
                    }
                    if !strangers.one_leaves().await {
                        tokio::time::sleep(EXHAUSTED).await;
                    }
                }
            }
        }
    });
}

/// The memory of a connection that has not logged in, charged to the budget of its worker.
#[derive(Debug)]
struct Charge {
    budget: Rc<Lease>,
    bytes: u64,
}

impl Charge {
    fn new(budget: &Rc<Lease>, bytes: u64) -> Self {
        budget.charge(bytes);
        Self { budget: Rc::clone(budget), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

async fn welcome(
    worker: &Rc<Worker>,
    registry: &Arc<Registry>,
    auth: &Auth<'_>,
    (incoming, place): (Box<dyn Incoming>, &mut Place),
) -> anyhow::Result<()> {
    let is_proxied = incoming.source().is_none();
    let remote = incoming.remote();
    let (carrier, early) = tokio::time::timeout(HANDSHAKE, incoming.handshake_early())
        .await
        .map_err(|_| no_handshake())??;
    if is_proxied && carrier.peer.address != remote {
        place.belongs_to(carrier.peer.address.ip());
    }
    auth.note_peer(&carrier.peer);
    let mut greeted = greet_early(carrier, early, auth).await?;
    if greeted.grant.enrolled.is_some() {
        registry.brake().count(Outcome::Enrolled);
        // The client has its token and connects again with it.
        let close = poll_fn(|cx| greeted.carrier.lane.poll_close(cx));
        // A client that does not acknowledge the close has gone.
        let _ = tokio::time::timeout(HANDSHAKE, close).await;
        return Ok(());
    }
    let Some(placed) = registry.place(&greeted, worker.index) else {
        anyhow::bail!("the link ended during the greeting");
    };
    if let Err(error) = greeted.detach() {
        lose(registry, placed.serial, &greeted, &error);
        return Ok(());
    }
    let (registry, epoch) = (Arc::clone(registry), auth.epoch());
    let Some(handle) = worker.peers.get(placed.worker).cloned() else { return Ok(()) };
    // In a separate task: the client has logged in, so the limits of waiting connections must not
    // abort it.
    spawn_local(async move {
        // A worker that has stopped has no links.
        let _ = handle
            .run(move |worker| arrive(worker, &registry, placed.serial, epoch, greeted))
            .await;
    });
    Ok(())
}

fn no_handshake() -> CarrierError {
    let text = format!("no handshake within {} s", HANDSHAKE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text).into()
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

/// Logs a failed log-in once, and not its repetitions.
fn complain(registry: &Registry, auth: &Auth<'_>, remote: SocketAddr, why: &anyhow::Error) {
    // The failure counts against the client, and not against the reverse proxy in front of it.
    let told = match why.downcast_ref() {
        Some(CarrierError::Stranger { client, .. }) => *client,
        _ => auth.address(),
    };
    let remote = told.unwrap_or(remote);
    let name = auth.claimed().unwrap_or_default();
    let reason = reason(registry, auth, &name, why);
    if !name.is_empty() {
        let text = reason.map_or_else(|| why.to_string(), str::to_owned);
        registry.note_refusal(&name, remote, &text);
    }
    let kind = Kind::of(why).because(reason);
    let told = registry.brake().tell(&name, remote.ip(), kind, Instant::now());
    let Some(suppressed) = told else { return };
    let who = match auth.certificate() {
        _ if !name.is_empty() => format!("client `{name}` "),
        Some(shown) if shown.is_empty() => "a client with a certificate without a name ".to_owned(),
        Some(shown) => format!("a client with the certificate of {shown:?} "),
        None => String::new(),
    };
    let why = reason.map_or_else(|| why.to_string(), str::to_owned);
    // The lines of a source are counted by the log, see `logging::quota`.
    let (source, remote) = (prefix(remote.ip()), term::address(remote));
    if suppressed == 0 {
        tracing::warn!(target: AUDIT, %source, "{who}from {remote} did not log in: {why}");
    } else {
        let more = term::count(suppressed, "time");
        tracing::warn!(target: AUDIT, %source, "{who}from {remote} did not log in ({more} more): {why}");
    }
}

/// The reason of a refused credential or of a full table, for the log. The client gets fewer details: it cannot tell
/// an unknown name from a wrong token. `None`: the failure has another cause.
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
            "no entry under `clients` has this name; add one if it shall come in"
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
        budget: Rc::<Lease>::clone(&worker.state.budget),
        serial,
        features,
    };
    let (worker_of, registry_of) = (Rc::clone(worker), Arc::clone(registry));
    let owner = owner::ServerOwner::new(worker_of, registry_of, serial, &session.name);
    let link = Link::new(settings, owner);
    worker.state.add_link(worker.index, session, &link);
    link
}
