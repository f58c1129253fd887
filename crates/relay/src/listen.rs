//! The accept loop of one listening socket. The loop hands each socket to its handler and never
//! waits for a visitor.
//!
//! The loop pauses when the descriptors of `room` are used up, when the owner of the listener has
//! used up its share of them, and when accept(2) fails. Meanwhile the visitors wait in the kernel's
//! accept queue.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use net::died_in_queue;
use net::handover::serving;
use net::socket::{bound_segments, canonical};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Sleep, sleep};

use crate::room::Position;
use crate::stall_pressure;
use crate::throttle::Throttle;
use crate::{Room, Socket};

/// The number of sockets that the loop accepts before other tasks run; 64 take about 64 times 10
/// µs.
const BUDGET: usize = 64;

/// The pause after descriptors or memory ran out: long enough not to spin, and short enough for the
/// backlog to hold the visitors meanwhile.
const EXHAUSTED_WAIT: Duration = Duration::from_millis(100);

/// The logged reason when visitors wait although no system call failed.
const NO_ROOM: &str = "descriptors are used up but for those of links and commands";

/// The logged reason when the owner of a listener has used up its share of the descriptors.
const SHARE: &str = "the owner of this address has its share of the descriptors and others need \
    the rest";

/// Receives the visitors that a listener accepts.
pub trait Handler: fmt::Debug {
    /// Takes the socket of a visitor. The call must not block. A handler that cannot serve a
    /// visitor passes the socket to [`crate::refuse_socket`]. `peer` is `None` for a Unix socket.
    fn handle(&self, socket: Socket, peer: Option<SocketAddr>);

    /// Whether the owner of the listener may have one more visitor ([`crate::shares`]). Otherwise
    /// visitors wait in the kernel's accept queue. A handler that gets a visitor beyond the share
    /// refuses it.
    fn has_room(&self) -> bool {
        true
    }
}

/// Accepts visitors from `listener` in a task of this thread until the guard is dropped. Each
/// worker calls this function with its own socket of the group. Visitors wait while `room` is used
/// up.
pub fn listen(
    listener: std::net::TcpListener,
    handler: Rc<dyn Handler>,
    room: Room,
) -> io::Result<Listening> {
    listener.set_nonblocking(true)?;
    // A process that handed the listener over may have bounded its segments.
    bound_segments(&listener, false);
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    let here: Rc<Here> = Rc::new((address, Rc::clone(&handler)));
    HERE.with_borrow_mut(|all| {
        all.retain(|one| one.strong_count() > 0);
        all.push(Rc::downgrade(&here));
    });
    let socket = Rc::new(RefCell::new(Some(listener)));
    let source = Rc::clone(&socket);
    let mut is_bounded = false;
    let accept = move |cx: &mut Context<'_>| {
        let source = source.borrow();
        let Some(listener) = source.as_ref() else { return Poll::Pending };
        if stall_pressure::is_high() != is_bounded {
            is_bounded = !is_bounded;
            bound_segments(listener, is_bounded);
        }
        listener.poll_accept(cx).map_ok(|(socket, peer)| (socket.into(), Some(canonical(peer))))
    };
    let accepting = AcceptLoop::new(accept, address.to_string(), handler, room);
    let task = tokio::task::spawn_local(async move {
        serving().await;
        accepting.await;
    });
    Ok(Listening { here, socket, task: task.abort_handle() })
}

/// An address with its handler on this thread.
type Here = (SocketAddr, Rc<dyn Handler>);

thread_local! {
    /// The live listeners of this thread.
    static HERE: RefCell<Vec<Weak<Here>>> = const { RefCell::new(Vec::new()) };
}

/// Passes a visitor that the previous process accepted to the listener of this thread with the
/// address to which the visitor connected. Must be called inside the runtime of a worker.
///
/// # Errors
/// No listener of this thread has the address: the visitor is returned.
pub fn adopt(visitor: std::net::TcpStream) -> Result<(), std::net::TcpStream> {
    let Ok(at) = visitor.local_addr().map(canonical) else { return Ok(()) };
    let is_there = |listens: SocketAddr| {
        let listens = canonical(listens);
        listens.port() == at.port() && (listens.ip() == at.ip() || listens.ip().is_unspecified())
    };
    let live = HERE.with_borrow(|all| {
        let all = all.iter().filter_map(Weak::upgrade);
        // The exact address takes precedence over the wildcard address.
        all.filter(|here| is_there(here.0)).min_by_key(|here| here.0.ip().is_unspecified())
    });
    let Some(here) = live else { return Err(visitor) };
    let peer = visitor.peer_addr().map(canonical);
    let socket = visitor.set_nonblocking(true).and_then(|()| TcpStream::from_std(visitor));
    // A visitor that has disconnected needs no handling.
    if let (Ok(socket), Ok(peer)) = (socket, peer) {
        here.1.handle(socket.into(), Some(peer));
    }
    Ok(())
}

/// A live listener. Dropping it closes the socket at once, so the port is free immediately.
#[derive(Debug)]
pub struct Listening {
    here: Rc<Here>,
    socket: Rc<RefCell<Option<TcpListener>>>,
    task: AbortHandle,
}

impl Listening {
    /// The address of the listener, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.here.0
    }

    /// A duplicate of the listening socket: the port stays open when the listener is dropped.
    ///
    /// # Errors
    /// This process has no descriptor left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        let socket = self.socket.borrow();
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        socket.as_fd().try_clone_to_owned()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Only aborting the task would keep the socket open until the runtime drops the task.
        drop(self.socket.take());
        self.task.abort();
    }
}

pub(crate) struct AcceptLoop<A> {
    accept: A,
    address: String,
    handler: Rc<dyn Handler>,
    room: Room,
    /// Whether the last visitor took the last descriptor of the room.
    is_short: bool,
    /// Whether the last visitor took the last descriptor of the owner's share.
    has_share: bool,
    pause: Option<Pin<Box<Sleep>>>,
    complaints: Throttle,
}

impl<A> AcceptLoop<A> {
    pub(crate) fn new(accept: A, address: String, handler: Rc<dyn Handler>, room: Room) -> Self {
        let complaints = Throttle::default();
        let (is_short, has_share, pause) = (false, false, None);
        Self { accept, address, handler, room, is_short, has_share, pause, complaints }
    }

    /// Pauses the loop, so that visitors wait in the kernel's accept queue.
    fn wait(&mut self, why: &dyn fmt::Display) {
        if self.complaints.ready() {
            tracing::warn!(
                listener = %self.address,
                "visitors wait at {}, {why}; raise the limit of open files (LimitNOFILE)",
                self.address
            );
        }
        self.pause = Some(Box::pin(sleep(EXHAUSTED_WAIT)));
    }
}

impl<A> Future for AcceptLoop<A>
where
    A: FnMut(&mut Context<'_>) -> Poll<io::Result<(Socket, Option<SocketAddr>)>> + Unpin,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        for _ in 0..BUDGET {
            if let Some(pause) = &mut this.pause {
                if pause.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.pause = None;
            }
            if this.is_short && !this.room.is_there() {
                this.wait(&NO_ROOM);
                continue;
            }
            this.is_short = false;
            if this.has_share && !this.handler.has_room() {
                this.wait(&SHARE);
                continue;
            }
            this.has_share = false;
            match (this.accept)(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok((socket, peer))) => match this.room.place(&socket) {
                    Position::Inside => {
                        this.handler.handle(socket, peer);
                        this.has_share = !this.handler.has_room();
                    }
                    Position::Last => {
                        this.handler.handle(socket, peer);
                        this.is_short = true;
                    }
                    Position::Beyond => {
                        socket.reset_on_close();
                        this.is_short = true;
                    }
                },
                Poll::Ready(Err(error)) if died_in_queue(&error) => {
                    tracing::debug!(listener = %this.address, %error, "a visitor was gone");
                }
                Poll::Ready(Err(error)) => this.wait(&error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::io::Errno;
    use tokio::time::Instant;

    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl Handler for Nobody {
        fn handle(&self, _socket: Socket, _peer: Option<SocketAddr>) {}
    }

    /// Runs the loop over these errors and returns how long the loop took.
    async fn time_for(errors: Vec<Errno>) -> Duration {
        let done = Rc::new(Cell::new(None));
        let noted = Rc::clone(&done);
        let mut errors = errors.into_iter();
        let accept = move |_: &mut Context<'_>| match errors.next() {
            Some(errno) => Poll::Ready(Err(errno.into())),
            None => {
                noted.set(noted.get().or_else(|| Some(Instant::now())));
                Poll::Pending
            }
        };
        let address = "127.0.0.1:1".to_owned();
        let begin = Instant::now();
        let accepting = AcceptLoop::new(accept, address, Rc::new(Nobody), Room::default());
        let _ = tokio::time::timeout(Duration::from_secs(10), accepting).await;
        done.get().expect("the loop got past the errors").duration_since(begin)
    }

    #[tokio::test(start_paused = true)]
    async fn exhaustion_is_waited_out_and_dead_visitors_are_not() {
        let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        // ENOSPC is a full epoll table (epoll_ctl(2)). The other two represent errors that the loop
        // does not know.
        let others = [Errno::NOSPC, Errno::INVAL, Errno::BADF];
        let took = time_for([&exhausted[..], &others].concat()).await;
        assert!(took >= 7 * EXHAUSTED_WAIT && took < 8 * EXHAUSTED_WAIT, "{took:?}");
        let dead = [Errno::CONNABORTED, Errno::PROTO, Errno::NETUNREACH, Errno::PERM];
        assert!(time_for(dead.repeat(250)).await < EXHAUSTED_WAIT);
    }
}
