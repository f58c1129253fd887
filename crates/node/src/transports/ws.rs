//! `wss://` and `ws://`: a WebSocket over TCP, with our own TLS or without TLS. Also plain HTTP
//! over the same connections.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::{Common, Endpoint, Listen, ServerConfig};
use net::Current;
use transport::PathDialer;
use transport_tcp::{Speech, TcpDialer, TcpListener, TlsClient, Via};
use transport_ws::{Request, Terms, WsDialer, WsListener};

use super::material::{NextHop, ServerTls};
use super::{
    Bound, Dials, Family, Listeners, Renewal, Setup, Unfit, bind_tcp, bound_tcp, material, proxies,
};

/// The longest time in which a WebSocket sends nothing. nginx and most load balancers close after
/// 60 s, some after 30 s, and up to twice this time can pass.
const STILL: Duration = Duration::from_secs(14);

pub(super) struct Ws;

impl Family for Ws {
    fn schemes(&self) -> &'static [&'static str] {
        const NAMES: &[&str] = &[transport_ws::WSS.name(), transport_ws::WS.name()];
        NAMES
    }

    fn check(&self, path: &config::Path) -> Result<(), Unfit> {
        let unfit =
            |why: transport_ws::BadField| Unfit { key: "headers", problem: why.to_string() };
        request(path).map(drop).map_err(unfit)
    }

    fn listeners(&self, setup: &Setup<'_>) -> anyhow::Result<Arc<dyn Listeners>> {
        let tls = ServerTls::new(setup, Speech::Http)?;
        Ok(Arc::new(WsListeners { tls, terms: terms(setup.config).into() }))
    }

    fn dials(&self, path: &config::Path, common: &Common) -> anyhow::Result<Arc<dyn Dials>> {
        let tls = material::tls_client(path, Speech::Http)?;
        let via = material::via(path).map(|(.., via)| via);
        let (request, ping_after) = (request(path)?, ping_after(common));
        Ok(Arc::new(WsDials { hop: NextHop::new(path), tls, via, request, ping_after }))
    }
}

#[derive(Debug)]
struct WsListeners {
    tls: Option<ServerTls>,
    terms: Current<Terms>,
}

impl Listeners for WsListeners {
    fn bind(&self, listen: &Listen, _: &Common, workers: usize) -> anyhow::Result<Bound> {
        let tls = material::tls_of(self.tls.as_ref(), listen)?;
        let (path, terms) = (listen.endpoint.path.clone(), self.terms.clone());
        bound_tcp(bind_tcp(&listen.endpoint, workers)?, move |socket| {
            let inner = TcpListener::new(socket, tls.clone())?.speaking(Speech::Http);
            Ok(Box::new(WsListener::new(inner, path.as_deref(), terms.clone())))
        })
    }

    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let tls = self.tls.as_ref().map(|tls| tls.renewal(setup, Speech::Http)).transpose()?;
        let (current, terms) = (self.terms.clone(), terms(setup.config));
        Ok(Box::new(move || {
            tls.into_iter().for_each(|renew| renew());
            current.replace(Arc::new(terms));
        }))
    }
}

#[derive(Debug)]
struct WsDials {
    hop: NextHop,
    tls: Option<TlsClient>,
    via: Option<Via>,
    request: Request,
    ping_after: Duration,
}

impl Dials for WsDials {
    fn dialer(&self, _: Option<u8>) -> Rc<dyn PathDialer> {
        let inner = TcpDialer::new(self.tls.clone()).through(self.via.clone());
        let inner = inner.speaking(Speech::Http);
        self.hop.dialled(WsDialer::new(inner, self.request.clone(), self.ping_after))
    }
}

/// The dialers of connections for HTTP: those of a WebSocket without the WebSocket handshake.
#[derive(Debug)]
pub(super) struct HttpDials {
    hop: NextHop,
    tls: Option<TlsClient>,
}

impl HttpDials {
    pub(super) fn new(path: &config::Path) -> anyhow::Result<Self> {
        Ok(Self { hop: NextHop::new(path), tls: material::tls_client(path, Speech::Http)? })
    }
}

impl Dials for HttpDials {
    fn dialer(&self, _: Option<u8>) -> Rc<dyn PathDialer> {
        self.hop.dialled(TcpDialer::new(self.tls.clone()).speaking(Speech::Http))
    }
}

pub(super) fn terms(config: &ServerConfig) -> Terms {
    Terms { proxies: proxies(config), ping_after: ping_after(&config.common) }
}

fn ping_after(common: &Common) -> Duration {
    STILL.min(common.keepalive.duration())
}

/// The request of the opening handshake of a WebSocket (RFC 6455 section 4.1).
pub(crate) fn request(path: &config::Path) -> Result<Request, transport_ws::BadField> {
    let Endpoint { scheme, host, port, path: place } = &path.endpoint;
    // RFC 9110 section 7.2: the port is left out where it is the scheme's own.
    let host = if *port == scheme.port { host.to_string() } else { format!("{host}:{port}") };
    let extra: Vec<_> = (path.headers.iter())
        .map(|field| (field.name.clone(), field.value.reveal().to_owned()))
        .collect();
    Request::new(place.as_deref().unwrap_or("/"), &host, &extra)
}
