//! `tls://` and `tcp://`: our own protocol over TCP, with TLS or without.

use std::rc::Rc;
use std::sync::Arc;

use config::{Common, Listen};
use net::source::Proxies;
use net::{Current, SocketOptions};
use transport::{Dialer, PathDialer};
use transport_tcp::{Speech, TcpDialer, TcpListener, TlsClient, Via};

use super::material::{NextHop, ServerTls};
use super::{
    Bound, Dials, Family, Listeners, Renewal, Setup, bind_tcp, bound_tcp, dialer_options, material,
    proxies,
};

pub(super) struct Tcp;

impl Family for Tcp {
    fn schemes(&self) -> &'static [&'static str] {
        const NAMES: &[&str] = &[transport_tcp::TLS.name(), transport_tcp::TCP.name()];
        NAMES
    }

    fn listeners(&self, setup: &Setup<'_>) -> anyhow::Result<Arc<dyn Listeners>> {
        let tls = ServerTls::new(setup, Speech::Tunnel)?;
        Ok(Arc::new(TcpListeners { tls, proxies: proxies(setup.config).into() }))
    }

    fn dials(&self, path: &config::Path, _: &Common) -> anyhow::Result<Arc<dyn Dials>> {
        let tls = material::tls_client(path, Speech::Tunnel)?;
        let via = material::via(path).map(|(.., via)| via);
        Ok(Arc::new(TcpDials { hop: NextHop::new(path), tls, via, options: dialer_options(path) }))
    }
}

#[derive(Debug)]
struct TcpListeners {
    tls: Option<ServerTls>,
    proxies: Current<Proxies>,
}

impl Listeners for TcpListeners {
    fn bind(&self, listen: &Listen, _: &Common, workers: usize) -> anyhow::Result<Bound> {
        let tls = material::tls_of(self.tls.as_ref(), listen)?;
        let proxies = self.proxies.clone();
        bound_tcp(bind_tcp(listen, workers)?, move |socket| {
            Ok(Box::new(TcpListener::new(socket, tls.clone())?.behind(proxies.clone())))
        })
    }

    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let tls = self.tls.as_ref().map(|tls| tls.renewal(setup, Speech::Tunnel)).transpose()?;
        let (current, proxies) = (self.proxies.clone(), proxies(setup.config));
        Ok(Box::new(move || {
            tls.into_iter().for_each(|renew| renew());
            current.replace(Arc::new(proxies));
        }))
    }
}

#[derive(Debug)]
struct TcpDials {
    hop: NextHop,
    tls: Option<TlsClient>,
    via: Option<Via>,
    options: SocketOptions,
}

impl Dials for TcpDials {
    fn dialer(&self, _: Option<u8>) -> Rc<dyn PathDialer> {
        let dialer = TcpDialer::new(self.tls.clone()).through(self.via.clone());
        self.hop.dialled(dialer.obeying(self.options.clone()))
    }

    fn inside(&self) -> Option<Rc<dyn Dialer>> {
        Some(Rc::new(TcpDialer::new(self.tls.clone())))
    }
}
