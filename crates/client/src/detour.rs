//! Detours: paths to a server through another server of the client (`via` of a path).
//!
//! ```text
//!   link to fra ── carrier, TLS with fra ── stream of a link to nyc ── nyc ── TCP ── fra
//! ```
//!
//! The other server dials, and joins the connection with the stream. The handshake of the path runs
//! end to end, so the other server sees ciphertext alone where the path has TLS.
//!
//! No carrier carries itself: see `detours.rs`.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use families::{Detour, Way};
use link::Link;
use node::session::{Handle, Served, Session, Worker};
use proto::greeting::Features;
use proto::{Open, Priority, ResetCode, Target};
use relay::{Settings, StreamLane, open_duplex};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, sleep};
use transport::{
    Carrier, CarrierError, Dialer, Dialled, EarlyDataFn, Lane as _, LocalFuture, PathDialer, Peer,
};

use super::detours::{Begun, Circle, DetourStream, SILENCE, ServerPair};
use super::shared::ClientShared;
use super::uplink::Uplink;

/// The time for which a dial waits for a link to the other server: the head start of a path before
/// the next path is tried. At the start of a client the links to all servers are made at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pauses before the attempts to bring links from outdated detours to other paths. The new
/// links to another server may need a moment.
const RENEWALS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(5)];

/// The time for the frames of a farewell.
const FAREWELL: Duration = Duration::from_millis(100);

/// Retires the links that lead through other servers, because this process is stopping: each ends
/// with its last stream. Links that take a detour later end with the process.
pub(super) async fn leave(handles: &[Handle]) {
    each_inside(handles, Link::go_away).await;
}

/// Says goodbye on the links that lead through other servers. The links to the other servers carry
/// the frames, so they say goodbye later.
pub(super) async fn say_goodbye(handles: &[Handle]) {
    if each_inside(handles, Link::say_goodbye).await > 0 {
        sleep(FAREWELL).await;
    }
}

/// Calls `act` for each link that leads through another server. Returns the number of these links.
async fn each_inside(handles: &[Handle], act: fn(&Link)) -> usize {
    let mut count = 0;
    for handle in handles {
        let act_here = move |worker: &Rc<Worker>| {
            let mut count = 0;
            for (_, link) in worker.state.all_links() {
                let mut is_inside = false;
                link.each_carrier(|_, peer| is_inside |= peer.via.is_some());
                if is_inside {
                    act(&link);
                    count += 1;
                }
            }
            count
        };
        // A worker that has stopped has no links.
        count += handle.call(act_here).await.unwrap_or_default();
    }
    count
}

/// Records that a link is silent or has no carrier: the detours inside it end unless the link
/// answers soon. To be called on a worker.
pub(super) fn link_is_silent(shared: &ClientShared, link: u64) {
    let detours = Arc::clone(&shared.uplinks.detours);
    let Some(since) = detours.fell_silent(link, Instant::now()) else { return };
    drop(spawn_local(async move {
        sleep(SILENCE).await;
        detours.leave_silent(link, since);
    }));
}

/// Brings the links that lead through former links to another server to a path that is up to date:
/// a reload has changed the settings of the other server, or has removed it. Former links to the
/// other server then end. Each path is dialled before the former carrier ends.
pub(super) async fn renew(handles: Arc<[Handle]>, shared: Arc<ClientShared>) {
    for (nth, pause) in RENEWALS.into_iter().enumerate() {
        sleep(pause).await;
        let all = shared.uplinks.all();
        let is_current = |id: u64, session: u64| {
            all.iter().any(|uplink| uplink.id == id && uplink.session().id == session)
        };
        let outdated: Arc<[Arc<str>]> = shared.uplinks.detours.outdated(is_current).into();
        if outdated.is_empty() || shared.is_leaving() {
            return;
        }
        let is_last = nth + 1 == RENEWALS.len();
        let mut parts = JoinSet::new();
        for handle in handles.iter() {
            let (handle, outdated) = (handle.clone(), Arc::clone(&outdated));
            parts.spawn_local(async move {
                handle.task(move |worker| renew_on(worker, outdated, is_last)).await
            });
        }
        // A worker that has stopped has no links.
        while parts.join_next().await.is_some() {}
    }
}

/// Renews the links of a worker, all at once.
async fn renew_on(worker: Rc<Worker>, outdated: Arc<[Arc<str>]>, is_last: bool) {
    let mut renewals = JoinSet::new();
    for (_, link) in worker.state.all_links() {
        let outdated = Arc::clone(&outdated);
        renewals.spawn_local(async move { renew_link(&link, &outdated, is_last).await });
    }
    while renewals.join_next().await.is_some() {}
}

async fn renew_link(link: &Link, outdated: &[Arc<str>], is_last: bool) {
    let is_outdated = |peer: &Peer| {
        peer.via.as_ref().is_some_and(|via| outdated.iter().any(|own| Arc::ptr_eq(own, via)))
    };
    let active = link.active_carrier();
    let mut leads = false;
    link.each_carrier(|number, peer| leads |= Some(number) == active && is_outdated(peer));
    // The link dials its standby anew.
    link.end_carriers(|number, peer| Some(number) != active && is_outdated(peer));
    if !leads {
        return;
    }
    let Err(why) = link.renew_path().await else { return };
    let serial = link.serial();
    tracing::debug!(link = serial, %why, "no path in the place of an outdated detour");
    // A link that retires has streams alone, which need the detour.
    if is_last && !link.is_going_away() {
        tracing::info!(
            link = serial,
            "link {serial} leaves the former way through another server: {why}"
        );
        link.end_carriers(|_, peer| is_outdated(peer));
    }
}

/// The path of a link to the server of `uplink`, by a connection of its own or by a detour.
/// `number` is that of the link.
pub(super) fn path(
    way: &Way,
    number: u8,
    worker: &Rc<Worker>,
    (shared, uplink): (&Arc<ClientShared>, &Arc<Uplink>),
) -> link::Path {
    let Some(Detour { via, target, dialer }) = way.detour() else {
        return way.path_of_link(number);
    };
    let (worker, shared, to) = (Rc::clone(worker), Arc::clone(shared), uplink.id);
    let dialer = Rc::new(Through { worker, shared, to, via, target, dialer });
    link::Path { url: way.label().to_owned(), dialer }
}

/// Dials a server through another server.
#[derive(Clone)]
struct Through {
    worker: Rc<Worker>,
    shared: Arc<ClientShared>,
    /// The id of the uplink of the server.
    to: u64,
    /// The name of the other server.
    via: Arc<str>,
    /// The target that the other server dials.
    target: String,
    /// The handshake of the path.
    dialer: Rc<dyn Dialer>,
}

impl fmt::Debug for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Through({} to {})", self.via, self.target)
    }
}

impl PathDialer for Through {
    /// There is no early data: no transport over TCP has any.
    fn dial(&self, _: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
        let this = self.clone();
        Box::pin(async move { Ok((this.carrier().await?, None)) })
    }
}

/// A stream that becomes a carrier, the reason of its reset, and the serial number and the session
/// of its link.
type OpenedStream = (StreamLane, oneshot::Receiver<Option<ResetCode>>, [u64; 2]);

impl Through {
    async fn carrier(self) -> Result<Carrier, CarrierError> {
        let via = &self.via;
        let other = self.shared.uplinks.on_the_way(via).ok_or_else(|| {
            unavailable(format!("server {via} is not in the configuration any more"))
        })?;
        // A detour that waits for a link to the other server is in nobody's way.
        let at = other.live_worker(self.worker.index, PATIENCE).await;
        let at = at.ok_or_else(|| self.no_link())?;
        let begun = self.begin(&other).await?;
        let (lane, reset, [link, session]) = self.stream(&other, at).await?;
        // Each carrier has a text of its own, by which the carrier is found.
        let name: Arc<str> = Arc::from(&**via);
        let (via, breaker) = (Arc::clone(&name), lane.breaker());
        begun.opened(DetourStream { link, session, via, breaker });
        let mut lane = lane.accompanied(Box::new(begun));
        if let Err(error) = connected(&mut lane).await {
            return Err(self.failed(error.into(), reset).await);
        }
        match self.dialer.dial_inside(Box::new(lane)).await {
            Ok(mut carrier) => {
                carrier.peer.via = Some(name);
                // The other server looks names up, so only an address of the file is known here.
                if let Ok(address) = place_of(&self.target).parse() {
                    carrier.peer.address = address;
                }
                Ok(carrier)
            }
            Err(error) => Err(self.failed(error, reset).await),
        }
    }

    async fn begin(&self, other: &Uplink) -> Result<Begun, CarrierError> {
        let via = &self.via;
        let begun =
            self.shared.uplinks.detours.begin(ServerPair { to: self.to, through: other.id });
        begun.await.map_err(|circle| {
            unavailable(match circle {
                Circle::IsReached => format!("server {via} is reached through another server now"),
                Circle::Carries => format!(
                    "this server leads to another server now, so it is not reached through server \
                     {via}"
                ),
            })
        })
    }

    fn no_link(&self) -> CarrierError {
        unavailable(format!("this client has no connection to server {}", self.via))
    }

    /// Opens a stream over a link of the worker `at` to the other server.
    async fn stream(&self, other: &Uplink, at: usize) -> Result<OpenedStream, CarrierError> {
        // A reload may have replaced the session meanwhile.
        let session = other.session();
        if at == self.worker.index {
            let opened = open(&self.worker, &session, &self.via, &self.target);
            return opened.ok_or_else(|| self.no_link())?;
        }
        let handle = self.worker.peers.get(at).cloned().ok_or_else(|| self.no_link())?;
        let (via, target) = (Arc::clone(&self.via), self.target.clone());
        let opened = handle.call(move |worker| open(worker, &session, &via, &target)).await;
        opened.ok().flatten().ok_or_else(|| self.no_link())?
    }

    /// The error of a carrier whose stream may have been reset.
    async fn failed(
        &self,
        error: CarrierError,
        reset: oneshot::Receiver<Option<ResetCode>>,
    ) -> CarrierError {
        match reset.await {
            Ok(Some(code)) => refused(&self.via, &self.target, code),
            // The handshake failed, or the link to the other server has ended.
            Ok(None) | Err(_) => error,
        }
    }
}

/// Opens a stream over a link of this worker to the other server. `None`: there is none.
fn open(
    worker: &Worker,
    session: &Arc<Session>,
    via: &str,
    target: &str,
) -> Option<Result<OpenedStream, CarrierError>> {
    let link = worker.state.live_link(session)?;
    if !link.features().have(Features::DETOURS) {
        let text = format!("server {via} is too old to lead to other servers; update server {via}");
        return Some(Err(CarrierError::Config(text)));
    }
    let target = Target::Detour(target.to_owned());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    // A process that stops waits for the streams inside the link that the stream carries, and not
    // for the stream itself.
    let stats = Rc::clone(&worker.state.of::<Served>().detours);
    let settings = Rc::new(Settings { stats, ..Settings::default() });
    let stream = open_duplex(&link, open, &settings, None).map(StreamLane::watched);
    let opened = stream.map(|(lane, reset)| (lane, reset, [link.serial(), session.id]));
    Some(opened.map_err(|why| io::Error::other(why).into()))
}

/// Waits until the other server has connected to the server, which it reports by a byte 0.
async fn connected(lane: &mut StreamLane) -> io::Result<()> {
    let mut report = BytesMut::with_capacity(1);
    let read = poll_fn(|cx| lane.poll_read(cx, &mut report)).await?;
    match report.first() {
        Some(0) if read == 1 => Ok(()),
        Some(_) | None => {
            let text = "the other server has ended the connection";
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
        }
    }
}

const fn unavailable(text: String) -> CarrierError {
    CarrierError::Unavailable(text)
}

/// The host and port of a target.
fn place_of(target: &str) -> &str {
    target.strip_prefix("tcp://").unwrap_or(target)
}

/// The error of a detour that the other server has refused or reset.
fn refused(via: &str, target: &str, code: ResetCode) -> CarrierError {
    let place = place_of(target);
    let text = match code {
        ResetCode::Denied => {
            return CarrierError::Config(format!(
                "server {via} does not allow the way to {place}: it needs a right in allow.via of \
                 this client there"
            ));
        }
        ResetCode::Refused | ResetCode::Timeout | ResetCode::Unreachable => {
            format!("server {via} cannot connect to {place}: {code}")
        }
        ResetCode::Limit => {
            return unavailable(format!("a limit of this client at server {via} is reached"));
        }
        ResetCode::Shutdown | ResetCode::Moved => {
            return unavailable(format!("server {via} has reset the way to {place}: {code}"));
        }
        ResetCode::Aborted | ResetCode::Unknown | ResetCode::Internal | ResetCode::Other(_) => {
            format!("server {via} has reset the way to {place}: {code}")
        }
    };
    io::Error::new(io::ErrorKind::ConnectionReset, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_right_and_the_place() {
        let shown = |code| refused("nyc", "tcp://fra.example.com:7000", code);
        let denied = shown(ResetCode::Denied);
        assert!(!denied.is_network());
        assert_eq!(
            denied.to_string(),
            "server nyc does not allow the way to fra.example.com:7000: it needs a right in \
             allow.via of this client there"
        );
        let away = shown(ResetCode::Refused);
        assert!(away.is_network());
        assert!(away.is_of_path() && !denied.is_of_path());
        for code in [ResetCode::Limit, ResetCode::Shutdown] {
            assert!(shown(code).is_network() && !shown(code).is_of_path(), "{code}");
        }
        let text = away.to_string();
        assert!(text.starts_with("server nyc cannot connect to fra.example.com:7000: "), "{text}");
    }
}
