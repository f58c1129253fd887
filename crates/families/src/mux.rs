//! `mux://`: carriers of connections that a door has accepted and classified.

use std::net::SocketAddr;
use std::sync::Arc;

use config::{Endpoint, Listen};
use net::Current;
use tls::ServerConfig;
use tokio::net::TcpStream;
use transport::Incoming;
use transport_tcp::Speech;
use transport_ws::Terms;

use super::material::ServerTls;
use super::{Renewal, Setup, ws};

/// The settings of the carriers of all `mux://` listeners.
#[derive(Clone, Debug)]
pub(super) struct MuxSide {
    tunnel: Option<ServerTls>,
    http: Option<ServerTls>,
    terms: Current<Terms>,
}

impl MuxSide {
    pub(super) fn new(setup: &Setup<'_>) -> anyhow::Result<Self> {
        Ok(Self {
            tunnel: ServerTls::new(setup, Speech::Tunnel)?,
            http: ServerTls::new(setup, Speech::Http)?,
            terms: ws::terms(setup.config)?.into(),
        })
    }

    pub(super) fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let renew = |tls: &Option<ServerTls>, speech| {
            tls.as_ref().map(|tls| tls.renewal(setup, speech)).transpose()
        };
        let (tunnel, http) =
            (renew(&self.tunnel, Speech::Tunnel)?, renew(&self.http, Speech::Http)?);
        let (current, terms) = (self.terms.clone(), ws::terms(setup.config)?);
        Ok(Box::new(move || {
            tunnel.into_iter().for_each(|renew| renew());
            http.into_iter().for_each(|renew| renew());
            current.replace(Arc::new(terms));
        }))
    }

    /// The carriers of one listener.
    pub(super) fn carriers(&self, listen: &Listen) -> MuxCarriers {
        let by = |tls: &Option<ServerTls>| tls.as_ref().map(|tls| tls.by(listen.client_ca));
        let Endpoint { path, .. } = &listen.endpoint;
        MuxCarriers {
            tunnel: by(&self.tunnel),
            http: by(&self.http),
            path: path.as_deref().map(Arc::from),
            terms: self.terms.clone(),
        }
    }
}

/// Makes carriers of the connections of one `mux://` listener.
#[derive(Clone, Debug)]
pub struct MuxCarriers {
    tunnel: Option<Current<ServerConfig>>,
    http: Option<Current<ServerConfig>>,
    path: Option<Arc<str>>,
    terms: Current<Terms>,
}

impl MuxCarriers {
    /// The path of WebSockets; `None`: no WebSocket is a carrier.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The path of WebRTC offers; `None`: offers are not accepted.
    pub fn offers(&self) -> Option<Arc<str>> {
        self.terms.get().offers.clone().filter(|_| self.path.is_some())
    }

    /// A carrier of `tls://`.
    pub fn tls(&self, socket: TcpStream, peer: SocketAddr) -> Option<Box<dyn Incoming>> {
        let tls = self.tunnel.as_ref()?.get();
        Some(transport_tcp::accepted(socket, peer, Some(tls), Speech::Tunnel))
    }

    /// A carrier of `wss://`, after TLS that this server terminates with its own certificate.
    pub fn wss(&self, socket: TcpStream, peer: SocketAddr) -> Option<Box<dyn Incoming>> {
        let (tls, path) = (self.http.as_ref()?.get(), self.path.clone()?);
        let inner = transport_tcp::accepted(socket, peer, Some(tls), Speech::Http);
        Some(transport_ws::accepted(inner, Some(path), self.terms.get()))
    }

    /// A carrier of `ws://`.
    pub fn ws(&self, socket: TcpStream, peer: SocketAddr) -> Option<Box<dyn Incoming>> {
        let path = self.path.clone()?;
        let inner = transport_tcp::accepted(socket, peer, None, Speech::Http);
        Some(transport_ws::accepted(inner, Some(path), self.terms.get()))
    }
}
