//! `wss://` and `ws://`: a WebSocket over TCP, with our own TLS or without TLS. Also plain HTTP
//! over the same connections.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::{Common, Endpoint, Listen, ServerConfig};
use net::{Current, SocketOptions};
use transport::{Dialer, PathDialer};
use transport_tcp::{Speech, TcpDialer, TcpListener, TlsClient, Via};
use transport_ws::{Request, Terms, WsDialer, WsListener};

use super::material::{NextHop, ServerTls};
use super::{
    Bound, Dials, Family, Listeners, Renewal, Setup, Unfit, bind_tcp, bound_tcp, dialer_options,
    material, proxies,
};

/// The maximum time in which a WebSocket sends nothing. nginx and most load balancers close after
/// 60 s, some after 30 s, and the silence can last up to twice this time.
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
        Ok(Arc::new(WsListeners { tls, terms: terms(setup.config)?.into() }))
    }

    fn dials(&self, path: &config::Path, common: &Common) -> anyhow::Result<Arc<dyn Dials>> {
        let tls = material::tls_client(path, Speech::Http)?;
        let via = material::via(path).map(|(.., via)| via);
        let (request, ping_after) = (request(path)?, ping_after(common));
        let (hop, options) = (NextHop::new(path), dialer_options(path));
        Ok(Arc::new(WsDials { hop, tls, via, options, request, ping_after }))
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
        bound_tcp(bind_tcp(listen, workers)?, move |socket| {
            let inner = TcpListener::new(socket, tls.clone())?.speaking(Speech::Http);
            Ok(Box::new(WsListener::new(inner, path.as_deref(), terms.clone())))
        })
    }

    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let tls = self.tls.as_ref().map(|tls| tls.renewal(setup, Speech::Http)).transpose()?;
        let (current, terms) = (self.terms.clone(), terms(setup.config)?);
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
    options: SocketOptions,
    request: Request,
    ping_after: Duration,
}

impl Dials for WsDials {
    fn dialer(&self, _: Option<u8>) -> Rc<dyn PathDialer> {
        let inner = TcpDialer::new(self.tls.clone()).through(self.via.clone());
        let inner = inner.speaking(Speech::Http).obeying(self.options.clone());
        self.hop.dialled(WsDialer::new(inner, self.request.clone(), self.ping_after))
    }

    fn inside(&self) -> Option<Rc<dyn Dialer>> {
        let inner = TcpDialer::new(self.tls.clone()).speaking(Speech::Http);
        Some(Rc::new(WsDialer::new(inner, self.request.clone(), self.ping_after)))
    }
}

/// The dialers of connections for HTTP: those of a WebSocket without the WebSocket handshake.
#[derive(Debug)]
pub(super) struct HttpDials {
    hop: NextHop,
    tls: Option<TlsClient>,
    via: Option<Via>,
}

impl HttpDials {
    pub(super) fn new(path: &config::Path) -> anyhow::Result<Self> {
        let tls = material::tls_client(path, Speech::Http)?;
        let via = material::via(path).map(|(.., via)| via);
        Ok(Self { hop: NextHop::new(path), tls, via })
    }
}

impl Dials for HttpDials {
    fn dialer(&self, _: Option<u8>) -> Rc<dyn PathDialer> {
        let dialer = TcpDialer::new(self.tls.clone()).through(self.via.clone());
        self.hop.dialled(dialer.speaking(Speech::Http))
    }
}

pub(super) fn terms(config: &ServerConfig) -> anyhow::Result<Terms> {
    let offers = config.webrtc.as_ref().filter(|_| cfg!(feature = "webrtc"));
    let offers = offers.map(|webrtc| Arc::from(webrtc.path.as_str()));
    let pages = crate::browser::pages(config)?;
    Ok(Terms { proxies: proxies(config), ping_after: ping_after(&config.common), offers, pages })
}

fn ping_after(common: &Common) -> Duration {
    STILL.min(common.keepalive.duration())
}

/// The request of the opening handshake of a WebSocket (RFC 6455 section 4.1).
pub fn request(path: &config::Path) -> Result<Request, transport_ws::BadField> {
    let Endpoint { scheme, host, port, path: place } = &path.endpoint;
    // With an address as host, only `sni` has the name of the site, and a proxy selects the site by
    // Host.
    let site = path.sni.as_ref().filter(|_| scheme.tls && host.ip().is_some());
    let host = site.map_or_else(|| host.unscoped().to_string(), String::clone);
    // RFC 9110 section 7.2: the default port of the scheme is omitted.
    let host = if *port == scheme.port { host } else { format!("{host}:{port}") };
    let extra: Vec<_> = (path.headers.iter())
        .map(|field| (field.name.clone(), field.value.reveal().to_owned()))
        .collect();
    Request::new(place.as_deref().unwrap_or("/"), &host, &extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_the_request_is_the_name_of_the_site_also_at_an_address() {
        for (server, host) in [
            ("wss://a.example/t", "a.example"),
            ("wss://a.example:8443/t", "a.example:8443"),
            ("{ url: 'wss://192.0.2.1/t', sni: b.example }", "b.example"),
            ("{ url: 'wss://[2001:db8::1]:8443/t', sni: b.example }", "b.example:8443"),
            ("{ url: 'wss://192.0.2.1/t', sni: b.example, headers: { Host: c } }", "c"),
            // A name in the URL is the name of the site; `sni` is that of the certificate.
            ("{ url: 'wss://a.example/t', sni: b.example }", "a.example"),
            ("ws://192.0.2.1/t", "192.0.2.1"),
            ("'ws://[fe80::1%eth0]:8080/t'", "[fe80::1]:8080"),
        ] {
            let text = format!(
                "servers: {server}\nname: a\ntoken: {}\n",
                "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi"
            );
            let text = Some(config::Text { name: "client.yaml", text: &text });
            let sources = config::Sources { env: &|_| None, read: &|_| Err(String::new()) };
            let loaded = config::load_client(text, &config::ClientFlags::default(), &sources);
            let request = request(&loaded.unwrap().config.servers[0].paths[0]).unwrap();
            assert_eq!(request.fields()[0], ("Host".to_owned(), host.to_owned()), "{server}");
        }
    }
}
