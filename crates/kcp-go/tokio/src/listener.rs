//! A listener: many sessions on one socket.

use std::fmt;
use std::future::poll_fn;
use std::io::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use kcp_go::envelope::Seal;
use kcp_go::session::Session;
use kcp_go::wire::Conversation;

use crate::config::Config;
use crate::counters::Counters;
use crate::driver::{Driver, now};
use crate::end::End;
use crate::hub::Hub;
use crate::shared::Shared;
use crate::socket::PacketSocket;
use crate::stream::Stream;

/// Sessions that begin here and that the driver has not seen yet, at most.
const BEGUN: usize = 4096;

/// A socket on which peers begin sessions, and on which sessions to peers can begin.
///
/// As in kcp-go a peer is told by its address, and has one session at a time. When a listener is
/// dropped, its socket serves the streams that there are, and then ends.
pub struct Listener {
    hub: Arc<Hub>,
    config: Config,
    seal: Arc<dyn Seal>,
    address: SocketAddr,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on `socket`, driven by a task of the present runtime.
    ///
    /// # Errors
    ///
    /// The socket does not tell its address.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio.
    pub fn bind<S: PacketSocket + Send + 'static>(
        socket: S,
        config: Config,
        seal: Arc<dyn Seal>,
    ) -> Result<Self> {
        let (listener, driver) = Self::with_driver(socket, config, seal)?;
        tokio::spawn(driver);
        Ok(listener)
    }

    /// As [`bind`](Self::bind), and the caller polls the driver, be it on one thread.
    ///
    /// # Errors
    ///
    /// The socket does not tell its address.
    pub fn with_driver<S: PacketSocket>(
        socket: S,
        config: Config,
        seal: Arc<dyn Seal>,
    ) -> Result<(Self, Driver<S>)> {
        let address = socket.local_address()?;
        let hub = Arc::new(Hub::default());
        hub.lock().listens = true;
        let driver = Driver::new(socket, Arc::clone(&hub), config.clone(), Arc::clone(&seal));
        Ok((Self { hub, config, seal, address }, driver))
    }

    /// The address of the socket.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next session that a peer has begun.
    ///
    /// # Errors
    ///
    /// The driver has ended.
    pub async fn accept(&self) -> Result<(Stream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept).
    ///
    /// # Errors
    ///
    /// The driver has ended.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<(Stream, SocketAddr)>> {
        let mut inner = self.hub.lock();
        if let Some(shared) = inner.backlog.pop_front() {
            drop(inner);
            let peer = shared.peer;
            return Poll::Ready(Ok((Stream::of(shared), peer)));
        }
        if let Some(end) = &inner.end {
            return Poll::Ready(Err(end.error()));
        }
        inner.acceptors.add(cx);
        Poll::Pending
    }

    /// A stream to `peer` over this socket; see [`Stream::connect`]. Where there is a session with
    /// this peer, the stream fails with `AddrInUse`.
    ///
    /// # Errors
    ///
    /// The driver has ended, or 4,096 sessions wait for it to begin.
    pub fn connect(&self, peer: SocketAddr, conversation: Conversation) -> Result<Stream> {
        let mut config = self.config.session.clone();
        config.engine.conversation = conversation;
        config.nonces = Some(0);
        let session = Session::new(config, Arc::clone(&self.seal), now());
        let hub = Arc::clone(&self.hub);
        let shared = Shared::new(session, hub, (peer, conversation), self.config.linger);
        let shared = Arc::new(shared);
        self.hub.with(|inner| {
            if let Some(end) = &inner.end {
                return Err(end.error());
            }
            if inner.begun.len() >= BEGUN {
                return Err(Error::other("too many sessions begin at once"));
            }
            inner.begun.push_back(Arc::clone(&shared));
            Ok(())
        })?;
        Ok(Stream::of(shared))
    }

    /// What was counted so far, of the socket and of all its sessions.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let inner = self.hub.lock();
        let mut counters = inner.counters;
        let live: Vec<_> = inner.live.values().cloned().collect();
        drop(inner);
        for shared in live {
            counters.all += shared.lock().session.counters();
        }
        counters
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let backlog = self.hub.with(|inner| {
            inner.listens = false;
            std::mem::take(&mut inner.backlog)
        });
        for shared in backlog {
            shared.lock().end.get_or_insert(End::Left);
            shared.leave(now());
        }
    }
}
