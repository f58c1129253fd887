//! A path to a server, over any family.

use std::sync::Arc;

use anyhow::Context;
use config::Common;

use super::ws::HttpDials;
use super::{Dials, family, material};

/// A checked path to a server. Each worker makes its own dialer from it.
#[derive(Clone, Debug)]
pub struct Way {
    url: String,
    host: String,
    /// Host and port of the proxy.
    proxy: Option<(String, u16)>,
    dials: Arc<dyn Dials>,
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
        let proxy = material::via(path).map(|(host, port, _)| (host, port));
        Self { url, host, proxy, dials }
    }

    /// The host as configured.
    pub fn host(&self) -> &str {
        &self.host
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
        // The URL in messages names the proxy, because the failure may be at the proxy.
        let url = match &self.proxy {
            Some((host, port)) => format!("{} (proxy {host}:{port})", self.url),
            None => self.url.clone(),
        };
        link::Path { url, dialer: self.dials.dialer(link) }
    }
}
