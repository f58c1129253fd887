//! The listener of `tcp://` and `tls://` carriers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use net::socket::canonical;
use net::source::Proxies;
use net::{Current, died_in_queue};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use transport::{Carrier, CarrierError, Incoming, Listener, LocalFuture, Transport};

use crate::lane::bare;
use crate::socket::Socket;
use crate::tls::{self, Speech};

/// A listener of `tls://` with a TLS configuration, and of `tcp://` without.
#[derive(Debug)]
pub struct TcpListener {
    inner: tokio::net::TcpListener,
    local: SocketAddr,
    tls: Option<Current<ServerConfig>>,
    speech: Speech,
    proxies: Current<Proxies>,
}

impl TcpListener {
    /// Makes a listener in the runtime of this thread from a non-blocking listener of
    /// [`net::listen_group`].
    pub fn new(
        listener: std::net::TcpListener,
        tls: Option<Current<ServerConfig>>,
    ) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let inner = tokio::net::TcpListener::from_std(listener)?;
        let proxies = Proxies::default().into();
        Ok(Self { inner, local, tls, speech: Speech::Tunnel, proxies })
    }

    /// Sets the protocol that clients must speak inside TLS. The default is [`Speech::Tunnel`].
    #[must_use]
    pub fn speaking(self, speech: Speech) -> Self {
        Self { speech, ..self }
    }

    /// Sets the reverse proxies, whose connections are of many clients.
    #[must_use]
    pub fn behind(self, proxies: Current<Proxies>) -> Self {
        Self { proxies, ..self }
    }
}

impl Listener for TcpListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let (stream, remote) = loop {
            match ready!(self.inner.poll_accept(cx)) {
                Ok(accepted) => break accepted,
                // The error belongs to a connection that died in the queue (accept(2)), not to the
                // listener.
                Err(error) if died_in_queue(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        };
        Poll::Ready(Ok(Box::new(Accepted {
            stream,
            remote: canonical(remote),
            tls: self.tls.as_ref().map(Current::get),
            speech: self.speech,
            proxies: Some(self.proxies.get()),
        })))
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn transport(&self) -> Transport {
        if self.tls.is_some() { crate::TLS } else { crate::TCP }
    }
}

/// A connection that was accepted elsewhere, with TLS or without. The handshake reads it from its
/// first byte. `remote` is a canonical address (no IPv4-mapped IPv6).
#[must_use]
pub fn accepted(
    stream: TcpStream,
    remote: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    speech: Speech,
) -> Box<dyn Incoming> {
    Box::new(Accepted { stream, remote, tls, speech, proxies: None })
}

#[derive(Debug)]
struct Accepted {
    stream: TcpStream,
    remote: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    speech: Speech,
    proxies: Option<Arc<Proxies>>,
}

impl Incoming for Accepted {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn source(&self) -> Option<IpAddr> {
        let ip = self.remote.ip();
        self.proxies.as_ref().map_or(Some(ip), |proxies| proxies.source(ip))
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let socket = Socket::accepted(self.stream)?;
            match self.tls {
                Some(config) => tls::accept(socket, self.remote, &config, self.speech).await,
                None => Ok(bare(socket, self.remote)),
            }
        })
    }
}
