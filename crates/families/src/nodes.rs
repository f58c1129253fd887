//! `quic://` and `tls://` between the nodes of a cluster: both ends show a certificate of the
//! authority of the cluster, whose name says which node it is. `tcp://` has no certificates: both
//! ends prove their names in the greeting.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use config::{Common, Endpoint, Listen};
use net::Current;
use net::udp::Form;
use tls::{PEER_NAME, PeerFault, PeerMaterial, Pin, ServerConfig};
use transport::{ALPN, Dialer, Dialled, EarlyDataFn, LocalFuture, PathDialer, Transport};
use transport_quic::{Keys, QuicDialer, QuicListener, QuicServer};
use transport_tcp::{TcpDialer, TcpListener};

use super::{Bound, bind_tcp, bound_tcp, bound_udp, quic};

/// The transports between nodes.
#[derive(Debug)]
pub struct NodeTransports {
    /// `None`: the node speaks `tcp://` alone.
    tls: Option<TlsInUse>,
    /// The state of the listeners of `quic://`.
    quic: Mutex<Vec<QuicServer>>,
}

/// The certificates of a node that are in force.
#[derive(Debug)]
struct TlsInUse {
    material: Current<PeerMaterial>,
    server: Current<ServerConfig>,
    ca: PathBuf,
}

/// Certificates of a node that are read but not in force.
#[derive(Debug)]
pub struct NodeCertificates {
    material: PeerMaterial,
    server: Arc<ServerConfig>,
    ca: PathBuf,
}

impl NodeCertificates {
    /// Loads PEM files: the authority of the cluster, and the certificate of this node with its
    /// key.
    ///
    /// # Errors
    /// The file and the problem.
    pub fn load(ca: &Path, certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let material = PeerMaterial::load(ca, certificate, key)?;
        let server = tls::server_with_key_log(material.listener_config(&[ALPN])?);
        Ok(Self { material, server, ca: ca.to_owned() })
    }

    /// Verifies the certificate of this node as another node would.
    ///
    /// # Errors
    /// Why another node refuses the certificate.
    pub fn verify_own(&self, name: &str) -> Result<(), PeerFault> {
        self.material.verify_own(name)
    }
}

impl NodeTransports {
    /// Transports by these certificates; without certificates `tcp://` alone.
    #[must_use]
    pub fn new(certificates: Option<NodeCertificates>) -> Self {
        let tls = certificates.map(|NodeCertificates { material, server, ca }| TlsInUse {
            material: material.into(),
            server: server.into(),
            ca,
        });
        Self { tls, quic: Mutex::default() }
    }

    /// Replaces the certificates, for later connections. Without certificates there is nothing to
    /// replace.
    ///
    /// # Errors
    /// The file of the authority has changed since it was read, and the problem.
    pub fn renew(&self, certificates: NodeCertificates, common: &Common) -> anyhow::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let NodeCertificates { material, server, ca } = certificates;
        let listeners = self.quic.lock().unwrap_or_else(PoisonError::into_inner);
        let renewals = listeners.iter().map(|one| one.renewal(Some(&ca), quic::settings(common)));
        let renewals = renewals.collect::<Result<Vec<_>, _>>()?;
        tls.material.replace(Arc::new(material));
        tls.server.replace(server);
        renewals.into_iter().for_each(|renew| renew());
        Ok(())
    }

    /// Whether other nodes can be reached by this address.
    #[must_use]
    pub fn is_usable(endpoint: &Endpoint) -> bool {
        is_quic(endpoint) || is_tls(endpoint) || is_plain(endpoint)
    }

    /// Binds a port, with one socket for each worker. `state` is the directory of the keys by which
    /// nodes learn at once that this node has restarted.
    ///
    /// # Errors
    /// The node has no certificates for the transport, or the port cannot be bound.
    pub fn bind(
        &self,
        endpoint: &Endpoint,
        common: &Common,
        state: Option<&Path>,
        workers: usize,
    ) -> anyhow::Result<Bound> {
        let dscp = Default::default();
        let listen = Listen { endpoint: endpoint.clone(), client_ca: true, dscp, mux: None };
        if is_plain(endpoint) {
            return bound_tcp(bind_tcp(&listen, workers)?, move |socket| {
                Ok(Box::new(TcpListener::new(socket, None)?))
            });
        }
        let own = self.tls(endpoint)?;
        if is_tls(endpoint) {
            let tls = own.server.clone();
            return bound_tcp(bind_tcp(&listen, workers)?, move |socket| {
                Ok(Box::new(TcpListener::new(socket, Some(tls.clone()))?))
            });
        }
        if !is_quic(endpoint) {
            bail!(unusable(endpoint));
        }
        let keys = match state {
            Some(folder) => Keys::of(folder)?,
            None => Keys::fleeting()?,
        };
        let (tls, settings) = (own.server.clone(), quic::settings(common));
        let server = QuicServer::new(tls, Some(&own.ca), settings, keys, None)?;
        self.quic.lock().unwrap_or_else(PoisonError::into_inner).push(server.clone());
        let buffers = (Form::Quic, quic::sizes(&common.quic));
        bound_udp(
            &listen,
            workers,
            buffers,
            |_| Ok(0),
            move |socket, slot| Ok(Box::new(QuicListener::new(socket, slot, &server)?)),
        )
    }

    /// A path to the node whose certificate has this name, and this key if there is a pin. `number`
    /// is the number of the link; links with consecutive numbers reach different workers. Over
    /// `tcp://` the greeting proves the name.
    ///
    /// # Errors
    /// The node has no certificates for the transport, or TLS cannot be set up.
    pub fn path(
        &self,
        endpoint: &Endpoint,
        (name, pin): (&str, Option<Pin>),
        common: &Common,
        number: u8,
    ) -> anyhow::Result<link::Path> {
        let dialer: Rc<dyn Dialer> = if is_plain(endpoint) {
            Rc::new(TcpDialer::new(None))
        } else {
            let material = self.tls(endpoint)?.material.get();
            let config = material.client_config_with(name, pin, &[ALPN])?;
            let config = tls::client_with_key_log(config);
            // No SNI is sent, and the certificate is verified by `name`.
            let sni = tls::server_name(PEER_NAME)?;
            if is_tls(endpoint) {
                Rc::new(TcpDialer::new(Some(transport_tcp::TlsClient { config, name: sni })))
            } else if is_quic(endpoint) {
                let tls = transport_quic::TlsClient { config, name: sni };
                let (settings, sizes) = (quic::settings(common), quic::sizes(&common.quic));
                Rc::new(QuicDialer::new(&tls, settings, sizes).context("quic")?.steered(number))
            } else {
                bail!(unusable(endpoint));
            }
        };
        let host = link::Host { name: endpoint.host.bare(), port: endpoint.port, dialer };
        Ok(link::Path { url: endpoint.to_string(), dialer: Rc::new(Late(host)) })
    }

    /// The certificates for this address.
    fn tls(&self, endpoint: &Endpoint) -> anyhow::Result<&TlsInUse> {
        let missing = || {
            format!(
                "{endpoint}: this node has no certificates; set `ca`, `cert` and `key` of `peers`"
            )
        };
        self.tls.as_ref().with_context(missing)
    }
}

/// Whether nodes prove their names over this address without certificates, in the greeting.
#[must_use]
pub fn is_plain(endpoint: &Endpoint) -> bool {
    endpoint.scheme.name == transport_tcp::TCP.name()
}

/// As [`is_plain`], of a listener.
#[must_use]
pub fn is_plain_transport(transport: Transport) -> bool {
    transport == transport_tcp::TCP
}

fn is_quic(endpoint: &Endpoint) -> bool {
    endpoint.scheme.name == transport_quic::QUIC.name()
}

fn is_tls(endpoint: &Endpoint) -> bool {
    endpoint.scheme.name == transport_tcp::TLS.name()
}

fn unusable(endpoint: &Endpoint) -> String {
    format!("{endpoint}: nodes of a cluster reach each other by quic://, tls:// and tcp://")
}

/// The address of a bound listener, as other nodes dial it.
#[must_use]
pub fn with_port(endpoint: &Endpoint, bound: SocketAddr) -> Endpoint {
    Endpoint { port: bound.port(), ..endpoint.clone() }
}

/// A path that sends nothing before the handshake is done: the far end could not tell early data
/// of a node from its repetition.
#[derive(Debug)]
struct Late(link::Host);

impl PathDialer for Late {
    fn dial(&self, _: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
        self.0.dial(None)
    }
}
