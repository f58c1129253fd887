//! A stream over a socket of its own: a listener that accepts nothing.

use std::io::Result;
use std::net::SocketAddr;
use std::sync::Arc;

use kcp_go::envelope::Seal;
use kcp_go::wire::Conversation;

use super::Stream;
use crate::config::Config;
use crate::driver::Driver;
use crate::listener::Listener;
use crate::socket::PacketSocket;

impl Stream {
    /// A stream to `peer` over a socket of its own, driven by a task of the present runtime.
    /// Nothing is sent before the first write: KCP has no handshake.
    ///
    /// `conversation` is the number that both ends put into each segment. A client draws it at
    /// random, so that a peer does not take the new session for the last one.
    ///
    /// # Errors
    ///
    /// None so far.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio.
    pub fn connect<S: PacketSocket + Send + 'static>(
        socket: S,
        peer: SocketAddr,
        conversation: Conversation,
        config: Config,
        seal: Arc<dyn Seal>,
    ) -> Result<Self> {
        let (stream, driver) = Self::with_driver(socket, peer, conversation, config, seal)?;
        tokio::spawn(driver);
        Ok(stream)
    }

    /// As [`connect`](Self::connect), and the caller polls the driver, be it on one thread.
    ///
    /// # Errors
    ///
    /// None so far.
    pub fn with_driver<S: PacketSocket>(
        socket: S,
        peer: SocketAddr,
        conversation: Conversation,
        config: Config,
        seal: Arc<dyn Seal>,
    ) -> Result<(Self, Driver<S>)> {
        let (listener, driver) = Listener::with_driver(socket, config, seal)?;
        let stream = listener.connect(peer, conversation)?;
        Ok((stream, driver))
    }
}
