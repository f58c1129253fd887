//! Datagrams: DATAGRAM frames (RFC 9221). `settings.rs` limits the number of queued datagrams.
//!
//! quinn sends queued datagrams before the bytes of lanes, and would drop its oldest datagrams. The
//! queues are those of the link: quinn gets only as many datagrams as it has room for.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use quinn::{Connection, ConnectionError, SendDatagramError};
use transport::{Carried, Datagrams};

use crate::error::of_connection;
use crate::pending::PendingFuture;
use crate::settings::DATAGRAMS;

/// Bytes that quinn counts for a datagram besides its payload: the size of its own struct.
const PER_DATAGRAM: usize = 32;

/// The datagrams of a carrier, the same on both ends.
pub(crate) struct QuicDatagrams {
    connection: Connection,
    /// A datagram that waits for room, in quinn's form.
    sending: PendingFuture<Result<(), SendDatagramError>>,
    /// `sending` waits with the first datagram.
    is_blocked: bool,
    receiving: PendingFuture<Result<Bytes, ConnectionError>>,
}

impl QuicDatagrams {
    pub(crate) fn new(connection: Connection) -> Self {
        let (sending, receiving) = Default::default();
        Self { connection, sending, is_blocked: false, receiving }
    }
}

/// Drops the datagrams of a peer that has not logged in. quinn would keep [`DATAGRAMS`] bytes of
/// them.
pub(crate) struct Stranger {
    connection: Connection,
    receiving: PendingFuture<Result<Bytes, ConnectionError>>,
}

impl Stranger {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, receiving: PendingFuture::default() }
    }

    /// Drops the received datagrams, and wakes the task when more arrive.
    pub(crate) fn poll_drop(&mut self, cx: &mut Context<'_>) {
        let Self { connection, receiving } = self;
        while let Poll::Ready(Ok(_)) = receiving.poll(cx, || {
            let connection = connection.clone();
            async move { connection.read_datagram().await }
        }) {}
    }

    /// Drops datagrams while another future runs.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.poll_drop(cx);
            work.as_mut().poll(cx)
        })
        .await
    }
}

/// The error of a datagram that ends the connection. A datagram that became too long, because the
/// path's MTU has shrunk, is lost as on any path.
fn sent(outcome: Result<(), SendDatagramError>) -> io::Result<()> {
    match outcome {
        Err(SendDatagramError::ConnectionLost(error)) => Err(of_connection(&error)),
        Ok(())
        | Err(
            SendDatagramError::TooLarge
            | SendDatagramError::UnsupportedByPeer
            | SendDatagramError::Disabled,
        ) => Ok(()),
    }
}

impl Datagrams for QuicDatagrams {
    fn limit(&self) -> usize {
        self.connection.max_datagram_size().unwrap_or(0)
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        datagrams: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let Self { connection, sending, is_blocked, .. } = self;
        let mut taken = 0;
        // quinn counts some bytes besides the payload: the last datagram may find no room.
        let mut room = connection.datagram_send_buffer_space();
        while let Some(next) = datagrams.front() {
            let length = next.len() + PER_DATAGRAM;
            if length <= room && !*is_blocked {
                room -= length;
                sent(connection.send_datagram(next.clone()))?;
            } else {
                // The datagram stays in front until quinn has accepted it.
                let (own, next) = (connection.clone(), next.clone());
                let polled = sending.poll(cx, || async move { own.send_datagram_wait(next).await });
                *is_blocked = polled.is_pending();
                match polled {
                    Poll::Ready(outcome) => sent(outcome)?,
                    Poll::Pending if taken == 0 => return Poll::Pending,
                    Poll::Pending => break,
                }
                room = connection.datagram_send_buffer_space();
            }
            datagrams.pop_front();
            taken += 1;
        }
        Poll::Ready(Ok(taken))
    }

    fn carried(&self) -> Carried {
        let waiting = DATAGRAMS.saturating_sub(self.connection.datagram_send_buffer_space());
        Carried { packets: self.connection.stats().udp_tx.bytes, waiting: waiting as u64 }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let Self { connection, receiving, .. } = self;
        if receiving.is_idle() {
            // A received datagram costs no allocation. quinn forgets tasks that polled in vain.
            let first = pin!(connection.read_datagram());
            if let Poll::Ready(received) = first.poll(cx) {
                return Poll::Ready(received.map_err(|error| of_connection(&error)));
            }
        }
        let received = receiving.poll(cx, || {
            let connection = connection.clone();
            async move { connection.read_datagram().await }
        });
        received.map_err(|error| of_connection(&error))
    }
}

impl fmt::Debug for QuicDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuicDatagrams({})", self.connection.stable_id())
    }
}
