//! Visitors without a link on their worker: they move to a worker with a link of the session, or
//! are held until a link is live.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::handover;
use proto::ResetCode;
use relay::{Detached, Socket};
use tokio::time::{Instant, sleep, sleep_until};

use super::admit::{Attempts, EnteringVisitor, VisitorOrigin, enter, turn_away};
use super::name::NameVisitor;
use super::{Entrance, settings_of};
use crate::answer::Answer;
use crate::backends::Backends;
use crate::names::Space;
use crate::session::{Handle, Session, Worker};

/// The poll interval for whether the clients have moved their links to the next generation.
const LEFT: Duration = Duration::from_millis(10);

/// The maximum number of held visitors per session: more than a browser opens, and few enough that
/// a flood of visitors costs little.
const HELD_MAX: u32 = 1024;

/// A visitor that moves to another worker.
pub(super) struct MovingVisitor {
    entrance: Arc<Entrance>,
    socket: Detached,
    peer: Option<SocketAddr>,
    origin: VisitorOrigin,
    preferred: Option<u64>,
    until: Instant,
    attempts: Attempts,
}

impl MovingVisitor {
    /// Detaches the socket of the visitor from this thread.
    pub(super) fn new(entrance: &Arc<Entrance>, entering: EnteringVisitor) -> Option<Self> {
        let EnteringVisitor { socket, peer, origin, preferred, until, attempts } = entering;
        let entrance = Arc::clone(entrance);
        match socket.detach() {
            Ok(socket) => Some(Self { entrance, socket, peer, origin, preferred, until, attempts }),
            Err(error) => {
                tracing::debug!(service = entrance.name(), %error, "visitor lost");
                None
            }
        }
    }

    /// Attaches the socket of the visitor to this thread.
    fn attach(self) -> std::io::Result<EnteringVisitor> {
        let Self { socket, peer, origin, preferred, until, attempts, .. } = self;
        Ok(EnteringVisitor { socket: socket.attach()?, peer, origin, preferred, until, attempts })
    }

    fn is_current(&self) -> bool {
        self.origin.is_current(&self.entrance, self.peer)
    }
}

pub(super) async fn hand_over(to: Handle, visitor: MovingVisitor) {
    // A worker that has stopped drops the job and thus the socket.
    let _ = to.run(|worker| arrive(worker, visitor)).await;
}

/// Hands a visitor to a worker with a live link. Waits for a live link when there is none.
pub(super) async fn elsewhere(worker: Rc<Worker>, visitor: MovingVisitor) {
    let MovingVisitor { entrance, origin, peer, preferred, until, .. } = &visitor;
    let is_current = || origin.is_current(entrance, *peer);
    let all = preferred.map(|_| entrance.backends.all()).unwrap_or_default();
    let wished = all.iter().find(|one| Some(one.session.id) == *preferred);
    let to = match wished.and_then(|one| one.session.live_worker(worker.index)) {
        Some(to) if Instant::now() < *until => Some(to),
        Some(_) | None => tokio::select! {
            biased;
            to = live_worker(worker.index, &entrance.backends, *until, is_current) => to,
            () = gone_on(&entrance.backends) => None,
        },
    };
    if !is_current() {
        return back(&worker, visitor);
    }
    let Some(to) = to else {
        tracing::debug!(service = visitor.entrance.name(), "no live link to the client");
        return refuse(&worker, visitor);
    };
    let Some(handle) = worker.peers.get(to) else { return };
    hand_over(handle.clone(), visitor).await;
}

/// Completes when the clients have moved their links to the next generation of this process.
async fn gone_on(backends: &Backends) {
    handover::handed_over().await;
    while backends.all().iter().any(|one| !one.session.has_left()) {
        sleep(LEFT).await;
    }
}

/// Passes a visitor to the next generation of this process, which has the listener at which the
/// visitor arrived. False: there is no next generation, or bytes of the visitor have been read.
fn pass_on(socket: &Socket, origin: &VisitorOrigin) -> bool {
    let is_untouched = match origin {
        VisitorOrigin::Port(header) => header.is_none(),
        VisitorOrigin::Name(visitor) => visitor.first.is_empty(),
        VisitorOrigin::Request(..) => false,
    };
    is_untouched && matches!(socket, Socket::Tcp(_)) && handover::pass(socket).is_ok()
}

/// Sends a visitor back to its door, because the rules that directed it here have changed. A
/// request of the HTTP proxy fails: it was admitted under the previous rules.
fn back(worker: &Rc<Worker>, visitor: MovingVisitor) {
    let entrance = Arc::clone(&visitor.entrance);
    tracing::debug!(service = entrance.name(), "the rules changed while a visitor waited");
    let entering = match visitor.attach() {
        Ok(entering) => entering,
        Err(error) => {
            return tracing::debug!(service = entrance.name(), %error, "visitor lost");
        }
    };
    let EnteringVisitor { socket, peer, origin, until, attempts, .. } = entering;
    if attempts.first.is_empty() && pass_on(&socket, &origin) {
        return;
    }
    match origin {
        // Bytes that a refused stream has read are no longer in the socket, from which a door
        // reads.
        VisitorOrigin::Name(NameVisitor { door, lead, first, fields, .. })
            if attempts.first.is_empty() =>
        {
            door.again(worker, (socket, peer), lead.space, (first, fields), until);
        }
        origin @ (VisitorOrigin::Name(_) | VisitorOrigin::Port(_) | VisitorOrigin::Request(..)) => {
            let settings = settings_of(worker, &entrance).unwrap_or_default();
            let entering =
                EnteringVisitor { socket, peer, origin, preferred: None, until, attempts };
            turn_away(worker, entering, &settings, Answer::Down(ResetCode::Shutdown));
        }
    }
}

/// Waits for a worker with a live link of a backend, from worker `from` on. `None` also if the
/// rules that directed the visitor here are no longer in force.
async fn live_worker(
    from: usize,
    backends: &Backends,
    until: Instant,
    is_current: impl Fn() -> bool,
) -> Option<usize> {
    let mut session = backends.awaited();
    let refusals = session.refusals();
    let mut held = None;
    loop {
        let revived = session.revived.notified();
        // A flapping link must not keep the visitor moving between workers forever.
        if Instant::now() >= until {
            return None;
        }
        let all = backends.all();
        let mut takes = all.iter().filter(|one| one.takes_visitors());
        if let Some(to) = takes.find_map(|one| one.session.live_worker(from)) {
            return Some(to);
        }
        if session.refusals() != refusals {
            return None;
        }
        backends.demand(from);
        if held.is_none() {
            held = Some(Held::new(&session)?);
        }
        tokio::select! {
            () = revived => {}
            () = sleep_until(until) => return None,
            // A new process of the client may have taken over, so the backend may be another
            // session.
            () = sleep(Duration::from_millis(200)) => {}
        }
        if !is_current() {
            return None;
        }
        session = backends.awaited();
    }
}

/// A place among the held visitors of a session. Dropping it frees the place.
struct Held(Arc<Session>);

impl Held {
    fn new(session: &Arc<Session>) -> Option<Self> {
        if session.held.fetch_add(1, Ordering::Relaxed) >= HELD_MAX {
            session.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(Arc::clone(session)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a visitor that another worker accepted.
pub(super) fn arrive(worker: &Rc<Worker>, visitor: MovingVisitor) {
    if !visitor.is_current() {
        return back(worker, visitor);
    }
    if settings_of(worker, &visitor.entrance).is_none() {
        // The entrance was closed meanwhile.
        return refuse(worker, visitor);
    }
    let entrance = Arc::clone(&visitor.entrance);
    match visitor.attach() {
        // The backends and their terms may have changed while the visitor was held.
        Ok(entering) => enter(worker, &entrance, entering),
        Err(error) => tracing::debug!(service = entrance.name(), %error, "visitor lost"),
    }
}

fn refuse(worker: &Rc<Worker>, visitor: MovingVisitor) {
    // The refusal is counted only while the entrance exists. The visitor is refused in any case.
    let settings = settings_of(worker, &visitor.entrance).unwrap_or_default();
    let is_away = visitor.entrance.backends.are_away();
    let Ok(EnteringVisitor { socket, peer, origin, until, attempts, .. }) = visitor.attach() else {
        return;
    };
    if attempts.first.is_empty() && pass_on(&socket, &origin) {
        return;
    }
    match origin {
        // The door gives the response that a new visitor would get.
        VisitorOrigin::Name(NameVisitor { door, lead, first, fields, .. })
            if is_away && lead.space == Space::Http =>
        {
            settings.stats.count_refused(ResetCode::Shutdown);
            door.again(worker, (socket, peer), lead.space, (first, fields), until);
        }
        origin @ (VisitorOrigin::Name(_) | VisitorOrigin::Port(_) | VisitorOrigin::Request(..)) => {
            let entering =
                EnteringVisitor { socket, peer, origin, preferred: None, until, attempts };
            turn_away(worker, entering, &settings, Answer::Down(ResetCode::Shutdown));
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Target;
    use proto::control::ServiceTerms;
    use relay::Gate;

    use super::*;
    use crate::aim::Aim;
    use crate::session::HOLD;

    fn backends(session: &Arc<Session>) -> Backends {
        let aim = Aim {
            name: "ssh".into(),
            target: Target::Service("ssh".into()),
            terms: ServiceTerms::default(),
            rules: None,
            proxy: None,
        };
        Backends::new(aim, session, Gate::new(None))
    }

    #[tokio::test(start_paused = true)]
    async fn a_visitor_is_held_10_s_in_all_however_often_a_link_comes_and_goes() {
        let session = Session::new("home", 2);
        let backends = backends(&session);
        let begun = Instant::now();
        let until = begun + HOLD;
        // Each new link fails before the visitor arrives at its worker.
        let flaps = async {
            for _ in 0..100 {
                sleep(Duration::from_secs(4)).await;
                session.set_live(1, true);
                tokio::task::yield_now().await;
                sleep(Duration::from_millis(1)).await;
                session.set_live(1, false);
            }
        };
        let visitor = async {
            let mut moves = 0;
            while live_worker(0, &backends, until, || true).await.is_some() {
                moves += 1;
                sleep(Duration::from_millis(2)).await;
            }
            (moves, begun.elapsed())
        };
        let (moves, held) = tokio::select! {
            () = flaps => panic!("the visitor is still held"),
            held = visitor => held,
        };
        assert_eq!((moves, held), (2, HOLD));
        // Long after its last link was lost, the client counts as disconnected.
        assert!(!session.is_away(), "a link was live a moment ago");
        sleep(HOLD).await;
        assert!(session.is_away());
        // The deadline has passed, although a link is live now.
        session.set_live(1, true);
        assert!(!session.is_away());
        assert_eq!(live_worker(0, &backends, until, || true).await, None);
        assert_eq!(live_worker(0, &backends, Instant::now() + HOLD, || true).await, Some(1));
    }
}
