//! A path to a server, over any family.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use config::Common;
use transport::Dialer;

use super::ws::HttpDials;
use super::{Dials, family, material};

/// A checked path to a server. Each worker makes its own dialer from it.
#[derive(Clone, Debug)]
pub struct Way {
    url: String,
    /// The URL with the other server, the proxy, the interface and the source address.
    label: String,
    host: String,
    /// The other server that leads to the server, and the target that the other server dials.
    detour: Option<(Arc<str>, String)>,
    dials: Arc<dyn Dials>,
}

/// A path through another server.
#[derive(Debug)]
pub struct Detour {
    /// The name of the other server.
    pub via: Arc<str>,
    /// The target that the other server dials: `tcp://host:port`.
    pub target: String,
    /// The handshake of the path, for this thread.
    pub dialer: Rc<dyn Dialer>,
}

impl Way {
    /// Reads certificates and pins.
    pub fn new(path: &config::Path, common: &Common) -> anyhow::Result<Self> {
        let dials = family(path.endpoint.scheme)?.dials(path, common);
        Ok(Self::with(path, dials.with_context(|| path.endpoint.to_string())?))
    }

    /// A path for HTTP requests. It uses the connections of a WebSocket.
    pub fn of_http(path: &config::Path) -> anyhow::Result<Self> {
        let dials = HttpDials::new(path).with_context(|| path.endpoint.to_string())?;
        Ok(Self::with(path, Arc::new(dials)))
    }

    fn with(path: &config::Path, dials: Arc<dyn Dials>) -> Self {
        let endpoint = &path.endpoint;
        let (url, host) = (endpoint.to_string(), endpoint.host.bare());
        let proxy = material::via(path).map(|(host, port, _)| format!("proxy {host}:{port}"));
        let interface = path.dial.interface.as_ref().map(|name| format!("interface {name}"));
        let source = path.dial.source.map(|source| format!("source {source}"));
        let via = path.via.as_ref().map(|via| format!("via {via}"));
        let detour = path.via.as_ref().map(|via| {
            (Arc::from(via.as_str()), format!("tcp://{}:{}", endpoint.host, endpoint.port))
        });
        let extras: Vec<_> = [via, proxy, interface, source].into_iter().flatten().collect();
        let label =
            if extras.is_empty() { url.clone() } else { format!("{url} ({})", extras.join(", ")) };
        Self { url, label, host, detour, dials }
    }

    /// The host as configured.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The URL as configured.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The path in messages: the URL, and in parentheses the other server, the proxy, the interface
    /// and the source address. The failure may be at the proxy, and several paths may have one URL.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The name of the other server that leads to the server; `None`: the client dials the path
    /// itself.
    pub fn via(&self) -> Option<&str> {
        self.detour.as_ref().map(|(via, _)| &**via)
    }

    /// The path as a detour through another server; `None`: the client dials the path itself.
    pub fn detour(&self) -> Option<Detour> {
        let (via, target) = self.detour.clone()?;
        Some(Detour { via, target, dialer: self.dials.inside()? })
    }

    /// The path of link `number`, with a dialer for this thread. Links with consecutive numbers
    /// reach different workers of the server, if the transport lets the client choose the worker.
    pub fn path_of_link(&self, number: u8) -> link::Path {
        self.path_by(Some(number))
    }

    /// The path, with a dialer for this thread.
    pub fn path(&self) -> link::Path {
        self.path_by(None)
    }

    fn path_by(&self, link: Option<u8>) -> link::Path {
        link::Path { url: self.label.clone(), dialer: self.dials.dialer(link) }
    }
}
