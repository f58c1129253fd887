//! The attempt, which the socket, the timer and the owner of a trial share.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use punch::{Attempt, Datagram, Event, Pace, Pair, Purpose, Settings, Turn, Why, stun};
use quinn::Connection;
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;

use super::sources::Sources;
use crate::error::ABANDONED;
use crate::socket::{Beside, Socket};

/// The outcome of the checks of a visitor, or the failure of either end.
pub(super) type Outcome = Option<Result<Pair, Why>>;

/// The attempt with its socket.
pub(super) struct Shared {
    attempt: Mutex<Attempt>,
    socket: OnceLock<Weak<Socket>>,
    sources: Sources,
    pace: Arc<Mutex<Pace>>,
    /// Signals that the attempt may have a new deadline.
    changed: Notify,
    /// Signals that the attempt may have a signal for the peer.
    said: Notify,
    outcome: watch::Sender<Outcome>,
    is_lost: AtomicBool,
}

impl Shared {
    pub(super) fn new(attempt: Attempt, settings: Settings, pace: &Arc<Mutex<Pace>>) -> Arc<Self> {
        Arc::new(Self {
            attempt: Mutex::new(attempt),
            socket: OnceLock::new(),
            sources: Sources::new(settings),
            pace: Arc::clone(pace),
            changed: Notify::new(),
            said: Notify::new(),
            outcome: watch::Sender::default(),
            is_lost: AtomicBool::new(false),
        })
    }

    /// The socket serves this attempt beside QUIC.
    pub(super) fn sends_through(&self, socket: &Arc<Socket>) {
        // The socket owns the attempt, so the attempt must not own the socket.
        let _ = self.socket.set(Arc::downgrade(socket));
        self.with(|_, _| ());
    }

    pub(super) fn outcome(&self) -> watch::Receiver<Outcome> {
        self.outcome.subscribe()
    }

    pub(super) fn attempt(&self) -> MutexGuard<'_, Attempt> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an action on the attempt, and handles its effects.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Attempt, Instant) -> T) -> T {
        let done = self.timed(act);
        self.changed.notify_one();
        done
    }

    /// As [`Self::with`], for the timer task.
    fn timed<T>(&self, act: impl FnOnce(&mut Attempt, Instant) -> T) -> T {
        let socket = self.socket.get().and_then(Weak::upgrade);
        self.through(socket.as_deref(), act)
    }

    fn through<T>(
        &self,
        socket: Option<&Socket>,
        act: impl FnOnce(&mut Attempt, Instant) -> T,
    ) -> T {
        let mut attempt = self.attempt();
        let done = act(&mut attempt, now());
        if let Some(socket) = socket {
            while let Some(datagram) = attempt.poll_datagram() {
                // A check that cannot be sent counts as lost, and is repeated.
                if !self.may_leave(&datagram) {
                    if datagram.purpose == Purpose::Opens {
                        attempt.unsent(now(), datagram.to);
                    }
                    continue;
                }
                let to = socket.form_of(datagram.to);
                socket.send_within(to, datagram.from, &datagram.bytes, datagram.hops);
            }
        }
        while let Some(event) = attempt.poll_event() {
            match event {
                Event::Found(pair) => drop(self.outcome.send_replace(Some(Ok(pair)))),
                Event::Failed(why) => drop(self.outcome.send_replace(Some(Err(why)))),
                Event::Lost => self.is_lost.store(true, Ordering::Release),
            }
        }
        drop(attempt);
        self.said.notify_one();
        done
    }

    /// Whether the pacing towards the peer permits a datagram.
    fn may_leave(&self, datagram: &Datagram) -> bool {
        let ip = datagram.to.ip();
        let pace = || self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        match datagram.purpose {
            Purpose::Other => true,
            Purpose::Known => {
                pace().answered(now(), ip);
                true
            }
            Purpose::Unknown | Purpose::Opens => pace().ask(now(), ip) == Turn::Now,
        }
    }

    /// The next signal to the peer.
    pub(super) async fn signal(&self) -> Vec<u8> {
        loop {
            let signal = self.attempt().poll_signal();
            match signal {
                Some(signal) => return signal,
                None => self.said.notified().await,
            }
        }
    }

    /// Runs the timers of the attempt until it is over.
    pub(super) async fn drive(&self) {
        loop {
            let due = self.attempt().poll_timeout();
            let Some(due) = due else { return };
            tokio::select! {
                () = sleep_until(due.into()) => {
                    self.timed(|attempt, now| attempt.handle_timeout(now));
                }
                () = self.changed.notified() => {}
            }
        }
    }

    /// As [`Self::drive`], for an established connection, until it is closed. The connection uses
    /// the socket for as long.
    pub(super) async fn keep(self: Arc<Self>, connection: Connection, _in_use: InUse) {
        self.sources.open(connection.remote_address());
        let closed = connection.closed();
        tokio::pin!(closed);
        loop {
            // A client that has moved is followed; the checks to its old address are meaningless.
            let remote = connection.remote_address();
            let due = self.timed(|attempt, now| {
                attempt.adopt(now, remote);
                attempt.poll_timeout()
            });
            if self.is_lost.load(Ordering::Acquire) {
                tracing::debug!("a direct path is given up: no check was answered for 30 s");
                connection.close(ABANDONED, b"");
            }
            tokio::select! {
                _ = &mut closed => return,
                () = sleep_or_never(due) => {
                    self.timed(|attempt, now| attempt.handle_timeout(now));
                }
                () = self.changed.notified() => {}
            }
        }
    }
}

async fn sleep_or_never(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// The time of tokio, which tests may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Beside for Shared {
    fn admits(&self, from: SocketAddr) -> bool {
        self.sources.admit(from)
    }

    fn is_open(&self) -> bool {
        self.sources.is_open()
    }

    fn takes(
        &self,
        socket: &Socket,
        from: SocketAddr,
        at: Option<IpAddr>,
        datagram: &[u8],
    ) -> bool {
        if stun::is_stun(datagram) {
            let at = at.map(|at| at.to_canonical());
            self.through(Some(socket), |attempt, now| {
                attempt.handle_datagram(now, (from, at), datagram);
            });
            self.changed.notify_one();
            return true;
        }
        // No QUIC packet from an unauthenticated source is accepted: it could start a handshake, or
        // request a version.
        !self.is_open() && !self.attempt().is_proven(from)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

/// Held by every user of a trial's socket.
#[derive(Clone, Debug, Default)]
pub(super) struct InUse(Arc<watch::Sender<()>>);

impl InUse {
    /// Completes when the last holder is gone.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut holders = self.0.subscribe();
        async move { while holders.changed().await.is_ok() {} }
    }
}

/// A direct path that was found, for its figures; the path may have ended.
#[derive(Clone, Debug)]
pub struct DirectPath(pub(super) Arc<Shared>);

impl DirectPath {
    /// The two ends of the path; `None` after its end.
    #[must_use]
    pub fn pair(&self) -> Option<Pair> {
        self.0.attempt().pair()
    }

    /// A mapping of the router leads to the socket; `None`: there is none.
    pub fn mapped(&self, address: Option<SocketAddr>) {
        self.0.with(|attempt, now| attempt.mapped(now, address));
    }
}
