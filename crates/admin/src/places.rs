//! The places of the connections. When all are taken, the connection that has been idle longest is
//! closed for a new one. Connections that only wait, whoever opened them, therefore keep nobody
//! out: a probe of `/healthz` is always answered.
//!
//! ```text
//!   Idle --a request with a right token--> Answers --answer made--> Sends --answer sent--> Idle
//! ```
//! A connection is closed for another one in `Idle` only. A request without a token, or with a wrong
//! one, leaves it there.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Most connections at a time: enough for a few scrapers and a browser page with its requests.
pub(super) const PLACES: usize = 32;

/// All places; see the module.
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
    /// The connections by number, in the order in which they came.
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    state: State,
    /// The connection came, or was last used.
    since: Instant,
    /// The drop closes the connection.
    _open: oneshot::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Answers,
    Sends,
}

/// The place of a connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Occupied(Seat);

/// What the requests of a connection know of its place.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    places: Places,
    number: u64,
}

impl Places {
    /// Takes a place. The receiver resolves when the connection must close for another one. While
    /// every connection has a request with a right token, this waits for the first to be idle.
    pub(super) async fn take(&self) -> (Occupied, oneshot::Receiver<()>) {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            self.0.change.notified().await;
        }
    }

    fn try_take(&self) -> Option<(Occupied, oneshot::Receiver<()>)> {
        let mut table = self.table();
        if table.taken.len() >= PLACES {
            let idle = table.taken.iter().filter(|(_, one)| one.state == State::Idle);
            let (&oldest, _) = idle.min_by_key(|(_, one)| one.since)?;
            table.taken.remove(&oldest);
            tracing::debug!("admin API: the connection that was idle longest makes room");
        }
        let number = table.next;
        table.next += 1;
        let (open, closed) = oneshot::channel();
        let taken = Taken { state: State::Idle, since: Instant::now(), _open: open };
        table.taken.insert(number, taken);
        Some((Occupied(Seat { places: self.clone(), number }), closed))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Occupied {
    pub(super) const fn seat(&self) -> &Seat {
        &self.0
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        let Self(Seat { places, number }) = self;
        places.table().taken.remove(number);
        places.0.change.notify_one();
    }
}

impl Seat {
    /// A request has come, with a token or without.
    pub(super) fn note_request(&self) {
        self.change(|one| one.since = Instant::now());
    }

    /// A request with a right token is under way as long as the value lives.
    pub(super) fn answer(&self) -> Answering {
        self.change(|one| one.state = State::Answers);
        Answering(self.clone())
    }

    /// All bytes of the connection are with the kernel.
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

/// A request with a right token, until its answer is made.
#[derive(Debug)]
pub(super) struct Answering(Seat);

impl Answering {
    /// The body of the answer. The request is under way until the body was taken.
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

/// The socket of a connection, which tells when an answer was sent. The server flushes it only when
/// it holds no more bytes itself, and after each answer.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) seat: Seat,
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
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.seat.note_sent();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, timeout};

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
        all[0].0.seat().note_request();
        let request = all[1].0.seat().answer();
        all.push(places.take().await);
        assert_eq!(closed(&mut all), [2], "the first has asked meanwhile, the second is answered");
        advance(Duration::from_millis(1)).await;
        drop(request);
        all.push(places.take().await);
        assert_eq!(closed(&mut all), [2, 3], "the answer is on its way");
        all[1].0.seat().note_sent();
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
        let mut requests: Vec<_> = all.iter().map(|one| one.0.seat().answer()).collect();
        let moment = Duration::from_secs(1);
        assert!(timeout(moment, places.take()).await.is_err());
        drop(requests.remove(5));
        assert!(timeout(moment, places.take()).await.is_err(), "not sent yet");
        all[5].0.seat().note_sent();
        assert!(timeout(moment, places.take()).await.is_ok());
        assert_eq!(closed(&mut all), [5]);
        drop(all.remove(7));
        assert!(timeout(moment, places.take()).await.is_ok());
    }
}
