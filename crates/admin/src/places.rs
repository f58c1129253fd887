//! The connection slots. When all slots are taken, the connection that has been idle longest is
//! closed for a new connection. Waiting connections, whoever opened them, therefore block no
//! others: a probe of `/healthz` is always answered.
//!
//! ```text
//!   Idle --a request with a right token--> Answers --answer made--> Sends --answer sent--> Idle
//! ```
//! A connection may be closed for another in state `Idle`, or when its client has accepted no byte
//! of a response for [`STUCK`]. A request without a valid token leaves it in `Idle`.
//!
//! The read-only token is given to less trusted programs: its requests have at most [`OF_READERS`]
//! slots, and a further request is refused. The other slots remain for probes and for the holders
//! of `admin.token`.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

/// The largest number of connections at a time: enough for a few scrapers and a browser page with
/// its requests.
pub(super) const PLACES: usize = 32;

/// The largest number of connections with a request of the read-only token at a time: a quarter of
/// the slots remains.
pub(super) const OF_READERS: usize = 24;

/// A client that accepts no byte of its response for this time is closed for another, when all
/// slots are taken. Clients on mobile paths pause for less, and probes wait for longer.
const STUCK: Duration = Duration::from_secs(1);

/// The interval of checks for a client that accepts no byte, while a new connection waits.
const LOOK: Duration = Duration::from_millis(100);

/// All slots; see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// A connection has ended or has become idle.
    change: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// The connections by number, in order of arrival.
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    state: State,
    /// When the connection arrived, or was last used.
    since: Instant,
    /// The current request carries the read-only token.
    is_reader: bool,
    /// Since when the client has accepted no byte while bytes wait for it.
    stuck: Option<Instant>,
    /// Dropping it closes the connection.
    _open: oneshot::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Answers,
    Sends,
}

/// The slot of a connection. Dropping it releases the slot.
#[derive(Debug)]
pub(super) struct Occupied(SlotHandle);

/// The handle by which the requests of a connection refer to its slot.
#[derive(Clone, Debug)]
pub(super) struct SlotHandle {
    places: Places,
    number: u64,
}

impl Places {
    /// Takes a slot. The receiver resolves when the connection must close for another. While every
    /// connection has a request with a valid token whose client accepts its response, this waits
    /// for the first idle connection.
    pub(super) async fn take(&self) -> (Occupied, oneshot::Receiver<()>) {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            // A client that stops reading causes no event.
            let _ = timeout(LOOK, self.0.change.notified()).await;
        }
    }

    fn try_take(&self) -> Option<(Occupied, oneshot::Receiver<()>)> {
        let mut table = self.table();
        if table.taken.len() >= PLACES {
            let leaves = table.idle().or_else(|| table.stuck(Instant::now()))?;
            table.taken.remove(&leaves);
            tracing::debug!("admin API: a connection that was idle or does not read makes room");
        }
        let number = table.next;
        table.next += 1;
        let (open, closed) = oneshot::channel();
        let (state, since) = (State::Idle, Instant::now());
        let taken = Taken { state, since, is_reader: false, stuck: None, _open: open };
        table.taken.insert(number, taken);
        Some((Occupied(SlotHandle { places: self.clone(), number }), closed))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The connection that has been idle longest.
    fn idle(&self) -> Option<u64> {
        let idle = self.taken.iter().filter(|(_, one)| one.state == State::Idle);
        idle.min_by_key(|(_, one)| one.since).map(|(number, _)| *number)
    }

    /// The connection whose client has accepted no byte for the longest time.
    fn stuck(&self, now: Instant) -> Option<u64> {
        let stuck = self.taken.iter().filter_map(|(number, one)| Some((one.stuck?, *number)));
        let (since, number) = stuck.min()?;
        (now.saturating_duration_since(since) >= STUCK).then_some(number)
    }
}

impl Occupied {
    pub(super) const fn handle(&self) -> &SlotHandle {
        &self.0
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        let Self(SlotHandle { places, number }) = self;
        places.table().taken.remove(number);
        places.0.change.notify_one();
    }
}

impl SlotHandle {
    /// A request has arrived, with or without a token.
    pub(super) fn note_request(&self) {
        self.change(|one| one.since = Instant::now());
    }

    /// A request with a valid token is in progress for the lifetime of the value. `None`: the token
    /// is read-only, and its requests already have all the slots that they may have.
    pub(super) fn answer(&self, is_reader: bool) -> Option<Answering> {
        let mut table = self.places.table();
        let of_readers = |(number, one): &(&u64, &Taken)| {
            one.is_reader && one.state != State::Idle && **number != self.number
        };
        if is_reader && table.taken.iter().filter(of_readers).count() >= OF_READERS {
            return None;
        }
        if let Some(one) = table.taken.get_mut(&self.number) {
            (one.state, one.is_reader) = (State::Answers, is_reader);
        }
        Some(Answering(self.clone()))
    }

    /// Records that the client accepts no bytes, or accepts bytes again.
    fn note_stuck(&self, is_stuck: bool) {
        self.change(|one| one.stuck = is_stuck.then(Instant::now));
    }

    /// All bytes of the connection were passed to the kernel.
    fn note_sent(&self) {
        let mut is_idle = false;
        self.change(|one| {
            if one.state == State::Sends {
                (one.state, one.since) = (State::Idle, Instant::now());
                is_idle = true;
            }
        });
        if is_idle {
            self.places.0.change.notify_one();
        }
    }

    fn change(&self, change: impl FnOnce(&mut Taken)) {
        self.places.table().taken.get_mut(&self.number).map(change);
    }
}

/// A request with a valid token, until its response is made.
#[derive(Debug)]
pub(super) struct Answering(SlotHandle);

impl Answering {
    /// The body of the response. The request is in progress until the body was read.
    pub(super) fn body(self, body: Body) -> Body {
        Body::new(Answer { body, _request: self })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.change(|one| one.state = State::Sends);
    }
}

#[derive(Debug)]
struct Answer {
    body: Body,
    _request: Answering,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The socket of a connection, which reports when a response was sent. The server flushes it only
/// when it holds no more bytes itself, and after each response.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    handle: SlotHandle,
    /// The last write was blocked.
    is_stuck: bool,
}

impl Socket {
    pub(super) const fn new(stream: TcpStream, handle: SlotHandle) -> Self {
        Self { stream, handle, is_stuck: false }
    }

    /// Records whether the client accepts bytes.
    fn wrote(&mut self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if outcome.is_pending() != self.is_stuck {
            self.is_stuck = outcome.is_pending();
            self.handle.note_stuck(self.is_stuck);
        }
        outcome
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.note_sent();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    type One = (Occupied, oneshot::Receiver<()>);

    async fn full() -> (Places, Vec<One>) {
        let places = Places::default();
        let mut all = Vec::new();
        for _ in 0..PLACES {
            all.push(places.take().await);
            advance(Duration::from_millis(1)).await;
        }
        (places, all)
    }

    fn closed(all: &mut [One]) -> Vec<usize> {
        let is_closed =
            |one: &mut One| one.1.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        all.iter_mut().enumerate().filter_map(|(n, one)| is_closed(one).then_some(n)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_was_idle_longest_makes_room() {
        let (places, mut all) = full().await;
        assert!(closed(&mut all).is_empty());
        all[0].0.handle().note_request();
        let request = all[1].0.handle().answer(false);
        all.push(places.take().await);
        assert_eq!(closed(&mut all), [2], "the first has asked meanwhile, the second is answered");
        advance(Duration::from_millis(1)).await;
        drop(request);
        all.push(places.take().await);
        assert_eq!(closed(&mut all), [2, 3], "the answer is on its way");
        all[1].0.handle().note_sent();
        for _ in 4..PLACES {
            all.push(places.take().await);
        }
        assert_eq!(closed(&mut all), (2..PLACES).collect::<Vec<_>>());
        all.push(places.take().await);
        assert_eq!(closed(&mut all), [0].into_iter().chain(2..PLACES).collect::<Vec<_>>());
        // A connection that ends frees its place, and a closed one has freed it already.
        all.drain(2..4);
        all.pop();
        all.push(places.take().await);
        assert_eq!(places.table().taken.len(), PLACES);
        assert!(closed(&mut all[1..2]).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn while_all_are_answered_a_new_one_waits_for_the_first_to_be_idle() {
        let (places, mut all) = full().await;
        let mut requests: Vec<_> = all.iter().map(|one| one.0.handle().answer(false)).collect();
        let moment = Duration::from_secs(1);
        assert!(timeout(moment, places.take()).await.is_err());
        drop(requests.remove(5));
        assert!(timeout(moment, places.take()).await.is_err(), "not sent yet");
        all[5].0.handle().note_sent();
        assert!(timeout(moment, places.take()).await.is_ok());
        assert_eq!(closed(&mut all), [5]);
        drop(all.remove(7));
        assert!(timeout(moment, places.take()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_makes_room_when_all_places_are_taken() {
        let (places, mut all) = full().await;
        let _requests: Vec<_> = all.iter().map(|one| one.0.handle().answer(false)).collect();
        for one in &all[3..5] {
            one.0.handle().note_stuck(true);
            advance(Duration::from_millis(1)).await;
        }
        all[3].0.handle().note_stuck(false);
        let begin = Instant::now();
        all.push(places.take().await);
        assert_eq!(closed(&mut all), [4], "the other client reads again");
        assert!(begin.elapsed() <= STUCK + LOOK, "{:?}", begin.elapsed());
        // A new connection without a request would make room as well.
        let _last = all.last().map(|one| one.0.handle().answer(false));
        assert!(timeout(STUCK * 5, places.take()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_readers_leave_places_to_probes_and_to_the_other_token() {
        let (_places, all) = full().await;
        let ask = |is_reader| move |one: &One| one.0.handle().answer(is_reader);
        let mut readers: Vec<_> = all.iter().filter_map(ask(true)).collect();
        assert_eq!(readers.len(), OF_READERS);
        assert!(all[0].0.handle().answer(true).is_some(), "the next request of a connection");
        assert_eq!(all[OF_READERS..].iter().filter_map(ask(false)).count(), PLACES - OF_READERS);
        drop(readers.remove(7));
        assert!(all[PLACES - 1].0.handle().answer(true).is_none(), "the answer is not sent yet");
        all[7].0.handle().note_sent();
        assert!(all[PLACES - 1].0.handle().answer(true).is_some());
    }
}
