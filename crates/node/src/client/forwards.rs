//! The forwards of a client, and their changes by a reload.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use config::{Forward, Local, Over, PrivateService};
use ops::socket_file;
use proto::Target;
use relay::shares::Kind;
use relay::{Gate, Holder, ProxyKind};
use tokio::sync::Mutex;

use crate::aim::{Aim, ProxyTerms};
use crate::backends::Backends;
use crate::descriptors;
use crate::entrance::{self, Entrance};
use crate::listeners::{self, Listeners};
use crate::peer::links::PeerLinks;
use crate::session::{Handle, Session};
use crate::transports;

/// The forwards of a client.
#[derive(Debug)]
pub(super) struct Forwards {
    /// The open forwards; `None` after they were closed for good.
    open: Mutex<Option<Vec<OpenForward>>>,
    /// The private services to which forwards lead.
    visits: Arc<PeerLinks>,
}

#[derive(Clone, Debug)]
struct OpenForward {
    forward: Forward,
    entrance: Arc<Entrance>,
}

/// The forwards of a new configuration, bound but not yet accepting.
#[derive(Debug)]
pub(super) struct Bound {
    known: Vec<(OpenForward, Forward)>,
    new: Vec<(OpenForward, Listeners)>,
    /// Forwards that need the port of a forward that is to close. Both cannot be bound at the same
    /// time.
    late: Vec<Forward>,
    gone: Vec<OpenForward>,
}

impl Forwards {
    pub(super) fn new(visits: &Arc<PeerLinks>) -> Self {
        Self { open: Mutex::new(Some(Vec::new())), visits: Arc::clone(visits) }
    }

    /// The session whose links serve the visitors of a forward: that of the server, or that of the
    /// client whose private service it is.
    fn session_of(&self, forward: &Forward, server: &Arc<Session>) -> Arc<Session> {
        match forward.private() {
            Some(service) => Arc::clone(&self.visits.peer(service).session),
            None => Arc::clone(server),
        }
    }

    /// Binds the forwards that are not open yet, and reports all failures at once. Open forwards
    /// with the same address stay open, even if their target changes.
    pub(super) async fn bind(
        &self,
        wanted: &[Forward],
        workers: NonZeroUsize,
        session: &Arc<Session>,
    ) -> anyhow::Result<Bound> {
        let mut gone = self.open.lock().await.clone().context("it is stopping")?;
        let (mut known, mut missing) = (Vec::new(), Vec::new());
        for forward in wanted {
            let same = gone.iter().position(|open| place(&open.forward) == place(forward));
            match same {
                Some(at) => known.push((gone.swap_remove(at), forward.clone())),
                None => missing.push(forward),
            }
        }
        let frees =
            |forward: &Forward| gone.iter().any(|open| is_in_the_way(&open.forward, forward));
        let (late, missing): (Vec<_>, Vec<_>) = missing.into_iter().partition(|f| frees(f));
        let new = transports::all_bound(
            missing
                .into_iter()
                .map(|forward| bind(forward, workers, &self.session_of(forward, session))),
        );
        Ok(Bound { known, new: new?, late: late.into_iter().cloned().collect(), gone })
    }

    /// Opens and closes forwards as `bound` says, and updates the others. Returns the forwards that
    /// could not be opened, with the error; nothing of them is left open.
    pub(super) async fn follow(
        &self,
        bound: Bound,
        handles: &[Handle],
        workers: NonZeroUsize,
        session: &Arc<Session>,
    ) -> Vec<(Forward, io::Error)> {
        let (mut all, mut failed) = (self.open.lock().await, Vec::new());
        let Some(all) = &mut *all else { return failed };
        for OpenForward { entrance, .. } in bound.gone {
            entrance::close_everywhere(handles, entrance.id).await;
            let forward = &entrance.address;
            tracing::info!(forward, "forward {forward} is closed");
            all.retain(|open| open.entrance.id != entrance.id);
        }
        for (open, forward) in bound.known {
            if open.forward != forward {
                turn(&open, &forward);
            }
            if open.forward.target != forward.target {
                entrance::renew_flows(handles, open.entrance.id).await;
            }
            let session = self.session_of(&forward, session);
            open.entrance.backends.lead_to(&session);
            open.entrance.steer(&session);
            let entry = all.iter_mut().find(|entry| entry.entrance.id == open.entrance.id);
            if let Some(entry) = entry {
                entry.forward = forward;
            }
        }
        let mut new = bound.new;
        for forward in bound.late {
            match bind(&forward, workers, &self.session_of(&forward, session)) {
                Ok(opened) => new.push(opened),
                Err(why) => failed.push((forward, io::Error::other(format!("{why:#}")))),
            }
        }
        for (open, listeners) in new {
            if let Err(why) = entrance::open_everywhere(handles, &open.entrance, listeners).await {
                entrance::close_everywhere(handles, open.entrance.id).await;
                failed.push((open.forward, why));
                continue;
            }
            tell(&open.entrance, &open.forward, "listens");
            all.push(open);
        }
        failed
    }

    /// Leads the visitors of all forwards to the links of another session.
    pub(super) async fn lead_to(&self, session: &Arc<Session>) {
        for open in self.open.lock().await.iter().flatten() {
            let session = self.session_of(&open.forward, session);
            open.entrance.backends.lead_to(&session);
            open.entrance.steer(&session);
        }
    }

    pub(super) async fn close_all(&self, handles: &[Handle]) {
        for OpenForward { entrance, .. } in self.open.lock().await.take().into_iter().flatten() {
            entrance::close_everywhere(handles, entrance.id).await;
        }
    }
}

/// Whether both cannot be bound at once: the same port, at all addresses and at one address.
fn is_in_the_way(open: &Forward, wanted: &Forward) -> bool {
    match (open.listen.socket(), wanted.listen.socket()) {
        (Some((over, open)), Some((of_wanted, wanted))) => {
            let all = open.ip().is_unspecified() || wanted.ip().is_unspecified();
            over == of_wanted && all && open.port() == wanted.port() && open.port() != 0
        }
        (None, _) | (_, None) => false,
    }
}

/// The identity of a listener: its protocol and address, without its notation and its permissions.
/// A proxy is another listener than a port with a target.
fn place(forward: &Forward) -> Result<(Over, bool, std::net::SocketAddr), &str> {
    match &forward.listen {
        Local::Unix { address, .. } => Err(address.place()),
        Local::Tcp(at) => Ok((Over::Tcp, false, *at)),
        Local::Udp(at) => Ok((Over::Udp, false, *at)),
        Local::Socks5(at) | Local::HttpProxy(at) => Ok((Over::Tcp, true, *at)),
    }
}

fn aim(address: &str, forward: &Forward) -> Aim {
    let target = forward.target.as_ref().map(ToString::to_string);
    let kind = match &forward.listen {
        Local::Socks5(_) => Some(ProxyKind::Socks5),
        Local::HttpProxy(_) => Some(ProxyKind::Http),
        Local::Tcp(_) | Local::Udp(_) | Local::Unix { .. } => None,
    };
    let terms = |kind| Arc::new(ProxyTerms { kind, users: forward.basic_auth.clone() });
    Aim {
        name: match &target {
            Some(target) => format!("{address} -> {target}"),
            None => address.to_owned(),
        },
        target: match forward.private().cloned() {
            Some(PrivateService { client, service }) => Target::Private { client, service },
            None => Target::Forward(target.unwrap_or_default()),
        },
        terms: forward.terms.clone(),
        rules: None,
        proxy: kind.map(terms),
    }
}

fn bind(
    forward: &Forward,
    workers: NonZeroUsize,
    session: &Arc<Session>,
) -> anyhow::Result<(OpenForward, Listeners)> {
    let (address, listeners) = listeners::bind(&forward.listen, workers)?;
    let holder = Holder::new(descriptors::table(), Kind::Own);
    let gate = Gate::limited(None, None, Some(holder));
    let entrance = Arc::new(Entrance {
        id: entrance::next_id(),
        backends: Backends::new(aim(&address, forward), session, gate),
        address,
        steering: listeners.steering(),
        // The programs behind a forward are those of the client itself.
        bounds: Arc::default(),
    });
    entrance.steer(session);
    Ok((OpenForward { forward: forward.clone(), entrance }, listeners))
}

/// Logs what an open forward does, and where its visitors go.
fn tell(entrance: &Entrance, forward: &Forward, does: &str) {
    let address = &entrance.address;
    if let Some(service) = forward.private() {
        let client = &service.client;
        return tracing::info!(
            forward = address, target = %service,
            "forward {address} {does}; its visitors go to the service {} of client {client}",
            service.service
        );
    }
    match forward.target.as_ref().map(ToString::to_string) {
        Some(target) => tracing::info!(
            forward = address,
            target,
            "forward {address} {does}; its visitors go to {target} on the server's side"
        ),
        None => tracing::info!(
            forward = address,
            "forward {address} {does}; its programs reach what they name, on the server's side"
        ),
    }
}

/// Changes an open forward to the target and the socket mode of `forward`.
fn turn(open: &OpenForward, forward: &Forward) {
    open.entrance.backends.forget_health();
    let leads_elsewhere = forward.target != open.forward.target;
    open.entrance.backends.set_aim(aim(&open.entrance.address, forward));
    let does = if leads_elsewhere { "leads elsewhere now" } else { "has changed" };
    tell(&open.entrance, forward, does);
    if let Local::Unix { address, mode } = &forward.listen
        && address.abstract_name().is_none()
        && let Err(error) = socket_file::set_mode(Path::new(address.place()), *mode)
    {
        tracing::warn!("the socket file of forward {} keeps its mode: {error}", forward.listen);
    }
}
