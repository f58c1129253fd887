//! Detects that the far end of a socket has vanished while bytes to it are unacknowledged.
//! Keepalive does not detect this, because the system probes only a connection without such bytes.
//! The system gives up after about 15 min (tcp(7), `tcp_retries2`).
//!
//! One task per thread checks all sockets to which bytes were written, every [`SWEEP`], by a query
//! to the kernel ([`net::tcp_info`]). A socket without an acknowledgement in [`SILENT`] consecutive
//! checks is considered dead. A far end that is alive but does not read acknowledges zero-window
//! probes at least every 120 s, so it may pause for any time. This differs from `TCP_USER_TIMEOUT`.
//!
//! A stream without bytes in flight costs only its entry in the list, and no stream has a timer.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use net::tcp_info::{Ends, Kernel};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, spawn_local, yield_now};
use tokio::time::{Instant, sleep};

/// The time between two checks. A query to the kernel takes about 3 µs.
pub(crate) const SWEEP: Duration = Duration::from_secs(15);

/// Consecutive checks without an acknowledgement until the far end counts as vanished. The first
/// check is up to [`SWEEP`] after the far end vanished and 285 s before the last check, so the
/// socket is closed within 5 min.
const SILENT: u8 = 20;

/// Sockets checked before other tasks run; 64 take about 0.2 ms.
const AT_ONCE: usize = 64;

/// The pause between checks after some sockets have become idle. The allocator returns freed pages
/// to the system when it frees another page more than 10 ms later, so the memory of connections is
/// freed in portions.
const PAUSE: Duration = Duration::from_millis(20);

/// The largest number of pauses in a sweep, so that they delay no check by more than 5 s.
const PAUSES: u32 = 250;

/// What the kernel reports about a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Bytes are unacknowledged or unsent.
    pub(crate) outstanding: bool,
    /// The time since the far end acknowledged anything.
    pub(crate) last_ack: Duration,
}

/// Queries the state of a connection. `None`: the state is unknown.
pub(crate) type Ask<'a> = dyn FnMut(Ends) -> Option<Seen> + 'a;

/// A socket, or two joined sockets, to be checked.
pub(crate) trait Watched {
    /// Checks the socket. `since` is the time since the last check.
    fn look(&self, ask: &mut Ask<'_>, since: Duration);
}

/// The state of the bytes that were written to a socket.
#[derive(Debug, Default)]
pub(crate) struct OnTheWay {
    /// Bytes were written since the kernel last had none outstanding.
    wrote: Cell<bool>,
    /// Consecutive checks without an acknowledgement.
    silent: Cell<u8>,
}

impl OnTheWay {
    /// Notes that bytes were written.
    pub(crate) fn note(&self) {
        self.wrote.set(true);
    }

    /// Whether the far end may still have to acknowledge bytes.
    pub(crate) fn is_awaited(&self) -> bool {
        self.wrote.get()
    }

    /// Whether the far end has vanished.
    pub(crate) fn is_lost(&self) -> bool {
        self.silent.get() >= SILENT
    }

    /// Checks the connection between `ends`. Returns true when this check finds that the far end
    /// has vanished.
    pub(crate) fn look(
        &self,
        ends: impl FnOnce() -> Option<Ends>,
        ask: &mut Ask<'_>,
        since: Duration,
    ) -> bool {
        if !self.wrote.get() || self.is_lost() {
            return false;
        }
        let Some(seen) = ends().and_then(ask) else {
            self.silent.set(0);
            return false;
        };
        if !seen.outstanding {
            self.wrote.set(false);
            self.silent.set(0);
        } else if seen.last_ack < since {
            self.silent.set(1);
        } else {
            self.silent.set(self.silent.get() + 1);
        }
        self.is_lost()
    }
}

/// The two ends of a TCP socket.
pub(crate) fn ends(socket: &TcpStream) -> Option<Ends> {
    Some(Ends { local: socket.local_addr().ok()?, remote: socket.peer_addr().ok()? })
}

#[derive(Default)]
struct All {
    sockets: Vec<Weak<dyn Watched>>,
    task: Option<AbortHandle>,
}

thread_local! {
    static ALL: RefCell<All> = RefCell::default();
}

/// Checks a socket from now on, in a task of this thread, until the socket is dropped.
pub(crate) fn watch(socket: Weak<dyn Watched>) {
    ALL.with_borrow_mut(|all| {
        // The list is purged before it grows, so its memory stays proportional to the number of
        // sockets.
        if all.sockets.len() == all.sockets.capacity() {
            all.sockets.retain(|socket| socket.strong_count() > 0);
        }
        all.sockets.push(socket);
        // A task whose runtime has ended counts as finished, too.
        if all.task.as_ref().is_none_or(AbortHandle::is_finished) {
            all.task = Some(spawn_local(sweep()).abort_handle());
        }
    });
}

/// Checks all sockets until there is none.
async fn sweep() {
    let mut last = Instant::now();
    loop {
        sleep(SWEEP).await;
        let since = last.elapsed();
        last = Instant::now();
        let mut sockets = ALL.with_borrow_mut(|all| std::mem::take(&mut all.sockets));
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.shrink_to(2 * sockets.len());
        let mut kernel = None;
        let (mut first, mut pauses) = (0, 0);
        while first < sockets.len() {
            let end = sockets.len().min(first + AT_ONCE);
            for socket in sockets[first..end].iter().filter_map(Weak::upgrade) {
                socket.look(&mut |ends| seen(&mut kernel, ends), since);
            }
            let has_ended = forget_ended(&mut sockets[first.saturating_sub(AT_ONCE)..end]);
            first = end;
            if has_ended && pauses < PAUSES {
                pauses += 1;
                sleep(PAUSE).await;
            } else {
                yield_now().await;
            }
        }
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.shrink_to(2 * sockets.len());
        let is_over = ALL.with_borrow_mut(|all| {
            // Sockets may have been added meanwhile.
            sockets.append(&mut all.sockets);
            all.sockets = sockets;
            if all.sockets.is_empty() {
                all.task = None;
            }
            all.sockets.is_empty()
        });
        if is_over {
            return;
        }
    }
}

/// Frees the memory of sockets that have ended or become idle, which the weak references in the
/// list keep allocated. Returns whether there were any.
fn forget_ended(sockets: &mut [Weak<dyn Watched>]) -> bool {
    let nothing: Weak<dyn Watched> = Weak::<Attention>::new();
    let mut has_ended = false;
    for socket in sockets {
        if socket.strong_count() == 0 && !socket.ptr_eq(&nothing) {
            *socket = Weak::clone(&nothing);
            has_ended = true;
        }
    }
    has_ended
}

/// Queries the kernel. Opens the socket to the kernel at the first query of a sweep.
fn seen(kernel: &mut Option<Kernel>, ends: Ends) -> Option<Seen> {
    let asking = match kernel {
        Some(kernel) => kernel,
        None => kernel.insert(
            Kernel::open()
                .inspect_err(|error| tracing::debug!(%error, "vanished visitors: no netlink"))
                .ok()?,
        ),
    };
    let (_, info) = asking.ask(ends).ok()??;
    Some(Seen {
        outstanding: info.unacked_segments? > 0 || info.unsent_bytes.is_some_and(|n| n > 0),
        last_ack: Duration::from_millis(info.last_ack_millis?),
    })
}

/// A byte stream over TCP that fails when its far end has vanished. Once the far end has ended its
/// direction, a flush fails when the connection is broken, because no read reports it any more.
#[derive(Debug)]
pub struct Attended<S> {
    io: S,
    attention: Rc<Attention>,
    has_ended: bool,
}

#[derive(Debug)]
struct Attention {
    ends: Option<Ends>,
    on_the_way: OnTheWay,
    /// The waker of the task that waits for the stream.
    waker: RefCell<Option<Waker>>,
}

impl<S> Attended<S> {
    /// Watches `io`, whose bytes pass through `socket`.
    pub fn new(io: S, socket: impl FnOnce(&S) -> Option<&TcpStream>) -> Self {
        let ends = socket(&io).and_then(ends);
        let attention =
            Rc::new(Attention { ends, on_the_way: OnTheWay::default(), waker: RefCell::default() });
        if ends.is_some() {
            let watched: Rc<dyn Watched> = Rc::<Attention>::clone(&attention);
            watch(Rc::downgrade(&watched));
        }
        Self { io, attention, has_ended: false }
    }

    /// The stream.
    pub const fn get_ref(&self) -> &S {
        &self.io
    }

    /// Fails when the far end has vanished. Otherwise calls `how` and, if it is pending, stores the
    /// waker, so that the sweep wakes the task, too.
    fn used<T>(
        &mut self,
        cx: &mut Context<'_>,
        how: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>>
    where
        S: Unpin,
    {
        if self.attention.on_the_way.is_lost() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let outcome = how(Pin::new(&mut self.io), cx);
        if outcome.is_pending() {
            *self.attention.waker.borrow_mut() = Some(cx.waker().clone());
        }
        outcome
    }

    fn written(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(outcome, Poll::Ready(Ok(written)) if written > 0) {
            self.attention.on_the_way.note();
        }
        outcome
    }
}

impl Watched for Attention {
    fn look(&self, ask: &mut Ask<'_>, since: Duration) {
        if self.on_the_way.look(|| self.ends, ask, since)
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Attended<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.remaining();
        let outcome = self.used(cx, |io, cx| io.poll_read(cx, buf));
        self.has_ended |=
            matches!(outcome, Poll::Ready(Ok(()))) && before > 0 && buf.remaining() == before;
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Attended<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = self.used(cx, |io, cx| io.poll_write(cx, bytes));
        self.written(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = self.used(cx, |io, cx| io.poll_write_vectored(cx, slices));
        self.written(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_ended {
            // An empty write returns the pending error of the socket.
            let empty = self.used(cx, |io, cx| io.poll_write(cx, &[]));
            if let Poll::Ready(Err(error)) = empty {
                return Poll::Ready(Err(error));
            }
        }
        self.used(cx, |io, cx| io.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.used(cx, |io, cx| io.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    fn any_ends() -> Option<Ends> {
        let address = "192.0.2.1:1".parse().unwrap();
        Some(Ends { local: address, remote: address })
    }

    /// The check, out of 100, at which a far end counts as vanished. `last_ack` gives the time
    /// since the last acknowledgement at a time since the first byte, both in seconds.
    fn lost_at(outstanding: bool, last_ack: impl Fn(u64) -> u64) -> Option<u64> {
        let on_the_way = OnTheWay::default();
        on_the_way.note();
        (1..=100).find(|look| {
            let last_ack = Duration::from_secs(last_ack(look * 15));
            on_the_way.look(any_ends, &mut |_| Some(Seen { outstanding, last_ack }), SWEEP)
        })
    }

    #[test]
    fn a_far_end_that_acknowledges_nothing_is_lost_within_5_min() {
        let at = lost_at(true, |now| now).unwrap();
        assert_eq!(at * SWEEP.as_secs(), 300);
        // The connection was idle for an hour before the byte was written.
        assert_eq!(lost_at(true, |now| now + 3600), Some(at));
    }

    #[test]
    fn a_far_end_that_only_answers_probes_lives_for_ever() {
        assert_eq!(lost_at(true, |now| now % 120), None, "a closed window");
        assert_eq!(lost_at(true, |now| now % 284), None);
        assert_eq!(lost_at(false, |now| now), None, "nothing is on the way");
    }

    #[test]
    fn a_socket_without_written_bytes_costs_no_question() {
        let on_the_way = OnTheWay::default();
        let mut asked = 0;
        let mut look = |on_the_way: &OnTheWay| {
            let mut ask = |_: Ends| {
                asked += 1;
                Some(Seen { outstanding: false, last_ack: Duration::ZERO })
            };
            on_the_way.look(any_ends, &mut ask, SWEEP);
            asked
        };
        assert_eq!(look(&on_the_way), 0);
        on_the_way.note();
        assert_eq!(look(&on_the_way), 1);
        assert_eq!(look(&on_the_way), 1, "all bytes were acknowledged");
    }

    #[test]
    fn a_place_of_what_has_ended_keeps_no_memory() {
        let watched = |_| {
            Rc::new(Attention {
                ends: None,
                on_the_way: OnTheWay::default(),
                waker: RefCell::default(),
            })
        };
        let mut live: Vec<Rc<Attention>> = (0..3).map(watched).collect();
        let weak = |one: &Rc<Attention>| -> Weak<dyn Watched> {
            let one: Rc<dyn Watched> = Rc::<Attention>::clone(one);
            Rc::downgrade(&one)
        };
        let mut places: Vec<_> = live.iter().map(weak).collect();
        assert!(!forget_ended(&mut places));
        live.remove(1);
        assert!(forget_ended(&mut places));
        let nothing: Weak<dyn Watched> = Weak::<Attention>::new();
        let are_empty: Vec<_> = places.iter().map(|place| place.ptr_eq(&nothing)).collect();
        assert_eq!(are_empty, [false, true, false]);
        assert!(!forget_ended(&mut places), "it is counted once");
    }

    #[tokio::test]
    async fn a_flush_tells_that_a_connection_broke_after_the_end_of_its_far_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut near = Attended::new(TcpStream::from_std(near).unwrap(), |_| None);
        far.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(near.read(&mut [0; 4]).await.unwrap(), 0);
        near.flush().await.unwrap();
        // A close with this option is a reset.
        socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
        drop(far);
        while near.flush().await.is_ok() {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_fails_when_its_far_end_is_lost() {
        let (near, _far) = duplex(64);
        let mut near = Attended::new(near, |_| None);
        near.write_all(b"x").await.unwrap();
        let attention = Rc::clone(&near.attention);
        attention.on_the_way.silent.set(SILENT - 1);
        let reading = async { near.read_u8().await.unwrap_err().kind() };
        let looking = async {
            yield_now().await;
            let seen = Seen { outstanding: true, last_ack: Duration::MAX };
            let lost = attention.on_the_way.look(any_ends, &mut |_| Some(seen), SWEEP);
            assert!(lost);
            attention.waker.take().unwrap().wake();
        };
        let (kind, ()) = tokio::join!(reading, looking);
        assert_eq!(kind, io::ErrorKind::TimedOut);
    }
}
