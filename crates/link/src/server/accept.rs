//! Accepts links. The connections of a listener perform their handshakes and greetings
//! concurrently, each with a deadline, and each carrier is then passed to its link. Any process can
//! accept links: it provides a [`Verifier`], which decides who may log in, a [`Placement`], which
//! locates the links, and a [`Backlog`], which bounds the connections before their log-in.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use proto::greeting::NONCE_LENGTH;
use tokio::task::yield_now;
use transport::{Carrier, CarrierError, Incoming, Listener, LocalFuture, Peer};

use super::greeted::{Greeted, Welcome, continue_greeting, welcome};
use super::verifier::{OtherEnd, Verifier};
use crate::greet::GreetError;

/// The deadline of a handshake, without the greeting.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The wait after an error of the listener. The usual cause is exhaustion of descriptors.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// The connections of a listener before their log-in.
pub trait Backlog {
    /// Takes the next connection from the listener. `None`: there is no room for a connection.
    fn poll_accept(
        &self,
        listener: &mut dyn Listener,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Box<dyn Incoming>>>> {
        listener.poll_accept(cx).map(Some)
    }

    /// Begins the log-in of a connection ([`log_in`]) in a task. Returns false if there are now too
    /// many connections, so that an older one must be closed.
    fn begin(&self, incoming: Box<dyn Incoming>) -> bool;

    /// Closes a connection that has not logged in. Returns false if there is none.
    fn make_room(&self) -> LocalFuture<'_, bool> {
        Box::pin(async { false })
    }

    /// Reports that the listener at this address failed. Accepting is retried.
    fn failed(&self, at: SocketAddr, error: &io::Error);
}

/// Accepts the connections of a listener. Dropping the future ends the listener.
pub async fn accept(mut listener: Box<dyn Listener>, backlog: &dyn Backlog) {
    loop {
        match poll_fn(|cx| backlog.poll_accept(&mut *listener, cx)).await {
            None => {
                if !backlog.make_room().await {
                    tokio::time::sleep(EXHAUSTED).await;
                }
            }
            Some(Ok(incoming)) => {
                if !backlog.begin(incoming) {
                    backlog.make_room().await;
                }
                // Accepted connections proceed before new connections are accepted. A client aborts
                // a handshake that takes too long. A connection that waits in the listener is not
                // lost. (5,000 QUIC clients at once, the server on one core: 9-12 s and 0-580
                // attempts in vain; without this yield 13-24 s and 900-10,500.)
                yield_now().await;
            }
            Some(Err(error)) => {
                backlog.failed(listener.local_addr(), &error);
                if !backlog.make_room().await {
                    tokio::time::sleep(EXHAUSTED).await;
                }
            }
        }
    }
}

/// The placement of links in a process.
pub trait Placement {
    /// Called when the handshake of the connection is complete.
    fn handshake_done(&self, _peer: &Peer) {}

    /// Called when the client has enrolled: it has its token, and gets no link over this
    /// connection.
    fn enrolled(&self) {}

    /// Passes a greeted carrier to its link: to the link that it resumes, or to a new link. The
    /// link may be on another worker. Returns false if the link ended during the greeting.
    fn place(&self, greeted: Greeted) -> bool;

    /// Carries the bytes between a client and the process that has its link. A process whose
    /// verifier passes no carrier on is not called.
    fn pass_on(&self, _carrier: Carrier, _other: OtherEnd) {}
}

/// Why a connection did not log in.
#[derive(Debug, thiserror::Error)]
pub enum LogInError {
    /// The handshake of the transport failed, or exceeded its deadline.
    #[error(transparent)]
    Handshake(#[from] CarrierError),
    /// The greeting failed.
    #[error(transparent)]
    Greeting(#[from] GreetError),
    /// The link that the carrier should resume has ended.
    #[error("the link ended during the greeting")]
    LinkGone,
}

/// Logs a connection in: performs the handshake and the greeting, and passes the carrier to its
/// link.
///
/// # Errors
/// Why no carrier was added to a link. A refusal was sent to the client.
pub async fn log_in(
    incoming: Box<dyn Incoming>,
    verifier: &dyn Verifier,
    placement: &dyn Placement,
) -> Result<(), LogInError> {
    let (carrier, early) = tokio::time::timeout(HANDSHAKE, incoming.handshake_early())
        .await
        .map_err(|_| no_handshake())??;
    placement.handshake_done(&carrier.peer);
    settle(welcome(carrier, early, verifier).await?, placement).await
}

/// Logs a connection in whose greeting another process has begun with this nonce. The bytes of the
/// carrier begin with those of the client, and its peer is the client as the other process knows
/// it.
///
/// # Errors
/// As for [`log_in`].
pub async fn log_in_passed(
    carrier: Carrier,
    nonce: [u8; NONCE_LENGTH],
    verifier: &dyn Verifier,
    placement: &dyn Placement,
) -> Result<(), LogInError> {
    placement.handshake_done(&carrier.peer);
    settle(continue_greeting(carrier, nonce, verifier).await?, placement).await
}

async fn settle(welcome: Welcome, placement: &dyn Placement) -> Result<(), LogInError> {
    let mut greeted = match welcome {
        Welcome::Greeted(greeted) => *greeted,
        Welcome::Passed(carrier, other) => {
            placement.pass_on(*carrier, other);
            return Ok(());
        }
    };
    if greeted.grant.enrolled.is_some() {
        placement.enrolled();
        let close = poll_fn(|cx| greeted.carrier.lane.poll_close(cx));
        // A client that does not acknowledge the close has disconnected.
        let _ = tokio::time::timeout(HANDSHAKE, close).await;
        return Ok(());
    }
    if placement.place(greeted) { Ok(()) } else { Err(LogInError::LinkGone) }
}

fn no_handshake() -> CarrierError {
    let text = format!("no handshake within {} s", HANDSHAKE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text).into()
}
