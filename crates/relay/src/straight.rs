//! Visitors that are connected with a target on this side, without a link: visitors of the default
//! target of a port, and of a proxy. Both ends are those of a stream, joined by a `passage`.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use proto::{Budget, ResetCode};
use tokio::time::timeout;
use transport::Outlet;

use crate::dial::{Dialled, dial_for};
use crate::passage::{of_target, passage};
use crate::pipe::{ByteEnd, Layered, Pipe, Pump, StreamInlet};
use crate::visitor::{bar_socket, refuse_socket};
use crate::{
    Caller, ConnectionTable, Permit, Settings, Socket, Stats, TargetAddr, connect_stream, look,
};

/// The memory of a connection without queued bytes: two sockets with their registrations, two pipes
/// and the tasks of two pumps.
const STATE: u64 = 4 << 10;

/// Carries the bytes of a visitor and of its target until both directions have ended. `target`
/// takes the inlet of the stream of the target, and returns its outlet. The visitor is reset when
/// the target cannot be reached; when memory is short, it is reset and counted as refused. `table`:
/// the table in which the connection is listed. `is_announced`: the address of the socket differs
/// from that of the visitor, `peer`.
pub fn serve_here(
    (visitor, is_announced): (Socket, bool),
    peer: Option<SocketAddr>,
    settings: &Rc<Settings>,
    permit: Permit,
    table: &Rc<ConnectionTable>,
    target: impl FnOnce(StreamInlet) -> Rc<dyn Outlet>,
) {
    join(visitor.into(), (peer, is_announced), settings, (permit, STATE), Some(table), target);
}

/// As [`serve_here`], for a visitor whose bytes pass through a layer that holds `bytes` of memory.
pub fn serve_layered_here(
    (visitor, bytes): (Layered, u64),
    peer: Option<SocketAddr>,
    settings: &Rc<Settings>,
    permit: Permit,
    table: &Rc<ConnectionTable>,
    target: impl FnOnce(StreamInlet) -> Rc<dyn Outlet>,
) {
    join(visitor.into(), (peer, true), settings, (permit, STATE + bytes), Some(table), target);
}

/// Joins the ends of a connection whose memory without queued bytes is `bytes`.
fn join(
    visitor: ByteEnd,
    (peer, is_listed): (Option<SocketAddr>, bool),
    settings: &Rc<Settings>,
    (permit, bytes): (Permit, u64),
    table: Option<&Rc<ConnectionTable>>,
    target: impl FnOnce(StreamInlet) -> Rc<dyn Outlet>,
) {
    let Some(held) = settings.hold(bytes, peer) else { return visitor.reset_on_close() };
    let near = Pipe::guarded(Rc::clone(settings), (peer.into(), is_listed), None);
    let budget = held.budget().cloned();
    let budget = budget.as_ref();
    let StreamInlet { inlet, slot } =
        passage(budget, held, table, Rc::<Pipe>::clone(&near), target);
    match visitor {
        ByteEnd::Socket(socket) => near.connect(socket),
        visitor @ (ByteEnd::Layered(_) | ByteEnd::Observed(_)) => near.connect_layered(visitor),
    }
    Pump::new(near, inlet, Some(permit)).start(slot);
}

/// Connects the visitors of one worker with a target.
pub struct Straight {
    target: TargetAddr,
    /// The settings of the visitors' ends, which have the time-outs and the counters.
    near: Rc<Settings>,
    /// The settings of the targets' ends.
    far: Rc<Settings>,
}

/// The end that sends first on a connection whose visitor was silent.
#[derive(Debug)]
pub enum FirstWord<T> {
    /// The target sends or ends its direction, or the visitor ends its direction: the connection is
    /// for this target.
    Target(Dialled),
    /// The visitor sends. The target, if it is connected, has sent no byte.
    Visitor(T, Option<Dialled>),
    /// Neither: the visitor has disconnected, the target cannot be reached, or both are silent for
    /// the idle time-out of the target.
    Nobody(ResetCode),
}

impl Straight {
    /// Serves visitors by `target`. The memory of the connections is charged to `budget`.
    #[must_use]
    pub fn new(target: TargetAddr, settings: Rc<Settings>, budget: Rc<dyn Budget>) -> Rc<Self> {
        let near = Settings { budget: Some(budget), ..Settings::clone(&settings) };
        let far = Rc::new(of_target(&near));
        Rc::new(Self { target, near: Rc::new(near), far })
    }

    /// The counters of the visitors.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.near.stats
    }

    /// The target.
    #[must_use]
    pub const fn target(&self) -> &TargetAddr {
        &self.target
    }

    /// Dials the target and carries the bytes of a visitor until both directions have ended. The
    /// visitor is reset when memory is short, when there is no permit, and when the target cannot
    /// be reached. Each of these is counted as refused.
    pub fn serve(&self, visitor: Socket, peer: Option<SocketAddr>, permit: Option<Permit>) {
        let caller = Caller { visitor: peer.into(), ..Caller::default() };
        self.join(visitor, peer, permit, |inlet| {
            connect_stream(self.target.clone(), caller, inlet, &self.far, None)
        });
    }

    /// As [`Self::serve`], with a target that is connected already.
    pub fn serve_dialled(
        &self,
        visitor: Socket,
        peer: Option<SocketAddr>,
        permit: Option<Permit>,
        target: Dialled,
    ) {
        self.join(visitor, peer, permit, |inlet| {
            let far = Pipe::new(Rc::clone(&self.far), peer);
            far.connect_target(target.keep().into());
            let StreamInlet { inlet, slot } = inlet;
            Pump::new(Rc::clone(&far), inlet, None).start(slot);
            far
        });
    }

    fn join(
        &self,
        visitor: Socket,
        peer: Option<SocketAddr>,
        permit: Option<Permit>,
        target: impl FnOnce(StreamInlet) -> Rc<dyn Outlet>,
    ) {
        match permit {
            Some(permit) => {
                join(visitor.into(), (peer, false), &self.near, (permit, STATE), None, target);
            }
            None => refuse_socket(visitor, &self.near, ResetCode::Limit),
        }
    }

    /// Dials the target for a visitor that has sent no byte, and waits for the first bytes of
    /// either. `decide` gets the bytes of the visitor as in [`look`](crate::look()), which leaves
    /// them in the socket. The caller may drop the target as long as it has sent no byte.
    pub async fn first_word<T>(
        &self,
        visitor: &Socket,
        decide: impl FnMut(&[u8]) -> Option<T>,
    ) -> FirstWord<T> {
        let idle = self.near.timeouts.idle;
        let waiting = self.wait(visitor, decide);
        if idle.is_zero() {
            return waiting.await;
        }
        let dialling = self.far.timeouts.dial;
        let most = idle.saturating_add(dialling);
        timeout(most, waiting).await.unwrap_or(FirstWord::Nobody(ResetCode::Timeout))
    }

    async fn wait<T>(
        &self,
        visitor: &Socket,
        decide: impl FnMut(&[u8]) -> Option<T>,
    ) -> FirstWord<T> {
        let mut looking = pin!(look(visitor, decide));
        let mut dialling = pin!(dial_for(&self.far, &self.target, None));
        let mut target: Option<Dialled> = None;
        poll_fn(|cx| {
            if target.is_none()
                && let Poll::Ready(outcome) = dialling.as_mut().poll(cx)
            {
                match outcome {
                    Ok(dialled) => target = Some(dialled),
                    Err(error) => {
                        tracing::debug!(%error, "the default target cannot be reached");
                        return Poll::Ready(FirstWord::Nobody(error.code()));
                    }
                }
            }
            // If both have sent, the visitor takes precedence, because it has received nothing from
            // the target.
            if let Poll::Ready(found) = looking.as_mut().poll(cx) {
                return Poll::Ready(match (found, target.take()) {
                    (Ok(Some(found)), target) => FirstWord::Visitor(found, target),
                    (Ok(None), Some(target)) => FirstWord::Target(target),
                    (Ok(None) | Err(_), _) => FirstWord::Nobody(ResetCode::Aborted),
                });
            }
            match target.as_ref().map(|target| target.poll_speaks(cx)) {
                Some(Poll::Ready(())) => Poll::Ready(
                    target.take().map_or(FirstWord::Nobody(ResetCode::Aborted), FirstWord::Target),
                ),
                Some(Poll::Pending) | None => Poll::Pending,
            }
        })
        .await
    }

    /// Refuses a visitor without a target, and counts it.
    pub fn refuse(&self, visitor: Socket, code: ResetCode) {
        refuse_socket(visitor, &self.near, code);
    }

    /// Refuses a visitor whose address may not visit, and counts it.
    pub fn bar(&self, visitor: Socket) {
        bar_socket(visitor, &self.near);
    }
}

impl fmt::Debug for Straight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Straight({})", self.target)
    }
}
